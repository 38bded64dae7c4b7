"""One week among many: run it, and say how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ew_pipeline.core.errors import DataError, EwError, FitError, UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.results import WeekRequest
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.run import run_week

GOOD = ("published", "unchanged", "shadow")


@dataclass(frozen=True)
class WeekDone:
    """How one week of a backfill ended. ``skipped``: it was not even read, nothing had changed."""

    week: Week
    status: str  # published, unchanged, held, shadow, rejected or failed
    run_id: str | None
    words: str
    seconds: float
    skipped: bool = False
    timings: dict[str, float] = field(default_factory=dict)
    maybe_the_machine: bool = False  # it failed, and another machine might do better

    @property
    def good(self) -> bool:
        return self.status in GOOD


def run_one_week(request: WeekRequest, settings: Settings, steps: Steps, tracking: Tracking) -> WeekDone:
    """Run a week; whatever goes wrong with it is its outcome, not the end of the backfill."""
    started = time.perf_counter()
    try:
        outcome = run_week(request, settings, steps, tracking)
    except Exception as error:
        status = "rejected" if isinstance(error, DataError) else "failed"
        known = error.message if isinstance(error, EwError) else f"{type(error).__name__}: {error}"
        return WeekDone(
            request.week,
            status,
            None,
            known,
            time.perf_counter() - started,
            timings=dict(steps.timings),
            maybe_the_machine=not isinstance(error, (DataError, UsageError, FitError)),
        )
    if outcome.result is None:
        words = "the same inputs are published already"
    elif outcome.status == "held":
        words = "; ".join(check.words for check in outcome.result.held)
    else:
        words = f"{outcome.result.totals.flagged} pairs to check"
    seconds = time.perf_counter() - started
    return WeekDone(request.week, outcome.status, outcome.run_id, words, seconds, timings=dict(steps.timings))
