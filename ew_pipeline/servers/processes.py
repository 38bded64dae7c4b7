"""Every process of an `ew up`, also what its parts have started: all have its mark in their environment.

Process groups and parents would not do: Prefect starts each flow run in a session of its own, and a process
whose parent has died belongs to nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import psutil

MARK, HOME_MARK = "EW_UP_MARK", "EW_UP_HOME"
TERM_SECONDS = 10.0
KILL_SECONDS = 5.0


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
