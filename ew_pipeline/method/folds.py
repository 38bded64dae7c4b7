"""Which rank best predicts sales it has not seen ("the rank is identified through cross-validation", appendix
"Additional Experimental Details")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float


@dataclass(frozen=True)
class RankCurve:
    """How well each rank predicts entries it has not seen.

    Attributes
    ----------
    ranks : the candidates, ascending.
    scores : mean log-probability of a held-out count; higher is better.
    standard_errors : of the shortfall from the best score, paired entry by entry; 0 at the best. Most of
        the spread of a score is common to all ranks and says nothing about which is better.
    best : the rank with the highest score, the smaller one on a tie.
    one_standard_error : the smallest rank whose shortfall is at most its standard error.
    """

    ranks: tuple[int, ...]
    scores: tuple[float, ...]
    standard_errors: tuple[float, ...]
    best: int
    one_standard_error: int


def rank_curve(entry_scores: Mapping[int, Float]) -> RankCurve:
    """The curve from each rank's log-probabilities of the same entries, ranks ascending."""
    ranks, by_rank = tuple(entry_scores), list(entry_scores.values())
    means = [float(score.mean()) for score in by_rank]
    best = int(np.argmax(means))
    errors = [_standard_error(by_rank[best] - score) for score in by_rank]
    near = next(k for k, mean in enumerate(means) if means[best] - mean <= errors[k])
    return RankCurve(
        ranks=ranks,
        scores=tuple(means),
        standard_errors=tuple(errors),
        best=ranks[best],
        one_standard_error=ranks[near],
    )


def _standard_error(difference: Float) -> float:
    return float(difference.std(ddof=1) / np.sqrt(difference.size)) if difference.size > 1 else 0.0
