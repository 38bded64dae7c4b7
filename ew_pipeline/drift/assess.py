"""The whole judgement: series in, charts and events out. Pure: the same weeks give the same verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from ew_pipeline.core.week import Week
from ew_pipeline.drift.attribute import Chart, Event, find_events
from ew_pipeline.drift.chart import ChartPoint, run_chart
from ew_pipeline.drift.limits import control_limit
from ew_pipeline.drift.series import Series, build_series

# The limit is set for three times the asked number of weeks. One factor of two keeps the number of false
# alarms under the asked one over a year or ten, not only on average; the rest pays for what the calculation
# leaves out (spread learnt from few weeks, weeks that wait while they are suspect).
MARGIN = 3.0


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
