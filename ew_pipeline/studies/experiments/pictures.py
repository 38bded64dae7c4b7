"""Pictures of the studies, as PNG files.

matplotlib is slow to load and writes to the home folder when it is: it is imported when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ew_pipeline.studies.experiments.instance import IDEAL, IGNORE, ONE_SIDED
from ew_pipeline.studies.experiments.record import ROC_GRID, Record
from ew_pipeline.studies.experiments.summary import CalibrationRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ew_pipeline.studies.experiments.limits import Limits

DOTS_PER_INCH = 100  # a picture stays below 60 kB, small enough to be kept beside a page
PANEL = (5.2, 4.0)
PALETTE = 256
SMALL_PANEL = (2.1, 2.2)


@contextmanager
def _figure(
    path: Path, panels: int, rows: int = 1, panel: tuple[float, float] = PANEL
) -> Iterator[list[Axes]]:
    """A figure without pyplot: no global state, no display. The panels come row by row."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    with mpl.rc_context({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9}):
        figure = Figure(figsize=(panel[0] * panels, panel[1] * rows), dpi=DOTS_PER_INCH, layout="constrained")
        FigureCanvasAgg(figure)
        yield list(figure.subplots(rows, panels, squeeze=False).ravel())
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = BytesIO()
        figure.savefig(drawn)
        # Few colours are used: a palette makes the file a third as large.
        picture = Image.open(drawn).convert("RGB")
        # The octree keeps the colours of thin lines apart; the default merges them.
        picture.quantize(PALETTE, Image.Quantize.FASTOCTREE).save(path, "PNG", optimize=True)


def save_table1(records: Sequence[Record], calibration: Sequence[CalibrationRow], path: Path) -> None:
    """Left: the share of instances with at most that regret, by method. Right: calibration of the default."""
    by_method: dict[str, list[float]] = {}
    for record in records:
        by_method.setdefault(record.method, []).append(record.regret)
    with _figure(path, 2) as (left, right):
        for method, regrets in by_method.items():
            values = np.sort(regrets)
            share = np.arange(1, values.size + 1) / values.size
            left.step(values, share, where="post", label=method, **_style(method, list(by_method)))
        left.set_xscale("symlog", linthresh=0.01)
        left.set_xlabel("regret")
        left.set_ylabel("share of instances")
        left.legend(loc="upper left", fontsize=7)
        right.plot([0, 1], [0, 1], color="grey", linewidth=1)
        right.plot([row.predicted for row in calibration], [row.realised for row in calibration], "o-")
        right.set_xlabel("predicted P(anomaly), by decile")
        right.set_ylabel("realised share of anomalies")


def _style(method: str, methods: Sequence[str]) -> dict[str, Any]:
    """One colour a method; its one-sided variant is dashed in the same, flagging nothing dotted in grey."""
    if method == IGNORE:
        return {"color": "grey", "linestyle": ":"}
    base = method.removesuffix(ONE_SIDED)
    bases = list(dict.fromkeys(name.removesuffix(ONE_SIDED) for name in methods))
    return {"color": f"C{bases.index(base)}", "linestyle": "-" if base == method else "--"}


def save_regret(regrets: Mapping[int, Sequence[float]], slope: float | None, path: Path) -> None:
    """Regret against n, both on logarithmic axes, with the fitted line and the paper's 1/sqrt(n)."""
    sizes = np.array(sorted(regrets), dtype=np.float64)
    means = np.array([np.mean(regrets[int(n)]) for n in sizes])
    with _figure(path, 1) as (axes,):
        for n in sizes:
            own = np.asarray(regrets[int(n)])
            axes.plot(np.full(own.size, n), own, ".", color="C0", alpha=0.35)
        axes.plot(sizes, means, "o-", color="C0", label="mean regret")
        anchor = means[0] * np.sqrt(sizes[0] / sizes)
        axes.plot(sizes, anchor, ":", color="grey", label="slope −1/2 (the paper's bound)")
        if slope is not None:
            centre = np.exp(np.mean(np.log(means)) - slope * np.mean(np.log(sizes)))
            axes.plot(sizes, centre * sizes**slope, "--", color="C1", label=f"fitted slope {slope:.2f}")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sizes, [f"{n:.0f}" for n in sizes])
        axes.minorticks_off()
        axes.set_xlabel("n = m")
        axes.set_ylabel("regret")
        axes.legend()


def save_auc(
    scatter: Mapping[str, Sequence[tuple[float, float]]], curves: Mapping[str, Sequence[float]], path: Path
) -> None:
    """Left: AUC of the ideal policy and of a rival against ours, as the paper's figure. Right: mean ROC."""
    with _figure(path, 2) as (left, right):
        for (name, points), colour in zip(scatter.items(), ("C0", "C2"), strict=False):
            x, y = np.asarray(points, dtype=np.float64).reshape(-1, 2).T
            left.plot(x, y, ".", color=colour, label=name, alpha=0.7)
        left.plot([0.5, 1], [0.5, 1], color="grey", linewidth=1)
        left.set_xlabel("AUC of the default")
        left.set_ylabel("AUC of the other")
        left.legend(loc="lower right")
        for method, curve in curves.items():
            style = {"color": "black", "linestyle": "--"} if method == IDEAL else _style(method, list(curves))
            right.plot(ROC_GRID, curve, label=method, linewidth=1.2, **style)
        right.set_xlabel("false-positive rate")
        right.set_ylabel("true-positive rate")
        right.legend(loc="lower right")


def save_limits(found: Sequence[Limits], edges: Mapping[str, Sequence[float]], path: Path) -> None:
    """One row a measure, one panel a parameter: the worst fifth within all instances."""
    with _figure(path, len(edges), len(found), SMALL_PANEL) as panels:
        for row, each in enumerate(found):
            for column, contrast in enumerate(each.contrasts):
                axes = panels[row * len(edges) + column]
                bins = np.asarray(edges[contrast.parameter])
                worst, all_of_them = (
                    np.asarray(counts) / max(sum(counts), 1)
                    for counts in (contrast.worst_counts, contrast.all_counts)
                )
                axes.stairs(worst, bins, fill=True, color="C1", alpha=0.8, label="worst fifth")
                axes.stairs(all_of_them, bins, color="C0", linewidth=1.5, label="all")
                axes.set_title(contrast.parameter, fontsize=9)
                if column == 0:
                    axes.set_ylabel(f"by {each.measure}")
        panels[0].legend(fontsize=7)


def save_table2(ours: Mapping[str, float], paper: Mapping[str, float], path: Path) -> None:
    """Cost of every policy as a share of Ignore's, the cheapest above; the paper's as printed, below."""
    bars = [*((f"printed: {name}", value, "C7") for name, value in sorted(paper.items(), key=_by_value))]
    bars += [(name, value, "C0") for name, value in sorted(ours.items(), key=_by_value)]
    with _figure(path, 1, panel=(6.5, 0.6 + 0.24 * len(bars))) as (axes,):
        names, values, colours = zip(*bars, strict=True)
        axes.barh(range(len(bars)), values, color=colours)
        axes.set_yticks(range(len(bars)), names)
        axes.axvline(1.0, color="grey", linewidth=1)
        axes.set_xlabel("cost / cost of doing nothing")


def _by_value(item: tuple[str, float]) -> float:
    return -item[1]
