"""A chain whose weeks are alike, and the same chain after one thing about it has changed.

Expected sales are low rank (the paper's ensemble), the same every week but for small effects of the week on
stores and SKUs. Which pairs are ranged hardly changes, who is anomalous is drawn anew each week.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.sales_matrix import SalesMatrix

STORE_EFFECT, SKU_EFFECT = 0.06, 0.10  # standard deviation of the log of a week's effect
RANGE_CHANGES = 0.01  # share of the pairs whose ranging differs in a week


@dataclass(frozen=True)
class Chain:
    """What a week is drawn from. ``size``: s0 of the noise, infinite for Poisson."""

    stores: int = 200
    skus: int = 1000
    rank: int = 3
    mean: float = 5.0
    observed_share: float = 0.8
    anomaly_rate: float = 0.04
    alpha: float = 0.2
    size: float = math.inf


@dataclass(frozen=True)
class Change:
    """What is different from the change on; everything else stays. ``new_skus``: share that is replaced."""

    rank: int | None = None
    mean: float | None = None
    observed_share: float | None = None
    anomaly_rate: float | None = None
    alpha: float | None = None
    size: float | None = None
    new_skus: float = 0.0


STABLE = "stable"
SCENARIOS: dict[str, Change] = {
    STABLE: Change(),
    "anomaly rate": Change(anomaly_rate=0.08),
    "severity": Change(alpha=0.5),
    "observed share": Change(observed_share=0.5),
    "rank": Change(rank=6),
    "assortment": Change(new_skus=0.4),
    "mean demand": Change(mean=8.0),
    "overdispersion": Change(size=2.5),
}


@dataclass(frozen=True, eq=False)
class DrawnWeek:
    """Sales of a week, and which SKUs are old: on sale before the change."""

    sales: SalesMatrix
    carried_over: float  # share of the pairs whose SKU was on sale before the change


def draw_week(chain: Chain, change: Change, world: int, week: int, scenario: int, seed: int) -> DrawnWeek:
    """Week ``week`` of chain number ``world`` after ``change``. The same arguments give the same week."""
    if not 0.0 <= change.new_skus <= 1.0:
        raise UsageError(f"new_skus is {change.new_skus}; it must lie in [0, 1].")
    lasting = np.random.default_rng([seed, world])
    rates, ranged, old = _structure(chain, change, lasting)
    rng = np.random.default_rng([seed, world, scenario, week])
    effect = np.exp(rng.normal(0.0, STORE_EFFECT, chain.stores))[:, None] * np.exp(
        rng.normal(0.0, SKU_EFFECT, chain.skus)
    )
    M = rates * effect
    observed = ranged ^ (rng.random(ranged.shape) < RANGE_CHANGES)
    alpha = chain.alpha if change.alpha is None else change.alpha
    size = chain.size if change.size is None else change.size
    anomalous = rng.random(M.shape) < (
        chain.anomaly_rate if change.anomaly_rate is None else change.anomaly_rate
    )
    healthy = np.ones(M.shape) if math.isinf(size) else rng.gamma(size, 1.0 / size, M.shape)
    exposure = np.where(anomalous, rng.exponential(alpha, M.shape), healthy)
    sales = SalesMatrix.from_dense(rng.poisson(exposure * M), observed)
    share = float(observed[:, old].sum() / max(observed.sum(), 1))
    return DrawnWeek(sales, share)


def _structure(chain: Chain, change: Change, rng: np.random.Generator) -> tuple[Float, Bool, Bool]:
    """Rates, ranged pairs and old SKUs. Draws come in one order: a change leaves the rest as it was."""
    most = max(chain.rank, change.rank or 0)
    U = rng.gamma(1.0, 2.0, size=(most, chain.stores))
    V = rng.gamma(1.0, 2.0, size=(most, chain.skus))
    V_new = rng.gamma(1.0, 2.0, size=(most, chain.skus))
    luck, turn = rng.random((chain.stores, chain.skus)), rng.random(chain.skus)
    rank = change.rank or chain.rank
    old = turn >= change.new_skus
    M = U[:rank].T @ np.where(old, V[:rank], V_new[:rank])
    M *= (chain.mean if change.mean is None else change.mean) / M.mean()
    ranged = luck < (chain.observed_share if change.observed_share is None else change.observed_share)
    return M, ranged, old
