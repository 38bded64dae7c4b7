"""From charts to verdicts: which charts moved together, what that is called, and its words.

theta is estimated on what was observed, so it may move although the anomalies did not. A change of theta is
put down to another series that changed at the same time, up to what such a change has been seen to do to
theta (``series.Kind.explains``); what goes beyond is drift of the anomalies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pandas as pd

from ew_pipeline.core.week import Week
from ew_pipeline.drift.chart import CLIP, LEARNING_WEEKS, ChartPoint, control_limit, run_chart
from ew_pipeline.drift.series import ALPHA, BY_NAME, Group, Kind, Series, build_series

Verdict = Literal["stable", "anomaly drift", "composition change", "overdispersion change"]
STABLE: Verdict = "stable"
ANOMALY_DRIFT: Verdict = "anomaly drift"
COMPOSITION: Verdict = "composition change"
OVERDISPERSION: Verdict = "overdispersion change"

TOGETHER = 2  # weeks that two changes may begin apart and be one
MOVED = 3.0  # mean score since the change, in its standard deviations: the series moved as well
SURE = 3.0  # standard errors by which theta must pass what the other changes explain
ALPHA_REACH = 3.0  # alpha is that much looser than p_A on the scale of log odds
# The limit is set for three times the asked number of weeks. One factor of two keeps the number of false
# alarms under the asked one over a year or ten, not only on average; the rest pays for what the calculation
# leaves out (spread learnt from few weeks, weeks that wait while they are suspect).
MARGIN = 3.0
MEANING: dict[Verdict, str] = {
    STABLE: "the anomaly parameters are as they were",
    ANOMALY_DRIFT: "the anomalies themselves changed",
    COMPOSITION: "what the model sees changed, not the anomalies",
    OVERDISPERSION: "healthy sales scatter differently, so theta before and after is not comparable",
}
SEVERITY: dict[Verdict, str] = {
    STABLE: "none",
    ANOMALY_DRIFT: "high",
    OVERDISPERSION: "medium",
    COMPOSITION: "low",
}


@dataclass(frozen=True, eq=False)
class Chart:
    """A series with its points on the chart."""

    series: Series
    points: tuple[ChartPoint, ...]

    @property
    def group(self) -> Group:
        return self.series.kind.group


@dataclass(frozen=True)
class Moved:
    """A series that changed: from the level before to the mean of the weeks since, on its own scale."""

    series: str
    title: str
    before: float
    after: float
    alarmed: bool


@dataclass(frozen=True)
class Event:
    """A lasting change of one segment. ``week``: when it was seen; ``since``: when it began."""

    segment: str
    verdict: Verdict
    week: Week
    since: Week
    publication_id: int
    moved: tuple[Moved, ...]


def find_events(charts: Sequence[Chart]) -> tuple[Event, ...]:
    """All lasting changes, oldest first; alarms of one segment that belong together are one event."""
    events: list[Event] = []
    for segment in dict.fromkeys(chart.series.segment for chart in charts):
        own = [chart for chart in charts if chart.series.segment == segment]
        events += _of_segment(own)
    return tuple(sorted(events, key=lambda event: (event.week, event.segment)))


def _of_segment(charts: Sequence[Chart]) -> list[Event]:
    """The charts of a segment share their weeks."""
    found: list[Event] = []
    for place in range(len(charts[0].points)):
        alarmed = [chart for chart in charts if chart.points[place].state == "alarm"]
        if not alarmed:
            continue
        since = min(_since(chart, place) for chart in alarmed)
        event = _name(charts, alarmed, since, place)
        last = found[-1] if found else None
        if last is not None and _continues(last, event):
            found[-1] = replace(last, moved=_joined(last.moved, event.moved))
        else:
            found.append(event)
    return found


def _continues(last: Event, event: Event) -> bool:
    """Whether an alarm tells more of a change that is known already."""
    near = event.week.index - last.week.index <= LEARNING_WEEKS
    begun = event.since.index - last.week.index <= TOGETHER
    # Anomalies move the scatter a little: what is seen of it after them is theirs.
    follows = event.verdict == last.verdict or (last.verdict, event.verdict) == (
        ANOMALY_DRIFT,
        OVERDISPERSION,
    )
    return near and begun and follows


def _name(charts: Sequence[Chart], alarmed: Sequence[Chart], since: int, place: int) -> Event:
    others = [c for c in charts if c.group in ("composition", "dispersion") and _moved(c, since, place)]
    theta = [c for c in alarmed if c.group == "anomaly"]
    if theta and any(_beyond(c, others, since, place) for c in theta):
        verdict = ANOMALY_DRIFT
    elif any(c.group == "composition" for c in others):
        verdict = COMPOSITION
    else:
        verdict = OVERDISPERSION
    shown = [*theta, *others]
    series = charts[0].series
    return Event(
        segment=series.segment,
        verdict=verdict,
        week=series.weeks[place],
        since=series.weeks[since],
        publication_id=series.publications[place],
        moved=tuple(_describe(c, since, place) for c in shown),
    )


def _since(chart: Chart, place: int) -> int:
    since = chart.points[place].since
    return place if since is None else since


def _moved(chart: Chart, since: int, place: int) -> bool:
    """An alarm at about the same time, or scores since the change that chance does not give."""
    first = max(0, since - TOGETHER)
    if any(point.state == "alarm" for point in chart.points[first : place + 1]):
        return True
    scores = [p.score for p in chart.points[since : place + 1] if p.score is not None]
    return bool(scores) and abs(float(np.clip(scores, -CLIP, CLIP).sum())) / math.sqrt(len(scores)) > MOVED


def _beyond(chart: Chart, others: Sequence[Chart], since: int, place: int) -> bool:
    """Whether theta moved further than the other changes can have moved it."""
    if not others:
        return True
    reach = ALPHA_REACH if chart.series.kind.name == ALPHA else 1.0
    explained = reach * max(_explained(other, since, place) for other in others)
    shift, count = _shift(chart, since, place)
    spread = chart.points[place].spread or 0.0
    return shift - SURE * spread / math.sqrt(count) > explained


def _explained(other: Chart, since: int, place: int) -> float:
    """How far a change of this series may have moved the log odds of p_A. Scatter does so in proportion, and
    is itself moved a little by the anomalies."""
    kind = other.series.kind
    return kind.explains * _shift(other, since, place)[0] if kind.group == "dispersion" else kind.explains


def _shift(chart: Chart, since: int, place: int) -> tuple[float, int]:
    """(distance of the weeks since the change from the level before, how many they are)."""
    values = [p.given for p in chart.series.points[since : place + 1] if math.isfinite(p.given)]
    centre = next((p.centre for p in reversed(chart.points[: place + 1]) if p.centre is not None), None)
    if centre is None or not values:
        return 0.0, 1
    return abs(sum(values) / len(values) - centre), len(values)


def _describe(chart: Chart, since: int, place: int) -> Moved:
    """Level before and after, in the units of the series."""
    own = chart.series
    before = [p.value for p in own.points[max(0, since - LEARNING_WEEKS) : since] if math.isfinite(p.value)]
    after = [p.value for p in own.points[since : place + 1] if math.isfinite(p.value)]
    return Moved(
        series=own.kind.name,
        title=own.kind.title,
        before=float(np.median(before)) if before else math.nan,
        after=float(np.median(after)) if after else math.nan,
        alarmed=chart.points[place].state == "alarm",
    )


def _joined(first: Sequence[Moved], second: Sequence[Moved]) -> tuple[Moved, ...]:
    return tuple({one.series: one for one in (*second, *first)}.values())


@dataclass(frozen=True, eq=False)
class Assessment:
    """What the weeks say. ``limit``: of every statistic; ``alarming``: how many charts share the rate."""

    charts: tuple[Chart, ...]
    events: tuple[Event, ...]
    limit: float
    alarming: int
    weeks_between_alarms: float

    @property
    def weeks(self) -> tuple[Week, ...]:
        return tuple(sorted({week for chart in self.charts for week in chart.series.weeks}))

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chart.series.segment for chart in self.charts))


def assess(rows: pd.DataFrame, weeks_between_alarms: float = 52.0) -> Assessment:
    """Judge all weeks of ``rows`` (see ``series.build_series``)."""
    series = build_series(rows)
    alarming = sum(one.kind.alarms for one in series)
    limit = control_limit(MARGIN * weeks_between_alarms * max(alarming, 1))
    charts = tuple(Chart(one, _points(one, limit)) for one in series)
    return Assessment(charts, find_events(charts), limit, alarming, weeks_between_alarms)


def _points(series: Series, limit: float) -> tuple[ChartPoint, ...]:
    """One chart after the other where the method changed, and one beside the other for anomaly families."""
    edges = (0, *series.begins, len(series.points))
    points: list[ChartPoint] = []
    for first, last in pairwise(edges):
        points += _shifted(_piece(series, first, last, limit), first)
    return tuple(points)


def _piece(series: Series, first: int, last: int, limit: float) -> list[ChartPoint]:
    families = series.families[first:last] if series.families else ("",) * (last - first)
    points = [ChartPoint("missing")] * (last - first)
    for family in dict.fromkeys(families):
        own = [one == family for one in families]
        part = [
            point.given if mine else math.nan
            for point, mine in zip(series.points[first:last], own, strict=True)
        ]
        charted = run_chart(
            part,
            [point.error for point in series.points[first:last]],
            floor=series.kind.floor,
            limit=limit if series.kind.alarms else math.inf,
        )
        points = [new if mine else old for new, old, mine in zip(charted, points, own, strict=True)]
    return points


def _shifted(points: Sequence[ChartPoint], first: int) -> list[ChartPoint]:
    return [
        point if point.since is None else ChartPoint(**{**vars(point), "since": point.since + first})
        for point in points
    ]


def value_text(kind: Kind, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if kind.style == "percent":
        return f"{value:.2%}" if value < 0.1 else f"{value:.1%}"
    return f"{value:,.0f}" if kind.style == "whole" else f"{value:.3g}"


def moved_text(moved: Moved) -> str:
    kind = BY_NAME[moved.series]
    return f"{moved.title} {value_text(kind, moved.before)} -> {value_text(kind, moved.after)}"


def event_words(event: Event) -> str:
    """``anomaly drift in all since 2026-W30: records wrong (p_A) 4.0% -> 8.1%; the anomalies …``."""
    what = ", ".join(moved_text(one) for one in event.moved)
    return f"{event.verdict} in {event.segment} since {event.since}: {what}; {MEANING[event.verdict]}."


def look_at(event: Event) -> str:
    """Where to look, for the series that changed."""
    places = dict.fromkeys(BY_NAME[one.series].look_at for one in _leading(event.verdict, event.moved))
    return "; ".join(place for place in places if place)


def _leading(verdict: Verdict, moved: Sequence[Moved]) -> list[Moved]:
    group = {ANOMALY_DRIFT: "anomaly", COMPOSITION: "composition", OVERDISPERSION: "dispersion"}.get(verdict)
    return [one for one in moved if BY_NAME[one.series].group == group]
