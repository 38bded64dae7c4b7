"""One try at a week: nobody else at it, and how it ended is on record."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from ew_pipeline.core.errors import DataError, EwError
from ew_pipeline.core.files import make_private
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.intake.contract import ContractRejected
from ew_pipeline.ledger import Ledger, RunInfo
from ew_pipeline.results import WeekRequest

Result = TypeVar("Result")
WAIT_SECONDS = 600.0  # for another run of the same week to end


@dataclass(frozen=True)
class Attempt:
    """One try at a week: its name, its folder, when it began."""

    run_id: str
    folder: Path
    started_at: dt.datetime


def attempted(
    request: WeekRequest, settings: Settings, steps: Steps, compute: Callable[[Ledger, Attempt], Result]
) -> Result:
    """Do the week with nobody else at it, and record how it ended if it fails."""
    attempt = begin(request, settings)
    opened = steps(
        "open the ledger", lambda: Ledger.open(settings.ledger_url, home=settings.root), retry=True
    )
    with opened as ledger:
        try:
            with ledger.week_lock(
                request.week, who=attempt.run_id, wait_seconds=WAIT_SECONDS, on_wait=steps.say
            ):
                return compute(ledger, attempt)
        except BaseException as error:  # also Ctrl-C: the ledger says how every run ended
            _record_failure(request, attempt, steps, ledger, settings.actor, error)
            raise


def begin(request: WeekRequest, settings: Settings) -> Attempt:
    """Name the attempt and make its folder."""
    now = dt.datetime.now(dt.UTC)
    run_id = f"{request.week}-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    folder = settings.runs / run_id
    try:
        make_private(settings.root)
        folder.mkdir(parents=True)
    except OSError as error:
        raise EwError(
            f"cannot write to {settings.root}: {error.strerror}.",
            "give the folder to this user, or choose another: EW_HOME=/path/to/folder ew run …",
        ) from error
    return Attempt(run_id, folder, now)


def _record_failure(
    request: WeekRequest, attempt: Attempt, steps: Steps, ledger: Ledger, actor: str, error: BaseException
) -> None:
    info = RunInfo(
        run_id=attempt.run_id,
        week=request.week,
        started_at=attempt.started_at,
        config=request.config,
        folder=attempt.folder,
        shadow=request.shadow,
        contract=error.contract if isinstance(error, ContractRejected) else None,
        timings=steps.timings,
        flow_run_id=steps.flow_run_id,
    )
    status: Literal["rejected", "failed"] = "rejected" if isinstance(error, DataError) else "failed"
    try:
        ledger.record_run(info, status, by=actor, error=str(error) or type(error).__name__)
    except EwError as second:  # the first error is the one that matters
        steps.say(f"The failure could not be recorded: {second.message}")
