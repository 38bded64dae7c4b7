"""Pictures of the studies, as PNG files.

matplotlib is slow to load and writes to the home folder when it is: it is imported when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ew_pipeline.evaluate.experiments.instance import IGNORE, Record
from ew_pipeline.evaluate.experiments.summary import CalibrationRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOTS_PER_INCH = 150


@contextmanager
def _figure(path: Path, panels: int) -> Iterator[list[Axes]]:
    """A figure without pyplot: no global state, no display."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9}):
        figure = Figure(figsize=(5.2 * panels, 4.0), layout="constrained")
        FigureCanvasAgg(figure)
        yield list(figure.subplots(1, panels, squeeze=False)[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DOTS_PER_INCH)


def save_table1(records: Sequence[Record], calibration: Sequence[CalibrationRow], path: Path) -> None:
    """Left: the share of instances with at most that regret, by method. Right: calibration of the default."""
    by_method: dict[str, list[float]] = {}
    for record in records:
        by_method.setdefault(record.method, []).append(record.regret)
    with _figure(path, 2) as (left, right):
        for method, regrets in by_method.items():
            values = np.sort(regrets)
            style = "--" if method == IGNORE else "-"
            left.step(values, np.arange(1, values.size + 1) / values.size, style, where="post", label=method)
        left.set_xscale("symlog", linthresh=0.01)
        left.set_xlabel("regret")
        left.set_ylabel("share of instances")
        left.legend(loc="lower right")
        right.plot([0, 1], [0, 1], color="grey", linewidth=1)
        right.plot([row.predicted for row in calibration], [row.realised for row in calibration], "o-")
        right.set_xlabel("predicted P(anomaly), by decile")
        right.set_ylabel("realised share of anomalies")


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
