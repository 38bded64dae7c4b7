"""A test without a mark starts no process and binds no port: what it started is seen, and it fails.

The marks are ``flow``, ``server`` and ``browser`` (see ``pyproject.toml``). What a fixture starts counts for
the test that it is set up for first, so all tests that ask for such a fixture have the mark.
"""

from __future__ import annotations

import multiprocessing.process
import os
import socket
import sys
import threading
import traceback
from pathlib import Path

import pytest

MARKS = ("flow", "server", "browser")
STARTED = "multiprocessing"  # our own event: `spawn` and `forkserver` of multiprocessing raise none
EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", STARTED, "socket.bind"}

# Questions to the machine, each answered in milliseconds and asked by a library, not by the test.
HARMLESS = {
    "git",  # which commit this is: our provenance, MLflow
    "uname",  # platform.processor()
    "ldconfig",  # ctypes.util.find_library(), with the two below where it knows no answer
    "gcc",
    "ld",
    "lsb_release",  # platforms named in user agents
}
PROBES = ("urllib3/util/connection.py",)  # binds a port for a moment on import, to see if there is IPv6


class Watch:
    """What one test and its fixtures have started so far; watches nothing between tests."""

    def __init__(self) -> None:
        self.started: list[str] | None = None
        self._before: set[int] = set()

    def begin(self) -> None:
        # A thread that an earlier test has left behind may go on; what it does is not this test's.
        self._before = {thread.ident or 0 for thread in threading.enumerate()} - {threading.get_ident()}
        self.started = []

    def end(self) -> None:
        self.started = None

    def fail(self) -> None:
        if self.started:
            lines = "\n  ".join(self.started)
            pytest.fail(
                f"a test without a mark started something:\n  {lines}\n"
                f"Mark it as one of {', '.join(MARKS)} (pyproject.toml says what they mean).",
                pytrace=False,
            )

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.started is None or event not in EVENTS or threading.get_ident() in self._before:
            return
        if what := describe(event, arguments):
            self.started.append(f"{what}, from {_caller()}")


def describe(event: str, arguments: tuple[object, ...]) -> str | None:
    """In words, or None for what an unmarked test may do."""
    if event == "socket.bind":
        bound = arguments[0]
        on_network = isinstance(bound, socket.socket) and bound.family in (socket.AF_INET, socket.AF_INET6)
        return f"port bound: {arguments[1]}" if on_network and not _is_probe() else None
    if event in ("subprocess.Popen", "os.posix_spawn"):
        program = os.fsdecode(arguments[0])  # type: ignore[arg-type]
        return None if Path(program).name in HARMLESS else f"process: {program}"
    return f"process: {event}"


def _is_probe() -> bool:
    return any(line.filename.endswith(PROBES) for line in traceback.extract_stack(limit=6))


def _caller() -> str:
    """The innermost line of this repository, else the innermost one."""
    root = str(Path(__file__).resolve().parents[2])
    lines = [line for line in traceback.extract_stack() if line.filename != __file__]
    ours = [line for line in lines if line.filename.startswith(root) and ".venv" not in line.filename]
    at = (ours or lines)[-1]
    return f"{at.filename}:{at.lineno}"


WATCH = Watch()
sys.addaudithook(WATCH)

_start = multiprocessing.process.BaseProcess.start


def _told_start(process: multiprocessing.process.BaseProcess) -> None:
    sys.audit(STARTED)
    _start(process)


multiprocessing.process.BaseProcess.start = _told_start  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    if not any(item.get_closest_marker(mark) for mark in MARKS):
        WATCH.begin()
    try:
        return (yield)
    finally:
        WATCH.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Taking down is not watched: to end a server of many tests, a process may be started."""
    try:
        result = yield
        WATCH.fail()
        return result
    finally:
        WATCH.end()
