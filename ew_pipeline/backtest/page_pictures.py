"""The pictures of an evaluation. Costs are ratios to doing nothing, drawn as a dashed line at 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ew_pipeline.backtest.measures import Measures
from ew_pipeline.backtest.parts import Part
from ew_pipeline.outputs.drawing import (
    ACCENT,
    FLAG,
    MUTED,
    SERIES,
    CalibrationTable,
    Plot,
    draw,
)
from ew_pipeline.outputs.report_plots import calibration_plot
from ew_pipeline.outputs.words import clean, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST = 1.6  # a policy that costs more is drawn at the edge; the table has its figure
LONGEST_NAME = 24
DRAWN_PARTS = 12


@dataclass(frozen=True)
class WeekPoint:
    """The cost of one policy in one week, with its interval over stores."""

    week: str
    ratio: float
    low: float
    high: float


def policies_picture(policies: Mapping[str, Measures], shown: str) -> Plot:
    """Every policy, the cheapest on top, with the interval over weeks (or stores)."""
    order = sorted(policies, key=lambda name: -policies[name].cost_ratio)

    def paint(axes: list[Axes]) -> None:
        axis = axes[0]
        for place, name in enumerate(order):
            m = policies[name]
            colour = FLAG if name == shown else ACCENT
            _whisker(axis, place, m.cost_ratio, *m.cost_ratio_interval, colour)
        axis.axvline(1.0, color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
        axis.set_yticks(range(len(order)), [clean(name)[:LONGEST_NAME] for name in order])
        axis.set_xlim(0, min(WIDEST, max(1.05, *(policies[name].cost_ratio for name in order))) + 0.03)
        axis.set_ylim(-0.6, len(order) - 0.4)
        axis.set_xlabel("cost, of doing nothing")
        axis.grid(axis="y", visible=False)

    best = order[-1]
    low, high = policies[shown].cost_ratio_interval
    words = (
        f"{clean(shown)} costs {policies[shown].cost_ratio:.3f} of doing nothing ({low:.3f} to {high:.3f}); "
        f"the cheapest of {plural(len(order), 'policy', 'policies')} is {clean(best)} with "
        f"{policies[best].cost_ratio:.3f}."
    )
    return draw("policies", "Cost of every policy", words, 0.9 + 0.24 * len(order), paint)


def weeks_picture(series: Mapping[str, Sequence[WeekPoint]], shown: str) -> Plot | None:
    """Cost by week; the interval of the policy in question as a band."""
    weeks = sorted({point.week for points in series.values() for point in points}, key=_in_time)
    if not weeks:
        return None
    place = {week: number for number, week in enumerate(weeks)}

    def paint(axes: list[Axes]) -> None:
        axis = axes[0]
        axis.axhline(1.0, color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
        others = iter((SERIES[0], SERIES[2], SERIES[3], SERIES[4]))
        for name, points in series.items():
            x = [place[point.week] for point in points]
            y = [min(point.ratio, WIDEST) for point in points]
            if name == shown:
                ends = [[min(point.low, WIDEST), min(point.high, WIDEST)] for point in points]
                low, high = np.array(ends).T
                axis.fill_between(x, low, high, color=FLAG, alpha=0.16, linewidth=0)
                axis.vlines(x, low, high, color=FLAG, linewidth=0.8, alpha=0.5)
                axis.plot(x, y, color=FLAG, marker="o", markersize=3.2, label=clean(name), zorder=5)
            else:
                axis.plot(
                    x, y, color=next(others), marker="o", markersize=2, linewidth=1.0, label=clean(name)
                )
        step = max(1, -(-len(weeks) // 6))
        ticks = list(range(len(weeks) - 1, -1, -step))[::-1]
        axis.set_xticks(ticks, [weeks[tick].removeprefix("20") for tick in ticks])
        axis.set_xlim(-0.6, len(weeks) - 0.4)
        axis.set_ylim(0, None)
        axis.set_ylabel("cost, of doing nothing")
        axis.grid(axis="x", visible=False)
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)

    own = [point.ratio for point in series[shown] if np.isfinite(point.ratio)]
    spread = f"{min(own):.2f} to {max(own):.2f}" if len(own) > 1 else f"{own[0]:.2f}" if own else "unknown"
    words = f"{plural(len(weeks), 'week')}: {spread} of doing nothing. Shaded: 90% over stores."
    return draw("weeks", "Cost by week", words, 3.3, paint)


def calibration_picture(measures: Measures) -> Plot:
    """Predicted against realised, in bins of equal width."""
    points = measures.calibration
    return calibration_plot(
        CalibrationTable(
            np.array([point.predicted for point in points]),
            np.array([point.realised for point in points]),
            np.array([point.pairs for point in points], dtype=np.int64),
        )
    )


def parts_picture(
    name: str, title: str, parts: Mapping[str, Sequence[tuple[str, Part]]], shown: str
) -> Plot | None:
    """The same parts of the pairs for a few policies: a dot each, the policy in question largest."""
    own = list(parts[shown])[:DRAWN_PARTS]
    if len(own) < 2:
        return None
    labels = [label for label, _ in own]
    others = [other for other in parts if other != shown]

    def paint(axes: list[Axes]) -> None:
        axis = axes[0]
        rows = {label: len(labels) - 1 - place for place, label in enumerate(labels)}
        for colour, other in zip((SERIES[0], SERIES[2], SERIES[3]), others, strict=False):
            known = [(part, label) for label, part in parts[other] if label in rows]
            _dots(axis, [(part, rows[label]) for part, label in known], colour, 3.5, clean(other))
        _dots(axis, [(part, rows[label]) for label, part in own], FLAG, 6.0, clean(shown))
        axis.axvline(1.0, color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
        axis.set_yticks(list(rows.values()), [clean(label)[:LONGEST_NAME] for label in rows])
        axis.set_ylim(-0.6, len(labels) - 0.4)
        axis.set_xlim(0, None)
        axis.set_xlabel("cost, of doing nothing")
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)

    shares = ", ".join(f"{clean(label)}: {part.cost_ratio:.2f}" for label, part in own[:6])
    hidden = len(parts[shown]) - len(own)
    words = f"{clean(shown)}, {shares}." + (f" {hidden} more in the table." if hidden else "")
    return draw(name, title, words, 1.3 + 0.28 * len(labels), paint)


def lift_picture(policies: Mapping[str, Measures], shown: str) -> Plot:
    """How many times more anomalies than a random walk finds, by shelves checked per store."""

    def paint(axes: list[Axes]) -> None:
        axis = axes[0]
        tops = list(policies[shown].lift_at)
        others = iter((SERIES[0], SERIES[2], SERIES[3], SERIES[4]))
        for name, m in policies.items():
            own = name == shown
            axis.plot(
                range(len(tops)),
                [m.lift_at[top] for top in tops],
                color=FLAG if own else next(others),
                marker="o",
                markersize=4 if own else 2.5,
                linewidth=1.6 if own else 1.0,
                label=clean(name),
            )
        axis.axhline(1.0, color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
        axis.set_xticks(range(len(tops)), tops)
        axis.set_ylim(0, None)
        axis.set_xlabel("shelves checked per store and week")
        axis.set_ylabel("times a random walk")
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8.5)

    lift = policies[shown].lift_at
    said = ", ".join(f"{value:.1f} times among the first {top}" for top, value in lift.items())
    return draw("lift", "Lift over random", f"{clean(shown)} finds {said}.", 3.1, paint)


def _whisker(axis: Axes, place: int, value: float, low: float, high: float, colour: str) -> None:
    if np.isfinite(low):
        axis.hlines(place, min(low, WIDEST), min(high, WIDEST), color=colour, linewidth=1.4, alpha=0.6)
    beyond = value > WIDEST
    axis.plot(min(value, WIDEST), place, ">" if beyond else "o", color=colour, markersize=5)


def _dots(axis: Axes, dots: Sequence[tuple[Part, int]], colour: str, size: float, label: str) -> None:
    x = [min(part.cost_ratio, WIDEST) for part, _ in dots]
    axis.plot(x, [row for _, row in dots], "o", color=colour, markersize=size, alpha=0.9, label=label)


def _in_time(week: str) -> tuple[int, str]:
    """ISO weeks sort as text; weeks that are whole numbers as numbers."""
    return (int(week), "") if week.isdigit() else (0, week)
