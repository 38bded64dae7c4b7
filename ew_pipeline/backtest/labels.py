"""What counts as an anomaly when we look back: the label of each pair in a week, from the weeks around it.

``text``  the rule of section 4.2: S = mean units of the 5 weeks before and the 5 after, the week itself left
          out; an anomaly iff X <= S/2.
``code``  the authors' notebook: 4 weeks each side with the week itself counted twice.
``pair``  as ``text`` after taking out what moved the SKU in the whole chain that week: with
          R_j = sum_i X_ij / sum_i S_ij over the labelled pairs, an anomaly iff X_ij <= R_j S_ij / 2.

A pair has a label only if it was observed in the week, in enough weeks on both sides, has sold before, and
S > 0: a pair that sold nothing around the week has no level to fall from. Labels of week W exist only where
the table holds its whole window: not in the first weeks, and not before the last week of the window is in.

``LABEL_VERSION`` is stored with every evaluation. Whoever changes what a rule says of any table raises it:
weeks are then evaluated again under the new version, and the old rows stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Bool, Float, Float32, Int64
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.kernels import njit
from ew_pipeline.core.week import maturity
from ew_pipeline.intake.panel import Panel

LABEL_VERSION = "1"
MINIMUM_WEEKS = 3  # observed on each side; a gap of more says too little about the level
DROP = 0.5


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of one week, over all pairs of the panel.

    Attributes
    ----------
    known : which pairs have a label.
    anomaly : True where the pair is an anomaly; False where it is not or has no label.
    weight : how many pairs each label stands for; None for one.
    """

    known: Bool
    anomaly: Bool
    weight: Float | None = None

    def __post_init__(self) -> None:
        self.known.setflags(write=False)
        self.anomaly.setflags(write=False)

    @property
    def rate(self) -> float:
        """Share of anomalies among the labelled pairs; NaN when there is none."""
        return float(self.anomaly.sum() / self.known.sum()) if self.known.any() else float("nan")


def label_week(panel: Panel, t: int, rule: str = "text", minimum: int = MINIMUM_WEEKS) -> Labels:
    """The labels of week ``t``; none are known when its window is not complete."""
    S, sold_before = _surroundings(panel, t, rule, minimum)
    X = panel.units[:, t].astype(np.float64)
    known = panel.observed[:, t] & sold_before & (np.nan_to_num(S) > 0)
    threshold = np.full(panel.n_pairs, np.nan)
    threshold[known] = DROP * S[known]
    if rule == "pair":
        m = panel.sku_ids.size
        sold = np.bincount(panel.sku[known], X[known], minlength=m)
        due = np.bincount(panel.sku[known], S[known], minlength=m)
        moved = np.divide(sold, due, out=np.ones(m), where=due > 0)
        # Where the SKU sold nothing in the whole chain, the chain dropped and no pair can be told apart.
        known = known & (moved[panel.sku] > 0)
        threshold = threshold * moved[panel.sku]
    anomaly = np.zeros(panel.n_pairs, dtype=np.bool_)
    anomaly[known] = X[known] <= threshold[known]
    return Labels(known, anomaly)


def _surroundings(panel: Panel, t: int, rule: str, minimum: int) -> tuple[Float, Bool]:
    """S of every pair, and which have sold before."""
    width = maturity(rule)
    if minimum < 1 or minimum > width:
        raise UsageError(f"minimum is {minimum}; it must be from 1 to {width} weeks.")
    mean, sold_before = np.full(panel.n_pairs, np.nan), np.zeros(panel.n_pairs, dtype=np.bool_)
    if width <= t < panel.n_weeks - width:
        mean_around(panel.units, t, width, minimum, 2 if rule == "code" else 0, mean, sold_before)
    return mean, sold_before


# Passes over the weeks of every pair, where they lie in a panel: units are NaN where not observed.


@njit
def mean_before(units: Float32, pairs: Int64, t: int, weeks: int, mean: Float, seen: Float) -> None:
    """Mean of the last weeks before week ``t`` and how many of them were observed; without any, the mean
    stays as it was given."""
    first = max(0, t - weeks)
    for e in range(pairs.size):
        row, total, known = pairs[e], 0.0, 0
        for k in range(first, t):
            x = units[row, k]
            if x == x:
                total += x
                known += 1
        seen[e] = known
        if known > 0:
            mean[e] = total / known


@njit
def spread_before(
    units: Float32, pairs: Int64, t: int, weeks: int, mean: Float, zeros: Float, variance: Float
) -> None:
    """Share of the last weeks before week ``t`` without a sale, and their variance around ``mean``; 0 where
    none was observed."""
    first = max(0, t - weeks)
    for e in range(pairs.size):
        row, known, nothing, squares = pairs[e], 0, 0, 0.0
        for k in range(first, t):
            x = units[row, k]
            if x == x:
                known += 1
                nothing += x == 0.0
                squares += (x - mean[e]) ** 2
        zeros[e] = nothing / max(known, 1)
        variance[e] = squares / max(known, 1)


@njit
def mean_around(
    units: Float32, t: int, width: int, least: int, week_counts: int, mean: Float, sold_before: Bool
) -> None:
    """Mean of ``width`` weeks on each side of week ``t``, that week itself counted ``week_counts`` times; NaN
    where either side has fewer than ``least``. And whether there was a sale in any week before."""
    for row in range(units.shape[0]):
        total, before, after = 0.0, 0, 0
        for k in range(t - width, t):
            x = units[row, k]
            if x == x:
                total += x
                before += 1
        for k in range(t + 1, t + width + 1):
            x = units[row, k]
            if x == x:
                total += x
                after += 1
        if week_counts > 0 and units[row, t] == units[row, t]:
            total += week_counts * float(units[row, t])
        enough = before >= least and after >= least
        mean[row] = total / max(before + after + week_counts, 1) if enough else np.nan
        sold_before[row] = False
        for k in range(t):
            if units[row, k] > 0.0:
                sold_before[row] = True
                break
