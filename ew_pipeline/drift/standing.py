"""How every segment stands: its worst open alert, or stable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ew_pipeline.drift.alerts import Alert
from ew_pipeline.drift.assess import Assessment
from ew_pipeline.drift.attribute import STABLE, Verdict
from ew_pipeline.drift.chart import LEARNING_WEEKS
from ew_pipeline.drift.words import MEANING, SEVERITY

WORST = ("high", "medium", "low", "none")


@dataclass(frozen=True)
class SegmentVerdict:
    """How a segment stands: its worst open alert, or stable. ``judged``: weeks beyond the first eight."""

    segment: str
    verdict: Verdict
    words: str
    look_at: str
    judged: int
    alerts: tuple[int, ...]  # that are open


def segment_verdicts(assessment: Assessment, alerts: Sequence[Alert]) -> tuple[SegmentVerdict, ...]:
    """Every segment's standing after the last week."""
    made = []
    for segment in assessment.segments:
        waiting = [alert for alert in alerts if alert.open and alert.segment == segment]
        waiting.sort(key=lambda alert: (WORST.index(alert.severity), -alert.id))
        charts = [chart for chart in assessment.charts if chart.series.segment == segment]
        judged = max(0, max(len(chart.points) for chart in charts) - LEARNING_WEEKS)
        if waiting:
            worst = waiting[0]
            ids = tuple(alert.id for alert in waiting)
            made.append(SegmentVerdict(segment, worst.verdict, worst.words, worst.look_at, judged, ids))
        elif judged == 0:
            seen = max(len(chart.points) for chart in charts)
            words = f"still learning: {seen} of the {LEARNING_WEEKS} weeks that are needed before a judgement"
            made.append(SegmentVerdict(segment, STABLE, words, "", 0, ()))
        else:
            made.append(SegmentVerdict(segment, STABLE, MEANING[STABLE], "", judged, ()))
    return tuple(made)


def worst_verdict(verdicts: Sequence[SegmentVerdict]) -> Verdict:
    """Of all segments together."""
    return min((one.verdict for one in verdicts), key=lambda v: WORST.index(SEVERITY[v]), default=STABLE)
