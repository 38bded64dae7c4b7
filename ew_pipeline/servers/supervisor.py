"""Parts that are started, watched, started again when they die, and ended together.

Every process of an `ew up`, also what its parts have started, has its mark in the environment. Process groups
and parents would not do: Prefect starts each flow run in a session of its own, and a process whose parent has
died belongs to nobody.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import psutil

from ew_pipeline.core.child import end_with_parent
from ew_pipeline.core.console import messages
from ew_pipeline.core.errors import EwError

MARK, HOME_MARK = "EW_UP_MARK", "EW_UP_HOME"
TERM_SECONDS = 10.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.1
READY_SECONDS = 240.0
TAIL_LINES = 15
LOG_BYTES = 20_000_000  # of a part's log before a fresh one is begun


class Ended(BaseException):
    """Somebody asked `ew up` to end. No error, and nothing may swallow it."""


@dataclass(frozen=True)
class Part:
    """A process to keep. ``ready``: whether it does its work by now; ``address``: shown when it does."""

    name: str
    command: Sequence[str]
    address: str
    ready: Callable[[], bool]


@dataclass(frozen=True)
class Patience:
    """A part that dies so many times within these seconds is given up; waits between double up to a limit."""

    deaths: int = 5
    within: float = 600.0
    first_wait: float = 1.0
    longest_wait: float = 60.0


@dataclass
class _Running:
    part: Part
    log: Path
    process: subprocess.Popen[bytes]
    deaths: list[float] = field(default_factory=list)
    again_at: float | None = None
    announced: bool = False


class Supervisor:
    """Use it in a ``with``; everything happens in the thread that made it, whose death ends the parts."""

    def __init__(
        self,
        environment: Mapping[str, str],
        logs: Path,
        patience: Patience = Patience(),  # noqa: B008
        say: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self.environment = dict(environment)
        self.logs = logs
        self.patience = patience
        self.say = say or tell
        self.asked_to_end = False
        self._running: list[_Running] = []
        self._sentinel: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Supervisor:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._ask_to_end)
        self._watch_over()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, part: Part) -> None:
        """Start it; ``poll`` announces it when it is ready."""
        log = self.logs / f"{part.name.lower().replace(' ', '-')}.log"
        self._running.append(_Running(part, log, self._spawn(part.command, log)))

    def wait_for(self, *names: str, seconds: float = READY_SECONDS) -> None:
        """Until these parts are ready; without names, all of them."""
        deadline = time.monotonic() + seconds
        while True:
            self.poll()
            waiting = [
                one for one in self._running if (not names or one.part.name in names) and not one.announced
            ]
            if not waiting:
                return
            if time.monotonic() > deadline:
                first = waiting[0]
                raise self._failure(first, f"was not ready after {seconds:.0f} s")
            self.pause()

    def run(self, command: Sequence[str], log: Path, folder: Path) -> int:
        """A command that ends by itself, while the parts are watched; its exit code."""
        process = self._spawn(command, log, folder)
        while (code := process.poll()) is None:
            self.poll()
            self.pause()
        return code

    def watch(self) -> None:
        """Until somebody asks to end (``Ended``), or a part is given up."""
        while True:
            self.poll()
            self.pause(0.3)

    def pause(self, seconds: float = POLL_SECONDS) -> None:
        time.sleep(seconds)
        if self.asked_to_end:
            raise Ended

    def poll(self) -> None:
        """Look at every part once."""
        if self._sentinel is not None and self._sentinel.poll() is not None:
            self._watch_over()
        for one in self._running:
            if one.again_at is not None:
                if time.monotonic() >= one.again_at:
                    one.again_at, one.announced = None, False
                    one.process = self._spawn(one.part.command, one.log)
            elif (code := one.process.poll()) is not None:
                self._died(one, code)
            elif not one.announced and one.part.ready():
                one.announced = True
                self.say("again" if one.deaths else "ok", one.part.name, one.part.address)

    def stop(self) -> None:
        """First what was started last, with all that it has started: a flow run that is ended can still tell
        the server. Then all others; at the end nothing is left."""
        if self._running and self._running[-1].process.poll() is None:
            end(with_children(self._running[-1].process.pid))
        mark = self.environment[MARK]
        own = None if self._sentinel is None else self._sentinel.pid
        end_all(lambda: [process for process in of_mark(mark) if process.pid != own])
        for one in self._running:
            one.process.wait()
        if self._sentinel is not None and self._sentinel.stdin is not None:
            self._sentinel.stdin.close()
            self._sentinel.wait()

    def _ask_to_end(self, *_: object) -> None:
        self.asked_to_end = True

    def _watch_over(self) -> None:
        self._sentinel = subprocess.Popen(
            [sys.executable, "-m", "ew_pipeline.servers.sentinel", self.environment[MARK]],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _spawn(
        self, command: Sequence[str], log: Path, folder: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """In a session of its own: Ctrl-C reaches `ew up` alone, which ends the parts in order."""
        with _opened(log) as output:
            return subprocess.Popen(
                command,
                env=self.environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent if sys.platform == "linux" else None,
            )

    def _died(self, one: _Running, code: int) -> None:
        now = time.monotonic()
        one.deaths = [moment for moment in one.deaths if now - moment < self.patience.within] + [now]
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        if len(one.deaths) >= self.patience.deaths:
            raise self._failure(one, f"died {len(one.deaths)} times; the last time it {how}")
        wait = min(self.patience.first_wait * 2 ** (len(one.deaths) - 1), self.patience.longest_wait)
        one.again_at = now + wait
        self.say("died", one.part.name, f"{how}; starting it again in {wait:g} s ({one.log})")

    def _failure(self, one: _Running, what: str) -> EwError:
        return EwError(
            f"{one.part.name} {what}. The end of its log:\n{tail(one.log)}",
            f"read {one.log}, and the chapter on `ew up` in infra/RUNBOOK.md; then ew up again",
        )


def tell(outcome: str, name: str, words: str) -> None:
    """One aligned line."""
    messages().print(f"{outcome:<8}{name:<16}{words}", markup=False, soft_wrap=True)


def tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 20_000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "  (there is none)"
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:]) or "  (it is empty)"


def _opened(log: Path) -> BinaryIO:
    """Logs go on where they were; a long one is put aside once, so that two are kept at most."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.is_file() and log.stat().st_size > LOG_BYTES:
        os.replace(log, log.with_suffix(".log.1"))
    return log.open("ab")


def marked(chosen: Callable[[str, str], bool]) -> Iterator[psutil.Process]:
    """Processes of this user whose (mark, home) is ``chosen``; never this one."""
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.uids().real != os.getuid():
                continue
            environment = process.environ()
            if MARK not in environment or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if chosen(environment[MARK], environment.get(HOME_MARK, "")):
                yield process
        except (psutil.Error, OSError):  # it has just ended, or may not be looked at
            continue


def of_mark(mark: str) -> list[psutil.Process]:
    """What one `ew up` has started and is still there."""
    return list(marked(lambda found, _: found == mark))


def left_behind(home: str, mark: str) -> list[psutil.Process]:
    """What an earlier `ew up` in this home has left; only for the holder of the home's lock."""
    return list(marked(lambda found, its_home: its_home == home and found != mark))


def with_children(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def end(processes: Iterable[psutil.Process], seconds: float = TERM_SECONDS) -> None:
    """Ask, wait, then insist."""
    asked = list(processes)
    _each(asked, psutil.Process.terminate)
    _, left = psutil.wait_procs(asked, timeout=seconds)
    _each(left, psutil.Process.kill)
    psutil.wait_procs(left, timeout=KILL_SECONDS)


def end_all(find: Callable[[], list[psutil.Process]], seconds: float = TERM_SECONDS) -> int:
    """End what ``find`` finds until that is nothing: what is ending may start another. How many it were."""
    count = 0
    for _ in range(5):
        found = find()
        if not found:
            break
        count += len(found)
        end(found, seconds)
    return count


def _each(processes: Iterable[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            act(process)
        except psutil.Error:
            continue
