"""A file that is written on another core while the week goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future


class LaterFile:
    """Begun at once. ``wait`` returns when the file is there, or raises what kept it from being written;
    whoever waits after a failure, as a step does that is tried again, has it written again."""

    def __init__(self, beside: Executor, write: Callable[[], None]) -> None:
        self._write = write
        self._begun: Future[None] | None = beside.submit(write)

    def wait(self) -> None:
        begun, self._begun = self._begun, None
        if begun is None:
            self._write()
        else:
            begun.result()
            self._begun = begun
