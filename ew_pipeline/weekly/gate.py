"""Is the result fit to send people to shelves? Each check says why in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ew_pipeline.backtest.calibration import FEWEST_ANOMALIES, NOTHING
from ew_pipeline.core.errors import name_some
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.decide.flags import ScoreTotals
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.infer.pricing import HARD, Pricing
from ew_pipeline.intake.assemble import Coverage
from ew_pipeline.results import GateCheck

FLAGGED_SHARE = "flagged share"
CARRIES = 0.1  # of the weight: a rank that the fit is partly an average over


def gate(
    segments: Sequence[SegmentResult],
    totals: ScoreTotals,
    coverage: Coverage,
    config: RunConfig,
    last_ranks: dict[str, int],
    pricing: Pricing,
) -> tuple[GateCheck, ...]:
    """Every check, passed or not. ``last_ranks``: rank by segment of the last published week."""
    limits = config.gate
    # A theta that is not identified wanders to the edge of its range: where nothing is priced by it, neither
    # says anything about the flags.
    needs_theta = pricing.form == "posterior"
    worth_it, proven = _worth_it(pricing)
    not_needed = f"not needed: what is priced ({pricing.form}) does not use alpha and p_A"
    share = totals.flagged_share
    reporting = coverage.stores_reporting / max(coverage.stores_expected, 1)
    moved = {
        s.name: (last_ranks[s.name], s.rank)
        for s in segments
        if s.name in last_ranks
        and min(abs(rank - last_ranks[s.name]) for rank in _ranks_in_use(s)) > limits.max_rank_change
    }
    return (
        _of_segments("converged", segments, lambda s: s.converged, "the fit converged", "did not converge"),
        _of_segments(
            "theta inside its bounds",
            segments,
            lambda s: not s.theta.at_bound or not needs_theta,
            "alpha and p_A lie inside their bounds" if needs_theta else not_needed,
            "have alpha or p_A on the edge of its range",
        ),
        _of_segments(
            "theta identified",
            segments,
            lambda s: s.theta.identified or not needs_theta,
            "alpha and p_A are identified" if needs_theta else not_needed,
            "do not identify alpha and p_A, but the posterior is priced with them",
        ),
        _of_segments(
            "anomalies needed",
            segments,
            lambda s: s.null_gain >= limits.min_null_gain or proven,
            f"not needed: what is priced ({pricing.form}) has found anomalies on past weeks"
            if proven
            else "the model with anomalies beats the one without",
            f"are explained as well without anomalies (gain under {limits.min_null_gain:g} nats)",
        ),
        worth_it,
        GateCheck(
            "priced as asked",
            pricing.as_asked,
            pricing.words if pricing.as_asked else f"{pricing.asked} was asked for, but {pricing.words}",
        ),
        GateCheck(
            FLAGGED_SHARE,
            share <= limits.max_flagged_share,
            f"{share:.1%} of the scored pairs are flagged, at most {limits.max_flagged_share:.0%} are usual"
            + ("" if share <= limits.max_flagged_share else "; max_checks_per_store keeps the best of them"),
        ),
        GateCheck(
            "enough pairs",
            totals.pairs >= limits.min_pairs,
            f"{totals.pairs:,} pairs are scored, at least {limits.min_pairs:,} are needed",
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


def _ranks_in_use(segment: SegmentResult) -> set[int]:
    """The chosen rank, and the others that carry weight in the average: where several predict about as well,
    which of them is named may change from week to week and the expected sales do not."""
    return {segment.rank} | {rank for rank, weight in segment.rank_weights.items() if weight >= CARRIES}


def _worth_it(pricing: Pricing) -> tuple[GateCheck, bool]:
    """On the past weeks that have labels, what is priced must pay: against doing nothing, against a rule.

    Also whether it has been seen to: that is more than the week's own fit can say for it.
    """

    def said(words: str, passed: bool, proven: bool = False) -> tuple[GateCheck, bool]:
        return GateCheck("pays on past weeks", passed, words), proven

    record = pricing.calibration
    if record is None or pricing.of_the_detector or not record.weeks or pricing.form not in record.costs:
        return said("not known: what is priced was not tried on labelled past weeks", True)
    tried = f"on {len(record.weeks)} labelled past weeks"
    if pricing.form == NOTHING:
        return said(f"{tried} every form costs more than doing nothing: it should not be used here", False)
    if record.anomalies < FEWEST_ANOMALIES:
        return said(f"not known: {record.anomalies} anomalies {tried} are too few to judge", True)
    cost = record.costs[pricing.form]
    words = f"{tried}, {pricing.form} costs {cost:.2f} of doing nothing"
    rule = min(HARD, key=lambda one: record.costs.get(one, math.inf))
    if not cost < record.costs[NOTHING]:
        return said(f"{words}: it should not be used here", False)
    if cost > record.costs.get(rule, math.inf):
        return said(
            f"{words}, and the {rule} rule {record.costs[rule]:.2f}: it should not be used here", False
        )
    compared = f", the better trailing rule {record.costs[rule]:.2f}" if rule in record.costs else ""
    return said(words + compared, True, proven=True)


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
