"""Other processes for tests, which can be killed for real."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from support.clean_processes import clean

TIMEOUT = 120


class Forked:
    """A function running in a process of its own; what it returns, or the exception it raised, comes back."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._here, there = clean.Pipe(duplex=False)
        self.process = clean.Process(target=_run, args=(there, function, arguments), daemon=True)
        self.process.start()
        there.close()

    @property
    def exit_code(self) -> int:
        self.process.join(TIMEOUT)
        assert self.process.exitcode is not None, "the process did not end"
        return self.process.exitcode

    def result(self) -> Any:
        """What the function returned; an exception of it is raised here."""
        assert self._here.poll(TIMEOUT), "the process said nothing"
        kind, value = self._here.recv()
        self.process.join(TIMEOUT)
        if kind == "raised":
            raise value
        return value


def _run(pipe: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(("returned", function(*arguments)))
    except Exception as error:
        try:
            pipe.send(("raised", error))
        except Exception:  # it cannot be pickled
            pipe.send(("raised", RuntimeError(traceback.format_exc())))
