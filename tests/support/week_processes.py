"""Weeks run in processes of their own, which may be killed at a chosen step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from support.chain import LAST_WEEK, QUICK, Untold, sources
from support.clean_processes import clean

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.ledger import store
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.request import make_request
from ew_pipeline.weekly.run import run_week

Result = TypeVar("Result")
PATIENCE = 240.0


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (negative: the signal), and what it said."""

    code: int
    status: str
    message: str


def die(*_: object) -> None:
    """As by the kernel or a power cut."""
    os.kill(os.getpid(), signal.SIGKILL)


class Dying(Steps):
    """Steps that are killed just before or after one of them, or inside it: once the flags are written."""

    def __init__(self, at: str | None, when: str) -> None:
        super().__init__(quiet=True)
        self.at = at
        self.when = when

    def execute(self, name: str, call: Callable[[], Result], retry: bool) -> Result:
        if name == self.at and self.when == "before":
            die()
        if name == self.at and self.when == "inside":
            insert = store.insert_flags
            store.insert_flags = lambda *given: (insert(*given), die())
        result = super().execute(name, call, retry)
        if name == self.at and self.when == "after":
            die()
        return result


def start(home: Path, tables: dict[str, str], **options: Any) -> Any:
    """Start a week, without MLflow unless it is ``tracked``; ``finish`` waits for it.

    ``at`` and ``when``: the step to die at.
    """
    queue = clean.SimpleQueue()
    process = clean.Process(target=_week, args=(str(home), tables, queue, options))
    process.start()
    return process, queue


def finish(started: Any) -> Ended:
    process, queue = started
    process.join(PATIENCE)
    assert not process.is_alive(), "the run hangs"
    status, message = queue.get() if not queue.empty() else ("killed", "")
    return Ended(process.exitcode, status, message)


def run_in_process(home: Path, tables: dict[str, str], **options: Any) -> Ended:
    return finish(start(home, tables, **options))


def _week(home: str, tables: dict[str, str], queue: Any, options: dict[str, Any]) -> None:
    settings = Settings(home=Path(home), database_url=options.get("database"))
    changes = {**QUICK, **options.get("changes", {})}
    steps = Dying(options.get("at"), options.get("when", "after"))
    try:
        # Many die before MLflow is needed.
        with Tracking(settings, early=False) if options.get("tracked") else Untold() as tracking:
            given = {**sources(tables), **options.get("sources", {})}
            request = make_request(settings, week=LAST_WEEK, changes=changes, **given)
            outcome = run_week(request, settings, steps, tracking)
    except EwError as error:
        queue.put((type(error).__name__, str(error)))
        raise SystemExit(error.exit_code) from None
    queue.put((outcome.status, ""))
    raise SystemExit(int(outcome.exit_code))
