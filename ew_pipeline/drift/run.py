"""Drift of a ledger: read, judge, write down, tell, draw."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import DriftSettings, Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.drift.alerts import (
    Alert,
    SegmentVerdict,
    list_alerts,
    notify,
    raise_alerts,
    segment_verdicts,
    split_urls,
    worst_verdict,
)
from ew_pipeline.drift.page import PAGE, write_page
from ew_pipeline.drift.series import CARRIED, read_rows, reference_of
from ew_pipeline.drift.verdicts import Assessment, Chart, Verdict, assess
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.records import now


@dataclass(frozen=True, eq=False)
class DriftReport:
    """What drift found. ``new``: alerts of this call; ``failures``: what could not be sent, in words."""

    assessment: Assessment
    alerts: tuple[Alert, ...]
    new: tuple[Alert, ...]
    verdicts: tuple[SegmentVerdict, ...]
    page: Path
    failures: tuple[str, ...]

    @property
    def open_alerts(self) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.alerts if alert.open)

    @property
    def verdict(self) -> Verdict:
        """Of all segments together: the worst."""
        return worst_verdict(self.verdicts)


def run_drift(
    settings: Settings,
    drift: DriftSettings | None = None,
    steps: Steps | None = None,
    week: Week | None = None,
) -> DriftReport:
    """Judge all live weeks (up to ``week``), record points and alerts, send the new ones, write the page."""
    drift, steps = drift or DriftSettings(), steps or Steps(quiet=True)
    split_urls(drift.alert_url)  # a wrong URL is said before anything is written
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        rows = steps("read the live weeks", lambda: read_rows(ledger, week), retry=True)
        if rows.empty:
            raise UsageError(
                "no week is published yet, so there is nothing to follow.",
                "run one: ew run --week 2026-W34 --sales FILE",
            )
        assessment = steps(
            "judge them",
            lambda: assess(rows, drift.weeks_between_alarms),
            detail=lambda a: f"{len(a.weeks)} weeks, {a.alarming} charts",
        )
        steps("record the points", lambda: record_points(ledger, assessment), retry=True)
        new = steps("raise alerts", lambda: raise_alerts(ledger, assessment.events), retry=True)
        alerts = list_alerts(ledger)
    verdicts = segment_verdicts(assessment, alerts)
    page = settings.reports / PAGE
    steps("draw the page", lambda: write_page(assessment, verdicts, alerts, page))
    failures = notify(new, drift.alert_url, settings.root / "outbox")
    return DriftReport(assessment, alerts, new, verdicts, page, tuple(failures))


def judge_drift(ledger: Ledger, settings: Settings, drift: DriftSettings) -> DriftReport | None:
    """How all live weeks stand, with the alerts that were raised: nothing is written, sent or drawn.

    None before the first published week.
    """
    rows = read_rows(ledger)
    if rows.empty:
        return None
    assessment = assess(rows, drift.weeks_between_alarms)
    alerts = list_alerts(ledger)
    verdicts = segment_verdicts(assessment, alerts)
    return DriftReport(assessment, alerts, (), verdicts, settings.reports / PAGE, ())


def record_points(ledger: Ledger, assessment: Assessment) -> int:
    """Write the points that the ledger does not have for the publications that are live; how many."""
    known = ledger.table("drift_points")[["segment", "series", "publication_id"]]
    have = set(known.itertuples(index=False, name=None))
    compared = reference_of(ledger.live())
    at = now()
    verdicts = {(event.segment, event.week): event.verdict for event in assessment.events}
    rows = [
        _point_row(
            chart, place, compared, at, verdicts.get((chart.series.segment, chart.series.weeks[place]))
        )
        for chart in assessment.charts
        for place, publication in enumerate(chart.series.publications)
        if (chart.series.segment, chart.series.kind.name, publication) not in have
    ]
    if rows:
        ledger.append("drift_points", sorted(rows, key=lambda row: (str(row["week"]), row["segment"])))
    return len(rows)


def _point_row(
    chart: Chart, place: int, compared: dict[int, int], at: dt.datetime, verdict: Verdict | None
) -> dict[str, Any]:
    point, kept = chart.points[place], chart.series.points[place]
    publication = chart.series.publications[place]
    detail: dict[str, Any] = {"state": point.state, "score": point.score, "centre": point.centre}
    if chart.series.kind.name == CARRIED and publication in compared:
        detail["compared_with"] = compared[publication]
    return {
        "week": chart.series.weeks[place],
        "segment": chart.series.segment,
        "series": chart.series.kind.name,
        "publication_id": publication,
        "value": kept.value,
        "low": kept.low,
        "high": kept.high,
        "statistic": point.statistic,
        "control_limit": point.limit if point.limit is not None and math.isfinite(point.limit) else None,
        "verdict": verdict if verdict is not None and point.state == "alarm" else point.state,
        "detail": detail,
        "computed_at": at,
    }


def describe(report: DriftReport) -> dict[str, Any]:
    """The report for a program."""
    found = report.assessment
    return {
        "week": str(found.weeks[-1]),
        "weeks": len(found.weeks),
        "verdict": report.verdict,
        "segments": report.verdicts,
        "alerts": [alert.plain() for alert in report.alerts],
        "open_alerts": [alert.id for alert in report.open_alerts],
        "new_alerts": [alert.id for alert in report.new],
        "weeks_between_alarms": found.weeks_between_alarms,
        "charts": found.alarming,
        "limit": found.limit,
        "series": [_series(chart) for chart in found.charts],
        "page": str(report.page),
        "not_sent": list(report.failures),
    }


def _series(chart: Chart) -> dict[str, Any]:
    own = chart.series
    return {
        "segment": own.segment,
        "series": own.kind.name,
        "title": own.kind.title,
        "group": own.kind.group,
        "points": [
            {
                "week": str(week),
                "value": kept.value,
                "low": kept.low,
                "high": kept.high,
                "statistic": point.statistic,
                "state": point.state,
            }
            for week, kept, point in zip(own.weeks, own.points, chart.points, strict=True)
        ],
    }
