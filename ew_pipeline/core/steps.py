"""Run the steps of a week one after the other: one aligned line and one timing each.

The order of the steps is written once (`ew_pipeline.weekly.run`). What changes between a plain run and a
Prefect run is only how a step is called: `Steps` calls it, `flows` has a subclass that makes it a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import OperationalError

from ew_pipeline.core.console import messages, step
from ew_pipeline.core.errors import EwError

Result = TypeVar("Result")
RETRIES = 3
FIRST_WAIT = 1.0
TRANSIENT = (ConnectionError, TimeoutError, InterruptedError, OperationalError)


class Steps:
    """Calls each step in this process."""

    flow_run_id: str | None = None

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.timings: dict[str, float] = {}

    def __call__(
        self,
        name: str,
        call: Callable[[], Result],
        *,
        detail: Callable[[Result], str] | None = None,
        retry: bool = False,
    ) -> Result:
        """Run ``call`` as the step ``name``; ``retry``: it is I/O, and a passing failure is tried again."""
        started = time.perf_counter()
        try:
            if self.quiet:
                return self.execute(name, call, retry)
            with step(name) as line:
                result = self.execute(name, call, retry)
                if detail is not None:
                    line.detail = detail(result)
                return result
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - started

    def execute(self, name: str, call: Callable[[], Result], retry: bool) -> Result:
        """How a step is called; a subclass may do it elsewhere."""
        wait = FIRST_WAIT
        for _ in range(RETRIES if retry else 0):
            try:
                return call()
            except Exception as error:
                if not is_transient(error):
                    raise
                self.say(f"{name}: {type(error).__name__}; trying again in {wait:.0f} s")
                time.sleep(wait)
                wait *= 2
        return call()

    def say(self, text: str) -> None:
        """A line for the person who watches."""
        if not self.quiet:
            messages().print(text, markup=False, soft_wrap=True)

    def finished(self, outcome: object) -> None:
        """Called once with what the run came to."""


def is_transient(error: BaseException) -> bool:
    """Whether trying again may help: the network or a busy database, never the data or the method."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TRANSIENT):
            return True
        cause = cause.__cause__ if isinstance(cause, EwError) else None
    return False
