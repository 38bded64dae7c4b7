"""How the steps grow with the number of observed pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ew_pipeline.core.console import step
from ew_pipeline.studies.bench.measure import child
from ew_pipeline.studies.bench.stored import Size, store

Points = list[tuple[float, float]]


def steps_at(folder: Path, rank: int) -> dict[str, Any]:
    """What ``passes`` prints of the data in a folder, in a process of its own."""
    return child("ew_pipeline.studies.bench.passes", str(folder), str(rank))


def grow(size: Size, sizes: Sequence[float]) -> list[dict[str, Any]]:
    """The steps at each number of observed pairs; the density stays what it is."""
    found = []
    for observed in sorted(sizes):
        with tempfile.TemporaryDirectory(prefix="ew-bench-") as folder, step(f"steps at {observed:g} pairs"):
            store(size.grown(observed), Path(folder))
            found.append(steps_at(Path(folder), size.rank))
    return found


def lines(found: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """CPU seconds by observed pairs, for every step."""
    ordered = sorted(found, key=lambda one: one["observed"])
    return {
        name: [(float(one["observed"]), float(one["passes"][name]["cpu_s"])) for one in ordered]
        for name in ordered[0]["passes"]
    }


def exponent(points: Points) -> float:
    """The slope of log time in log size."""
    sizes, seconds = np.log(np.array(points)).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def last_exponent(points: Points) -> float:
    """The same between the two largest sizes."""
    return exponent(sorted(points)[-2:])


def bandwidth(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Of the passes that memory may bound: GB per CPU second, and its share of the measured most."""
    most = float(found["stream_gb_per_cpu_s"])
    reached = {
        name: one["bytes"] / one["cpu_s"] / 1e9 for name, one in found["passes"].items() if one["bytes"]
    }
    return {name: {"gb_per_cpu_s": rate, "share": rate / most} for name, rate in reached.items()}


def draw_growth(grown: Mapping[str, Points], path: Path) -> None:
    """CPU seconds against observed pairs, both logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, points in grown.items():
        whole = name.startswith("whole")
        axes.loglog(
            *zip(*points, strict=True),
            marker="o",
            markersize=5 if whole else 3,
            linewidth=2.2 if whole else 1.0,
            label=f"{name} ({exponent(points):.2f})",
        )
    axes.set_xlabel("observed pairs")
    axes.set_ylabel("CPU seconds")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", title="step (exponent)")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
