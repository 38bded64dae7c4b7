"""What this process and those it has started use: CPU time and resident memory."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType

import psutil

EVERY = 0.01  # seconds between two looks at the memory


def family(of: int | None = None) -> list[psutil.Process]:
    """The process (this one by default) and all that descend from it."""
    try:
        first = psutil.Process(of)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds() -> float:
    """User and system time of this process and of its children, those that have ended included."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = (
        time.process_time() + ended.ru_utime + ended.ru_stime
    )  # to the microsecond; of others, ticks of 10 ms
    for process in family()[1:]:
        try:
            total += sum(process.cpu_times()[:4])  # own and of children that were waited for
        except psutil.NoSuchProcess:
            continue
    return total


def resident(of: int | None = None) -> int:
    """Bytes of physical memory of the process and all that descend from it; shared pages count in each."""
    total = 0
    for process in family(of):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


class PeakMemory:
    """The largest resident memory while it is open, of this process or of a process with its children."""

    def __init__(self, of: int | None = None, every: float = EVERY) -> None:
        # Finding children reads all of /proc, so it is not done for a process that is being timed.
        self._look: Callable[[], int] = _own if of is None else partial(resident, of)
        self.every = every

    def __enter__(self) -> PeakMemory:
        self.before = self.highest = self._look()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(self.every):
            self.highest = max(self.highest, self._look())

    @property
    def extra(self) -> int:
        """Above what it was when it was opened."""
        return self.highest - self.before


def _own() -> int:
    return int(psutil.Process().memory_info().rss)
