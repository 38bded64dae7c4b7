"""Is the result fit to send people to shelves? Each check says why in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from ew_pipeline.errors import name_some
from ew_pipeline.settings import RunConfig
from ew_pipeline.weekly.records import Coverage, GateCheck, SegmentResult


def gate(
    segments: Sequence[SegmentResult],
    scores: pd.DataFrame,
    coverage: Coverage,
    config: RunConfig,
    last_ranks: dict[str, int],
) -> tuple[GateCheck, ...]:
    """Every check, passed or not. ``last_ranks``: rank by segment of the last published week."""
    limits = config.gate
    priced = config.detector.probability
    share = float(scores["flagged"].mean()) if len(scores) else 0.0
    reporting = coverage.stores_reporting / max(coverage.stores_expected, 1)
    moved = {
        s.name: (last_ranks[s.name], s.rank)
        for s in segments
        if s.name in last_ranks and abs(s.rank - last_ranks[s.name]) > limits.max_rank_change
    }
    return (
        _of_segments("converged", segments, lambda s: s.converged, "the fit converged", "did not converge"),
        _of_segments(
            "theta inside its bounds",
            segments,
            lambda s: not s.theta.at_bound,
            "alpha and p_A lie inside their bounds",
            "have alpha or p_A on the edge of its range",
        ),
        _of_segments(
            "theta identified",
            segments,
            lambda s: s.theta.identified or priced != "posterior",
            "alpha and p_A are identified" if priced == "posterior" else "not needed: the drop is priced",
            "do not identify alpha and p_A, but the posterior is priced with them",
        ),
        _of_segments(
            "anomalies needed",
            segments,
            lambda s: s.null_gain >= limits.min_null_gain,
            "the model with anomalies beats the one without",
            f"are explained as well without anomalies (gain under {limits.min_null_gain:g} nats)",
        ),
        GateCheck(
            "flagged share",
            share <= limits.max_flagged_share,
            f"{share:.1%} of the scored pairs are flagged, at most {limits.max_flagged_share:.0%} are usual",
        ),
        GateCheck(
            "enough pairs",
            len(scores) >= limits.min_pairs,
            f"{len(scores):,} pairs are scored, at least {limits.min_pairs:,} are needed",
        ),
        GateCheck(
            "enough stores",
            reporting >= limits.min_reporting_share,
            f"{coverage.stores_reporting} of {coverage.stores_expected} stores reported ({reporting:.0%}), "
            f"at least {limits.min_reporting_share:.0%} are needed" + _missing(coverage),
        ),
        GateCheck(
            "rank steady",
            not moved,
            f"the rank is within {limits.max_rank_change} of the last published week's"
            if not moved
            else "the rank jumped against the last published week: "
            + ", ".join(f"{name} {old} -> {new}" for name, (old, new) in moved.items()),
        ),
    )


def _of_segments(
    name: str,
    segments: Sequence[SegmentResult],
    holds: Callable[[SegmentResult], bool],
    good: str,
    bad: str,
) -> GateCheck:
    failing = [segment for segment in segments if not holds(segment)]
    if not failing:
        return GateCheck(name, True, good)
    if len(segments) == 1:
        reason = failing[0].theta.reason
        why = f" ({reason})" if reason and name == "theta identified" else ""
        return GateCheck(name, False, f"the data {bad}{why}")
    named = name_some((segment.name for segment in failing), len(failing))
    return GateCheck(name, False, f"{len(failing)} of {len(segments)} segments {bad}: {named}")


def _missing(coverage: Coverage) -> str:
    if not coverage.stores_missing:
        return ""
    return f"; missing: {name_some(coverage.stores_missing, len(coverage.stores_missing))}"
