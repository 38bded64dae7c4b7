"""The chart page: one file, no network, every name escaped. And the same as Markdown, for Prefect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from ew_pipeline._version import __version__
from ew_pipeline.core.week import Week
from ew_pipeline.drift.alerts import Alert, Growth, SegmentVerdict, worst_verdict
from ew_pipeline.drift.series import RATE
from ew_pipeline.drift.verdicts import STABLE, Assessment, Chart, Event, value_text
from ew_pipeline.outputs.drawing import (
    ACCENT,
    FLAG,
    MUTED,
    SERIES,
    Plot,
    draw,
)
from ew_pipeline.outputs.page import page_environment, page_style, write_page_file
from ew_pipeline.outputs.words import clean, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ew_pipeline.drift.run import DriftReport


DRAWN_WEEKS = 104
SPARK_WIDTH, SPARK_HEIGHT = 220, 28
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


def theta_picture(charts: Sequence[Chart], events: Sequence[Event], name: str) -> Plot | None:
    """p_A and alpha with their intervals, the level they are compared with, and the changes found."""
    chosen = [chart for chart in charts if chart.group == "anomaly"]
    return _panels(chosen, events, f"{name}-theta", "Anomaly parameters", 1.9)


def statistic_picture(charts: Sequence[Chart], name: str) -> Plot | None:
    """Every chart's statistic against the limit; beyond it is an alarm."""
    drawn = [c for c in charts if c.series.kind.alarms and any(p.statistic is not None for p in c.points)]
    if not drawn:
        return None
    limit = next(p.limit for c in drawn for p in c.points if p.limit is not None)
    weeks = drawn[0].series.weeks[-DRAWN_WEEKS:]

    def paint(axes: list[Axes]) -> None:
        axis = axes[0]
        labelled: set[str] = set()
        for chart in drawn:
            x = [week.index for week in chart.series.weeks[-DRAWN_WEEKS:]]
            y = [math.nan if p.statistic is None else p.statistic for p in chart.points[-DRAWN_WEEKS:]]
            label, look = _look(chart)
            axis.plot(x, y, label=None if label in labelled else label, **look)
            labelled.add(label)
        for side in (-limit, limit):
            axis.axhline(side, color=FLAG, linewidth=1.0, linestyle=(0, (3, 3)))
        axis.axhline(0.0, color=MUTED, linewidth=0.7)
        axis.set_ylabel("change, weighted mean of scores")
        axis.legend(loc="upper left", fontsize=8, ncols=2)
        _ticks(axis, weeks)

    last = [(abs(c.points[-1].statistic or 0.0), c.series.kind.title) for c in drawn]
    size, which = max(last)
    words = f"Limit {limit:.2f}. In the last week the largest change is {size:.2f}, of {which}."
    return draw(f"{name}-statistic", "Control chart", words, 2.9, paint)


def spark_line(chart: Chart, events: Sequence[Event]) -> str:
    """The series over its weeks in one line of text: alarms as points, changes as dashed lines."""
    weeks = chart.series.weeks[-DRAWN_WEEKS:]
    values = [point.value for point in chart.series.points[-DRAWN_WEEKS:]]
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    room = (high - low) or 1.0
    step = (SPARK_WIDTH - 6) / max(len(values) - 1, 1)
    x = [3 + place * step for place in range(len(values))]
    y = [
        SPARK_HEIGHT / 2 if high == low else SPARK_HEIGHT - 4 - (v - low) / room * (SPARK_HEIGHT - 8)
        for v in values
    ]
    places = [place for place, value in enumerate(values) if math.isfinite(value)]
    line = " ".join(f"{x[place]:.1f},{y[place]:.1f}" for place in places)
    states = [point.state for point in chart.points[-DRAWN_WEEKS:]]
    dots = "".join(
        f'<circle cx="{x[p]:.1f}" cy="{y[p]:.1f}" r="2.6" fill="var(--flag)"/>'
        for p in places
        if states[p] == "alarm"
    )
    begun = [weeks.index(event.since) for event in events if event.since in weeks]
    marks = "".join(
        f'<path d="M{x[p] - step / 2:.1f} 0V{SPARK_HEIGHT}" stroke="var(--flag)" stroke-dasharray="2 2"/>'
        for p in begun
    )
    return (
        f'<svg width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}" aria-hidden="true">{marks}'
        f'<polyline points="{line}" fill="none" stroke="var(--accent)" stroke-width="1.3"/>{dots}</svg>'
    )


def _look(chart: Chart) -> tuple[str, dict[str, Any]]:
    """Theta stands out; the others are many, and share a line style by group."""
    if chart.group == "anomaly":
        dashes = "-" if chart.series.kind.name == RATE else (0, (4, 2))
        return chart.series.kind.title, {"color": ACCENT, "linestyle": dashes}
    colour = SERIES[2] if chart.group == "dispersion" else MUTED
    return chart.group, {"color": colour, "linewidth": 0.9, "alpha": 0.8}


def _panels(
    charts: Sequence[Chart], events: Sequence[Event], name: str, title: str, height: float
) -> Plot | None:
    if not charts:
        return None
    weeks = charts[0].series.weeks[-DRAWN_WEEKS:]

    def paint(axes: list[Axes]) -> None:
        for axis, chart in zip(axes, charts, strict=True):
            _panel(axis, chart)
            for event in events:
                if event.week >= weeks[0]:
                    axis.axvline(event.since.index - 0.5, color=FLAG, linewidth=0.9, linestyle=(0, (2, 2)))
        _ticks(axes[-1], weeks)

    last = ", ".join(
        f"{c.series.kind.title} {value_text(c.series.kind, c.series.points[-1].value)}" for c in charts
    )
    words = f"{plural(len(weeks), 'week')}; last: {last}."
    return draw(name, title, words, 0.5 + height * len(charts), paint, panels=len(charts))


def _panel(axis: Axes, chart: Chart) -> None:
    kind, points = chart.series.kind, chart.series.points[-DRAWN_WEEKS:]
    x = np.array([week.index for week in chart.series.weeks[-DRAWN_WEEKS:]])
    y = np.array([point.value for point in points])
    low, high = np.array([p.low for p in points]), np.array([p.high for p in points])
    if np.isfinite(low).any():
        axis.fill_between(x, low, high, color=ACCENT, alpha=0.15, linewidth=0)
    axis.plot(x, y, color=ACCENT, marker="o", markersize=2.6, linewidth=1.2)
    alarm = np.array([point.state == "alarm" for point in chart.points[-DRAWN_WEEKS:]])
    axis.plot(x[alarm], y[alarm], "o", color=FLAG, markersize=5.5)
    unsaid = np.array([not math.isfinite(point.given) for point in points]) & np.isfinite(y)
    axis.plot(x[unsaid], y[unsaid], "o", color=ACCENT, markersize=3.4, markerfacecolor="none")
    axis.set_title(clean(kind.title), loc="left", fontsize=8, color=MUTED)
    axis.yaxis.set_major_formatter(lambda value, _: value_text(kind, value))
    axis.locator_params(axis="y", nbins=4)
    axis.grid(axis="x", visible=False)


def _ticks(axis: Axes, weeks: Sequence[Week]) -> None:
    step = max(1, -(-len(weeks) // 6))
    shown = list(weeks[::-1][::step])[::-1]
    axis.set_xticks([week.index for week in shown], [str(week)[2:] for week in shown])
    axis.set_xlim(weeks[0].index - 0.6, weeks[-1].index + 0.6)


def drift_markdown(report: DriftReport) -> str:
    """The verdict of every segment, and the newest point of every series."""
    lines = [f"# Drift, {report.assessment.weeks[-1]}: {report.verdict}", ""]
    lines += [f"- **{_plain(one.segment)}**: {one.verdict}. {_plain(one.words)}" for one in report.verdicts]
    lines += [
        "",
        "| segment | series | value | 90% interval | statistic | state |",
        "|---|---|---|---|---|---|",
    ]
    for chart in report.assessment.charts:
        row = last_week(chart)
        cells = (row["segment"], row["title"], row["value"], row["interval"], row["statistic"], row["state"])
        lines.append("| " + " | ".join(_plain(cell) for cell in cells) + " |")
    return "\n".join(lines)


def alert_markdown(alert: Alert, found: Sequence[Growth]) -> str:
    """An alert, where to look, and the stores and SKUs whose flags grew most since."""
    lines = [f"# Alert {alert.id}: {alert.verdict}", "", _plain(alert.words), ""]
    if alert.look_at:
        lines += [f"Look at: {alert.look_at}.", ""]
    if found:
        lines += ["| | flags a week before | since |", "|---|---|---|"]
        lines += [f"| {g.what} {_plain(g.id)} | {g.before:.1f} | {g.after:.1f} |" for g in found]
    else:
        lines.append("No store or SKU has more flags a week than before.")
    lines += ["", f'When you know why: `ew drift --acknowledge {alert.id} --why "…"`']
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A name cannot break the table it stands in."""
    return text.replace("|", "\\|").replace("\n", " ")
