"""The rank curve and the singular values of a segment as a picture."""

from __future__ import annotations

from pathlib import Path

from ew_pipeline.track.facts import SegmentFacts

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
