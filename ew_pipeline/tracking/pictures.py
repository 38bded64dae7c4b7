"""Pictures for MLflow: a segment's rank curve and singular values; what every policy of a week cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ew_pipeline.tracking.facts import SegmentFacts

CURVES = {
    "rank_curve.leave_one_out": ("leave one out", "o-"),
    "rank_curve.held_out": ("held-out pairs", "s--"),
}


def save_rank_picture(segment: SegmentFacts, path: Path) -> bool:
    """Left: how well each rank predicts pairs it has not seen; right: singular values.

    False when there is nothing to draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = {name: segment.curves[name] for name in CURVES if name in segment.curves}
    values = segment.curves.get("singular_value", ())
    if not curves and not values:
        return False
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")  # not pyplot: no display, no global state
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, points in curves.items():
        label, style = CURVES[name]
        ranks, scores = zip(*sorted(points), strict=True)
        left.plot(ranks, scores, style, label=label, markersize=4)
    chosen = int(segment.params["rank"])
    left.axvline(chosen, color="0.6", linewidth=1, zorder=0, label=f"chosen: {chosen}")
    left.set(xlabel="rank", ylabel="log predictive per pair", title=f"Rank, segment {segment.name}")
    left.legend(fontsize=8)
    if values:
        places, sizes = zip(*values, strict=True)
        right.bar(places, sizes, color="0.4")
    right.set(xlabel="place", ylabel="singular value of expected sales", title="Singular values")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return True


def save_cost_picture(document: Mapping[str, Any], path: Path) -> None:
    """The cost of every policy of an evaluation as a ratio to doing nothing, the cheapest on top."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    known = {name: one for name, one in document["policies"].items() if one["cost_ratio"] is not None}
    order = sorted(known, key=lambda name: -known[name]["cost_ratio"])
    figure = Figure(figsize=(7.0, 1.2 + 0.27 * len(order)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for place, name in enumerate(order):
        colour = "C3" if name == "published" else "0.35"
        low, high = known[name]["cost_ratio_interval"]
        if low is not None and high is not None:
            axis.hlines(place, low, high, color=colour, linewidth=1.5)
        axis.plot(known[name]["cost_ratio"], place, "o", color=colour, markersize=5)
    axis.axvline(1.0, color="0.6", linewidth=1, linestyle="--", zorder=0)
    axis.set_yticks(range(len(order)), order)
    axis.set_xlim(0, None)
    title = f"{document['week']}, label {document['label']}: {document['pairs']} pairs"
    axis.set(xlabel="cost, of doing nothing; 90% over stores", title=title)
    figure.savefig(path, dpi=110, metadata={"Software": None})
