"""Algorithm 2: the most anomalies found for a bounded false-positive rate.

Appendix "Generalization to Detection Rate Optimization". ``f_left`` and ``f_right`` bound f = P(no anomaly |
sales) from below and above: **lower is more suspicious**. All arrays run over the observed entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.paper.decision import checked_probability


@dataclass(frozen=True, eq=False)
class RateDecision:
    """Flags for a target false-positive rate, and what to expect of them.

    Attributes
    ----------
    flags : one draw of A ~ Bernoulli(inclusion).
    inclusion : t in [0, 1], the probability that each entry is flagged; strictly between for at most one.
    expected_fpr : the largest false-positive rate that the intervals of f allow, at most gamma; with
        f_left = f_right it is the expected rate of Eq. (simplify-FPR).
    expected_tpr : the smallest true-positive rate they allow; likewise Eq. (simplify-TPR).
    threshold : f_right of the first entry not flagged for certain, 1 if there is none. Below it all entries
        are flagged, above it none.
    """

    flags: Bool
    inclusion: Float
    expected_fpr: float
    expected_tpr: float
    threshold: float


def greedy_rate_solution(f_right: ArrayLike, f_left: ArrayLike, gamma: float) -> Float:
    """Solve the linear programme of Algorithm 2, step 4:

    max sum t  subject to  sum t f_right <= gamma sum f_left,  0 <= t <= 1.

    A fractional knapsack whose items are all worth 1: fill by ascending f_right, the last one in part. Among
    equal f_right the earlier entry comes first.
    """
    right, left = _checked_interval(f_right, f_left)
    return _fill(right, left, _checked_gamma(gamma))[0]


def flag_by_rate(
    f_right: ArrayLike, f_left: ArrayLike, gamma: float, rng: np.random.Generator
) -> RateDecision:
    """Algorithm 2, step 4: solve for the inclusion probabilities, then draw the flags.

    Only the one fractional entry is left to chance, so ``rng`` gives exactly one number whatever the data.
    """
    right, left = _checked_interval(f_right, f_left)
    t, threshold = _fill(right, left, _checked_gamma(gamma))
    flags = t > rng.random()  # the draw lies in [0, 1): t = 1 is always flagged and t = 0 never
    flags.setflags(write=False)
    fpr, tpr = _rates(t, right, left)
    return RateDecision(flags, t, fpr, tpr, threshold)


def expected_rates(inclusion: ArrayLike, healthy_probability: ArrayLike) -> tuple[float, float]:
    """(FPR, TPR) of a policy that flags with probability ``inclusion``: Eqs. (simplify-FPR), (simplify-TPR).

    A rate over no expected negatives, or no expected positives, is 0, as in the paper's footnote.
    """
    t = checked_probability(inclusion, "inclusion")
    f = checked_probability(healthy_probability)
    if t.size != f.size:
        raise UsageError(f"inclusion has {t.size} entries and healthy_probability {f.size}.")
    return _rates(t, f, f)


def _fill(right: Float, left: Float, gamma: float) -> tuple[Float, float]:
    # Sorting the values and not the positions halves the time; only ties at the threshold need positions.
    ordered = np.sort(right)
    used = np.cumsum(ordered)
    # With f_left = f_right both sums must round alike, or gamma = 1 could leave an entry out.
    available = used[-1] if np.array_equal(left, right) else left.sum()
    budget = gamma * available
    whole = int(np.searchsorted(used, budget, side="right"))
    if whole == right.size:
        t = np.ones(right.size)
        threshold = 1.0
    else:
        threshold = float(ordered[whole])
        t = (right < threshold).astype(np.float64)
        tied = np.flatnonzero(right == threshold)
        tied_whole = whole - int(np.searchsorted(ordered, threshold, side="left"))
        t[tied[:tied_whole]] = 1.0
        spent = used[whole - 1] if whole else 0.0
        t[tied[tied_whole]] = min(1.0, (budget - spent) / threshold)
    return _read_only(t), threshold


def _rates(t: Float, f_if_flagged: Float, f_if_not: Float) -> tuple[float, float]:
    # Plain sums, not dot products: those may round by the number of threads.
    false_positive, true_negative = np.sum(t * f_if_flagged), np.sum((1 - t) * f_if_not)
    true_positive, false_negative = np.sum(t * (1 - f_if_flagged)), np.sum((1 - t) * (1 - f_if_not))
    return _share(false_positive, true_negative), _share(true_positive, false_negative)


def _share(part: float, rest: float) -> float:
    return float(part / (part + rest)) if part + rest > 0 else 0.0


def _checked_gamma(gamma: float) -> float:
    if not 0 < gamma <= 1:  # also refuses NaN
        raise UsageError(
            f"gamma is {gamma}; it must lie in (0, 1].", "pass the false-positive rate to stay below."
        )
    return float(gamma)


def _checked_interval(f_right: ArrayLike, f_left: ArrayLike) -> tuple[Float, Float]:
    right, left = checked_probability(f_right, "f_right"), checked_probability(f_left, "f_left")
    if right.size != left.size or right.size == 0:
        raise UsageError(
            f"f_right has {right.size} entries and f_left {left.size}.",
            "pass both bounds for every observed entry, at least one.",
        )
    if (left > right).any():
        raise UsageError(
            f"f_left exceeds f_right in {np.count_nonzero(left > right)} entries.",
            "the order is (f_right, f_left); f_left is the lower bound.",
        )
    return right, left


def _read_only(values: Float) -> Float:
    view = values.view()  # the array itself may be the caller's
    view.setflags(write=False)
    return view
