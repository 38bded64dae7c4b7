"""The chart page: one file, no network, every name escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ew_pipeline._version import __version__
from ew_pipeline.drift.alerts import Alert
from ew_pipeline.drift.assess import Assessment
from ew_pipeline.drift.attribute import STABLE, Chart
from ew_pipeline.drift.pictures import spark_line, statistic_picture, theta_picture
from ew_pipeline.drift.standing import SegmentVerdict, worst_verdict
from ew_pipeline.drift.words import value_text
from ew_pipeline.outputs.drawing import Plot
from ew_pipeline.outputs.page import page_environment, page_style, write_page_file
from ew_pipeline.outputs.words import clean

PAGE = "drift.html"
DRAWN_SEGMENTS = 6


def write_page(
    assessment: Assessment, verdicts: Sequence[SegmentVerdict], alerts: Sequence[Alert], path: Path
) -> Path:
    """Write the page."""
    return write_page_file(path, render_page(assessment, verdicts, alerts))


def render_page(assessment: Assessment, verdicts: Sequence[SegmentVerdict], alerts: Sequence[Alert]) -> str:
    """Segments with open alerts are drawn first; of the stable ones as many as have room."""
    order = sorted(verdicts, key=lambda one: one.verdict == STABLE)
    drawn = [one.segment for one in order][:DRAWN_SEGMENTS]
    return (
        page_environment("ew_pipeline.drift")
        .get_template("drift.html.jinja")
        .render(
            verdict=worst_verdict(verdicts),
            verdicts=verdicts,
            open=[alert for alert in alerts if alert.open],
            alerts=list(reversed(alerts)),
            parts=[_part(assessment, name, number) for number, name in enumerate(drawn)],
            left_out=len(verdicts) - len(drawn),
            weeks=len(assessment.weeks),
            last=str(assessment.weeks[-1]),
            limit=f"{assessment.limit:.2f}",
            rate=f"{assessment.weeks_between_alarms:g}",
            charts=assessment.alarming,
            style=page_style(),
            version=__version__,
        )
    )


def _part(assessment: Assessment, segment: str, number: int) -> dict[str, Any]:
    charts = [chart for chart in assessment.charts if chart.series.segment == segment]
    events = [event for event in assessment.events if event.segment == segment]
    name = f"s{number}"
    plots = (
        theta_picture(charts, events, name),
        statistic_picture(charts, name),
    )
    return {
        "segment": clean(segment),
        "plots": [_shown(plot) for plot in plots if plot is not None],
        "rows": [{**last_week(chart), "line": Markup(spark_line(chart, events))} for chart in charts],
    }


def last_week(chart: Chart) -> dict[str, str]:
    """The newest point of a series as text."""
    kind, kept, point = chart.series.kind, chart.series.points[-1], chart.points[-1]
    interval = (
        f"{value_text(kind, kept.low)} – {value_text(kind, kept.high)}" if math.isfinite(kept.low) else ""
    )
    unsaid = point.state == "missing" and math.isfinite(kept.value)
    return {
        "segment": chart.series.segment,
        "title": kind.title,
        "value": value_text(kind, kept.value),
        "interval": interval,
        "statistic": "" if point.statistic is None else f"{round(point.statistic, 2) + 0.0:+.2f}",
        "state": "not identified" if unsaid else point.state,
    }


def _shown(plot: Plot) -> dict[str, Any]:
    return {"title": plot.title, "svg": Markup(plot.svg), "description": plot.description}
