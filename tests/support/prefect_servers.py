"""Real Prefect processes on loopback for the tests of flows; each is ended by the test that started it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ew_pipeline.servers.prefect import QUIET

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(sys.executable).parent
PATIENCE = 240.0


def environment(home: Path, **more: str) -> dict[str, str]:
    """Ours alone: nothing of whoever runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "NUMBA_CACHE_DIR", "LANG") if name in os.environ}
    quiet = {name: value for name, value in QUIET.items() if name != "PREFECT_LOGGING_LEVEL"}
    return {**kept, **quiet, "HOME": str(home), **more}


def command(*words: str) -> list[str]:
    return [str(SCRIPTS / words[0]), *words[1:]]


def call(
    words: Sequence[str], variables: dict[str, str], folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextmanager
def background(
    words: Sequence[str], variables: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command(*words), env=variables, cwd=ROOT, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise AssertionError(f"{url} does not answer: {log.read_text()}")
