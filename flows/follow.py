"""After a week is published: is theta drifting? Nothing here can undo or fail the week."""

from __future__ import annotations

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.drift.run import DriftReport, run_drift
from ew_pipeline.weekly.run import Outcome


def follow_drift(outcome: Outcome, settings: Settings, steps: Steps) -> DriftReport | None:
    """Judge the published weeks after ``outcome`` joined them; None when it did not, or when that failed."""
    if outcome.status != "published":
        return None
    return judge_published(settings, steps)


def judge_published(settings: Settings, steps: Steps) -> DriftReport | None:
    """Judge all published weeks, and say what came out; None when that failed."""
    try:
        report = steps("look for drift", lambda: run_drift(settings), detail=lambda r: str(r.verdict))
    except Exception as error:
        why = error.message if isinstance(error, EwError) else f"{type(error).__name__}: {error}"
        steps.say(f"drift: not judged ({why}); the week is published all the same. Again: ew drift")
        return None
    for line in drift_lines(report):
        steps.say(line)
    return report


def drift_lines(report: DriftReport) -> list[str]:
    """``drift: stable``, or every open alert in words with what to type."""
    if not report.open_alerts:
        return [f"drift: {report.verdict}"]
    return [
        f"drift: {alert.words} ({alert.segment}, {alert.week}); look at it: ew drift, "
        f'and ew drift --acknowledge {alert.id} --why "…"'
        for alert in report.open_alerts
    ]
