"""The pictures of a week, from counts per bin: ten million pairs take no longer to draw than ten thousand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ew_pipeline.core.arrays import Bool, Float, Int64
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import PROBABILITY_BINS, ScoreTotals
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.infer.pricing import WRONG
from ew_pipeline.infer.theta import POOLED
from ew_pipeline.outputs.drawing import ACCENT, FLAG, INK, MUTED, SERIES, CalibrationTable, Plot, draw
from ew_pipeline.outputs.words import clean, count, plural, share
from ew_pipeline.results import WeekResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN_SEGMENTS = len(SERIES)
SERIES_WEEKS = 52
CELLS = 56  # of the density, along each axis
DENSITY_LEVELS = 5
MARKED_FLAGS = 500
HALF_WIDTH = 1.645  # of a 90% interval, in standard deviations
SHOWN_VALUES = 20
TICKS = (0, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


def make_plots(
    result: WeekResult,
    series: pd.DataFrame,
    calibration: CalibrationTable | None,
    calibration_of: str = "",
) -> dict[str, Plot]:
    """All pictures of the report by name, those with nothing to show left out."""
    found = (
        theta_plot(result, series),
        singular_values_plot(result.segments),
        rank_plot(result.segments),
        probability_plot(result.totals, result.pricing.chance.name),
        None if calibration is None else calibration_plot(calibration, calibration_of),
        sales_plot(result.totals, result.flags.head(MARKED_FLAGS)),
    )
    return {plot.name: plot for plot in found if plot is not None}


def theta_plot(result: WeekResult, series: pd.DataFrame) -> Plot:
    """How often records are wrong and how deep sales fall, by week, with 90% intervals."""
    points = theta_points(result, series)
    pooled = points[points["segment"] == POOLED]
    parts = [name for name in _largest(result.segments) if len(result.segments) > 1]
    weeks = sorted(points["index"].unique())
    main = INK if parts else ACCENT

    def paint(axes: list[Axes]) -> None:
        panels = (
            (axes[0], "anomaly_rate", "records wrong (p_A)"),
            (axes[1], "alpha", "sales left (alpha)"),
        )
        for axis, name, label in panels:
            for colour, part in zip(SERIES, parts, strict=False):
                own = points[points["segment"] == part]
                axis.plot(own["index"], own[name], color=colour, linewidth=1.0, marker="o", markersize=2.2)
            x, middle = pooled["index"].to_numpy(), pooled[name].to_numpy()
            low, high = pooled[f"{name}_low"].to_numpy(), pooled[f"{name}_high"].to_numpy()
            axis.fill_between(x, low, high, color=main, alpha=0.13, linewidth=0)
            axis.vlines(x, low, high, color=main, linewidth=1.0, alpha=0.5)
            axis.plot(x, middle, color=main, marker="o", markersize=4, label=POOLED)
            axis.set_ylim(0, max(float(np.nanmax(high)), float(points[name].max())) * 1.15 + 1e-6)
            axis.yaxis.set_major_formatter(lambda value, _: share(value) if value > 0 else "0")
            axis.set_ylabel(label)
            axis.grid(axis="x", visible=False)
        _week_ticks(axes[-1], weeks)
        if parts:
            for colour, part in zip(SERIES, parts, strict=False):
                axes[0].plot([], [], color=colour, label=clean(part)[:20])
            axes[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8.5)

    first, last = pooled.iloc[0], pooled.iloc[-1]
    words = (
        f"{plural(len(weeks), 'week')}. Records wrong {share(last['anomaly_rate'])}, first "
        f"{share(first['anomaly_rate'])}; sales left {share(last['alpha'])}, first {share(first['alpha'])}."
    )
    return draw("theta", "Theta over the weeks", words, 4.1, paint, panels=2)


def theta_points(result: WeekResult, series: pd.DataFrame) -> pd.DataFrame:
    """The past weeks of ``series`` and the week itself, by ascending week, with the week's index."""
    thetas = {segment.name: segment.theta for segment in result.segments} | {POOLED: result.pooled}
    now = pd.DataFrame(
        {
            "week": str(result.week),
            "segment": list(thetas),
            "alpha": [theta.alpha for theta in thetas.values()],
            "alpha_low": [theta.alpha_interval[0] for theta in thetas.values()],
            "alpha_high": [theta.alpha_interval[1] for theta in thetas.values()],
            "anomaly_rate": [theta.anomaly_rate for theta in thetas.values()],
            "anomaly_rate_low": [theta.anomaly_rate_interval[0] for theta in thetas.values()],
            "anomaly_rate_high": [theta.anomaly_rate_interval[1] for theta in thetas.values()],
        }
    )
    past = series[series["week"].astype(str) < str(result.week)] if len(series) else series
    points = pd.concat([past[list(now.columns)], now], ignore_index=True) if len(past) else now
    points["index"] = [Week.parse(str(week)).index for week in points["week"]]
    recent = points[points["index"] > result.week.index - SERIES_WEEKS]
    return recent.sort_values(["segment", "index"], kind="stable", ignore_index=True)


def singular_values_plot(segments: Sequence[SegmentResult]) -> Plot | None:
    """Singular values of the fitted rates, as a share of the largest."""
    drawn = [s for s in _chosen(segments) if s.singular_values and max(s.singular_values) > 0]
    if not drawn:
        return None

    def paint(axes: list[Axes]) -> None:
        for colour, segment in zip(_colours(drawn), drawn, strict=True):
            values = np.array(segment.singular_values[:SHOWN_VALUES])
            place = np.arange(1, values.size + 1)
            label = clean(segment.name)[:20]
            axes[0].plot(place, values / values.max(), color=colour, marker="o", markersize=4, label=label)
        axes[0].set_yscale("log")
        axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes[0].yaxis.set_minor_formatter(lambda value, _: "")
        axes[0].set_ylabel("of the largest")
        axes[0].set_xlabel("singular value")
        _whole_ticks(axes[0], min(SHOWN_VALUES, max(len(s.singular_values) for s in drawn)))
        _legend(axes[0], drawn)

    first = drawn[0]
    shares = ", ".join(share(value / max(first.singular_values)) for value in first.singular_values[:6])
    name = f"{clean(first.name)}: " if len(drawn) > 1 else ""
    words = f"{name}{shares} of the largest." + _others(segments, drawn)
    return draw("singular-values", "Singular values", words, 2.9, paint)


def rank_plot(segments: Sequence[SegmentResult]) -> Plot | None:
    """How well each rank predicts sales it has not seen, against the best; the chosen one is ringed."""
    drawn = [s for s in _chosen(segments) if max(len(s.rank_curve), len(s.held_out_curve)) > 1]
    if not drawn:
        return None

    def paint(axes: list[Axes]) -> None:
        for colour, segment in zip(_colours(drawn), drawn, strict=True):
            label: str | None = clean(segment.name)[:20]
            for curve, line in ((segment.rank_curve, "-"), (segment.held_out_curve, "--")):
                if not curve:
                    continue
                ranks, scores = (np.array(values) for values in zip(*curve, strict=True))
                gap, at = scores - scores.max(), ranks == segment.rank
                axes[0].plot(ranks, gap, line, color=colour, marker="o", markersize=4, label=label)
                axes[0].plot(
                    ranks[at], gap[at], "o", markersize=10, markerfacecolor="none", markeredgecolor=colour
                )
                label = None  # one name for both curves
        axes[0].set_ylabel("log score per pair, to the best")
        axes[0].set_xlabel("rank")
        _whole_ticks(axes[0], max(rank for s in drawn for rank, _ in (*s.rank_curve, *s.held_out_curve)))
        _legend(axes[0], drawn)

    chosen = ", ".join(f"{clean(s.name)} {s.rank}" for s in drawn) if len(drawn) > 1 else str(drawn[0].rank)
    words = f"Chosen rank, ringed: {chosen}."
    if any(s.held_out_curve for s in drawn):
        words += " Dashed: on pairs held out, which decides where sales are sparse or overdispersed."
    return draw("rank", "Predictive score by rank", words + _others(segments, drawn), 2.9, paint)


def calibration_plot(table: CalibrationTable, of: str = "") -> Plot:
    """Predicted against realised share of wrong records; on the diagonal both agree. ``of``: which weeks."""

    def paint(axes: list[Axes]) -> None:
        axes[0].plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
        found = table.realised_share
        reach = HALF_WIDTH * np.sqrt(np.maximum(found * (1 - found), 0.25 / table.count) / table.count)
        low, high = np.maximum(found - reach, 0), np.minimum(found + reach, 1)
        axes[0].vlines(table.mean_predicted, low, high, color=ACCENT, linewidth=1.0, alpha=0.6)
        axes[0].plot(table.mean_predicted, found, color=ACCENT, marker="o", markersize=4)
        for axis in (axes[0].xaxis, axes[0].yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes[0].set_xlabel("predicted")
        axes[0].set_ylabel("found wrong")

    words = (
        f"{of}{': ' if of else ''}{count(int(table.count.sum()))} pairs with labels; "
        f"largest gap between predicted and found {share(table.largest_gap)}."
    )
    return draw("calibration", "Calibration", words, 3.1, paint)


def probability_plot(totals: ScoreTotals, name: str = WRONG.name) -> Plot | None:
    """How many pairs have which probability; flagged ones stand out."""
    if not totals.pairs:
        return None
    every, chosen = totals.by_probability, totals.flagged_by_probability
    left = np.arange(PROBABILITY_BINS) / PROBABILITY_BINS

    def paint(axes: list[Axes]) -> None:
        width = 0.86 / PROBABILITY_BINS
        axes[0].bar(left, every, width, color=ACCENT, alpha=0.35, align="edge", label="all scored pairs")
        axes[0].bar(left, chosen, width, color=FLAG, align="edge", label="to check")
        axes[0].set_yscale("log")
        axes[0].set_ylim(0.7, None)
        axes[0].yaxis.set_major_formatter(lambda value, _: count(value) if value >= 1 else "")
        axes[0].yaxis.set_minor_formatter(lambda value, _: "")
        axes[0].xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes[0].set_xlabel(name)
        axes[0].set_ylabel("pairs")
        axes[0].grid(axis="x", visible=False)
        axes[0].legend(loc="upper right", fontsize=8.5)

    above = int(every[PROBABILITY_BINS // 2 :].sum())
    words = f"{count(above)} of {count(totals.pairs)} pairs have a probability above 50%."
    return draw("probability", "How sure the model is", words, 3.1, paint)


def sales_plot(totals: ScoreTotals, strongest: pd.DataFrame) -> Plot | None:
    """Sold against expected of every scored pair as a density, the strongest flags as points."""
    if not totals.pairs:
        return None
    x, y = _log_sales(totals.sample)
    marked_x, marked_y = _log_sales(strongest)
    top = max(float(values.max(initial=1.0)) for values in (x, y, marked_x, marked_y)) * 1.02
    density = _density(x, y, top)

    def paint(axes: list[Axes]) -> None:
        axis = axes[0]
        for level in range(1, DENSITY_LEVELS + 1):
            _cells(axis, density == level, top, 0.08 + 0.8 * (level / DENSITY_LEVELS) ** 1.5)
        axis.plot([0, top], [0, top], color=MUTED, linewidth=0.9, linestyle=(0, (3, 3)))
        axis.plot(marked_x, marked_y, "o", color=FLAG, markersize=2.6, alpha=0.85, label="to check")
        axis.set_xlim(0, top)
        axis.set_ylim(-0.04 * top, top)
        ticks = [tick for tick in TICKS if np.log1p(tick) <= top]
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_ticks(np.log1p(ticks), [count(tick) for tick in ticks])
        axis.set_xlabel("expected, if healthy")
        axis.set_ylabel("sold")
        axis.tick_params(labelcolor=MUTED)
        if marked_x.size:
            axis.legend(loc="upper left", fontsize=8.5, labelcolor=INK)

    shown = (
        ""
        if marked_x.size == totals.flagged
        else f", of which the {count(marked_x.size)} that save most are marked"
    )
    words = f"{count(totals.pairs)} scored pairs, shaded by number; {count(totals.flagged)} to check{shown}."
    return draw("sales", "Sold against expected", words, 4.1, paint)


def _log_sales(scores: pd.DataFrame) -> tuple[Float, Float]:
    """log(1 + expected) and log(1 + sold): zero has a place beside the large ones."""
    expected = np.maximum(scores["expected_units"].to_numpy(dtype=np.float64), 0.0)
    return np.log1p(expected), np.log1p(scores["units"].to_numpy(dtype=np.float64))


def _density(x: Float, y: Float, top: float) -> Int64:
    """Cells of a grid by how many pairs they hold, on a logarithmic scale from 0 (none) to DENSITY_LEVELS."""
    column = np.minimum((x * (CELLS / top)).astype(np.int64), CELLS - 1)
    # Zero lies in the middle of its row.
    row = np.minimum((y * (CELLS / top) + 0.5).astype(np.int64), CELLS - 1)
    filled = np.bincount(row * CELLS + column, minlength=CELLS * CELLS).reshape(CELLS, CELLS)
    height = np.log1p(filled) / np.log1p(filled.max())
    return np.asarray(np.ceil(height * DENSITY_LEVELS), dtype=np.int64)


def _cells(axis: Axes, chosen: Bool, top: float, alpha: float) -> None:
    """All chosen cells as one path: a few kilobytes, and sharp at any size."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rows, columns = np.nonzero(chosen)
    if rows.size == 0:
        return
    corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]) - (0, 0.5)
    boxes = (np.stack([columns, rows], axis=1)[:, None, :] + corners) * (top / CELLS)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * rows.size
    axis.add_patch(PathPatch(Path(boxes.reshape(-1, 2), codes), facecolor=ACCENT, alpha=alpha, linewidth=0))


def _largest(segments: Sequence[SegmentResult]) -> list[str]:
    return [segment.name for segment in _chosen(segments)]


def _chosen(segments: Sequence[SegmentResult]) -> list[SegmentResult]:
    return sorted(segments, key=lambda segment: (-segment.pairs, segment.name))[:DRAWN_SEGMENTS]


def _colours(drawn: Sequence[SegmentResult]) -> Sequence[str]:
    return (ACCENT,) if len(drawn) == 1 else SERIES[: len(drawn)]


def _others(segments: Sequence[SegmentResult], drawn: Sequence[SegmentResult]) -> str:
    left = len(segments) - len(drawn)
    return f" {plural(left, 'other segment')} not drawn." if left else ""


def _legend(axis: Axes, drawn: Sequence[SegmentResult]) -> None:
    if len(drawn) > 1:
        axis.legend(fontsize=8.5)


def _whole_ticks(axis: Axes, last: int) -> None:
    step = max(1, -(-last // 10))
    axis.set_xticks(range(step if step > 1 else 1, last + 1, step))


def _week_ticks(axis: Axes, weeks: Sequence[int]) -> None:
    step = max(1, -(-len(weeks) // 6))
    shown = list(weeks[::-1][::step])[::-1]
    axis.set_xticks(shown, [str(Week.at(int(week)))[2:] for week in shown])
    axis.set_xlim(weeks[0] - 0.6, weeks[-1] + 0.6)
