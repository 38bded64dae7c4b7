"""One week of one simulated chain: the cross-section, the trailing rule, and both together -> one record.

The truth is the simulation's phantom inventory. Costs are the mean over c0, c1 ~ U[0, 10] per pair, in closed
form: a policy that flags where p c1 >= (1 - p) c0 flags with known probability.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from ew_pipeline.backtest.metrics import auc, average_precision
from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.intake.history import trailing_level, trailing_mean
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.simulate import ChainSettings, SimulatedChain, simulate_chain
from ew_pipeline.simulate.settings import iso_weeks

COST_HIGH = 10.0
RULE_WEEKS = 5
RULE_FRACTION = 0.5
FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
FLOORS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)

IGNORE = "ignore"
RULE = "trailing rule"
TUNED_RULE = "trailing rule, hindsight"
CROSS = "cross-section"
BOTH = "both"
BOTH_RANK_1 = "both, rank 1"
BOTH_DROP = "both, drop"
KNOWN = "true expected sales"


@dataclass(frozen=True)
class ChainTask:
    """Week number ``week`` (from 0) of chain number ``instance`` of the study with base seed ``seed``."""

    stores: int
    skus: int
    median_units: float
    noise: str
    mode: str
    week: int
    seed: int
    instance: int

    @property
    def name(self) -> str:
        return f"chain {self.instance} of seed {self.seed}, week {self.week}"

    def identity(self) -> Mapping[str, Any]:
        return asdict(self)

    def chain(self) -> SimulatedChain:
        child = np.random.SeedSequence(self.seed, spawn_key=(self.instance,)).generate_state(1)
        settings = ChainSettings.small(
            stores=self.stores, skus=self.skus, median_units=self.median_units, weeks=self.week + 1
        )
        return simulate_chain(settings, int(child[0]))


@dataclass(frozen=True)
class PolicyRecord:
    """Mean cost per pair, and how well the policy's score ranks the phantoms (None: it has no score)."""

    cost: float
    flagged: float
    auc: float | None = None
    average_precision: float | None = None
    rank: int | None = None
    noise: str | None = None
    tier: str | None = None
    cpu_seconds: float = 0.0


def run_week(task: ChainTask) -> dict[str, Any]:
    """Fit and price all policies on one week."""
    if task.week < RULE_WEEKS:
        raise UsageError(f"week {task.week} has too short a past.", f"choose weeks from {RULE_WEEKS} on.")
    chain = task.chain()
    week = iso_weeks(chain.settings.start_week, task.week + 1)[-1]
    sales = SalesMatrix.from_long(chain.sales, week)
    phantom, expected = truth_of(chain, sales)
    level = trailing_level(chain.sales, week)
    policies = {
        IGNORE: PolicyRecord(price_flags(np.zeros(phantom.size, dtype=np.bool_), phantom), 0.0),
        **_rules(sales, trailing_mean(chain.sales, week, RULE_WEEKS), phantom),
    }

    def fit(level: Float | None, rank: int | str = "auto") -> tuple[DetectorFit, float]:
        started = time.process_time()
        detector = EntrywiseDetector(task.mode, noise=task.noise, rank=rank, random_state=task.instance)
        return detector.fit(sales, level=level), time.process_time() - started

    for name, given, rank in (
        (CROSS, None, "auto"),
        (BOTH, level, "auto"),
        (BOTH_RANK_1, level, 1),
        (KNOWN, expected, 1),
    ):
        found, seconds = fit(given, rank)
        policies[name] = _priced(found, found.posterior_, phantom, seconds)
        if name == BOTH_RANK_1:
            policies[BOTH_DROP] = _priced(found, found.drop_probability(), phantom, seconds)
    return {
        "instance": task.instance,
        "week": task.week,
        "pairs": sales.n_observed,
        "phantom_share": float(phantom.mean()),
        "policies": {name: asdict(policy) for name, policy in policies.items()},
    }


def truth_of(chain: SimulatedChain, sales: SalesMatrix) -> tuple[Bool, Float]:
    """(phantom, expected units if healthy) for the observed pairs of the week."""
    rows = chain.truth[(chain.truth["week"] == sales.week).to_numpy()]
    index = pd.MultiIndex.from_arrays([rows["store_id"].astype("str"), rows["sku_id"].astype("str")])
    pairs = pd.MultiIndex.from_arrays(
        [np.asarray(sales.store_ids)[sales.rows], np.asarray(sales.sku_ids)[sales.cols]]
    )
    at = index.get_indexer(pairs)
    return rows["phantom"].to_numpy(dtype=np.bool_)[at], rows["expected_units"].to_numpy(dtype=np.float64)[at]


def price_flags(flags: Bool, anomalous: Bool) -> float:
    """Mean cost of flags that do not look at the costs: each error costs COST_HIGH / 2."""
    return float(np.mean(flags != anomalous) * COST_HIGH / 2.0)


def price_probability(probability: Float, anomalous: Bool) -> float:
    """Mean cost of flagging where p c1 >= (1 - p) c0, over c0, c1 ~ U[0, COST_HIGH].

    With a = (1 - p)/p a healthy pair costs E[c0; c1 >= a c0] = C (1/2 - a/3) for a <= 1, and C/(6 a²) above;
    an anomalous one the same with 1/a.
    """
    p = np.clip(probability, 1e-12, 1.0 - 1e-12)
    a = np.where(anomalous, p / (1.0 - p), (1.0 - p) / p)
    return float(
        COST_HIGH * np.mean(np.where(a <= 1.0, 0.5 - a / 3.0, 1.0 / (6.0 * np.maximum(a, 1.0) ** 2)))
    )


def flagged_share(probability: Float) -> float:
    """Share of pairs flagged under the same costs: P(c1 >= a c0)."""
    p = np.clip(probability, 1e-12, 1.0 - 1e-12)
    a = (1.0 - p) / p
    return float(np.mean(np.where(a <= 1.0, 1.0 - a / 2.0, 1.0 / (2.0 * np.maximum(a, 1.0)))))


def _priced(fit: DetectorFit, probability: Float, phantom: Bool, seconds: float) -> PolicyRecord:
    return PolicyRecord(
        cost=price_probability(probability, phantom),
        flagged=flagged_share(probability),
        auc=auc(probability, phantom),
        average_precision=average_precision(probability, phantom),
        rank=fit.rank_,
        noise=fit.noise_,
        tier=fit.mode_,
        cpu_seconds=seconds,
    )


def _rules(sales: SalesMatrix, mean: Float, phantom: Bool) -> dict[str, PolicyRecord]:
    """What a retailer does today, and the best of its kind that the truth can pick."""
    level = np.nan_to_num(mean, nan=0.0)
    score = -sales.counts / np.maximum(level, 1e-2)
    ranked = (auc(score, phantom), average_precision(score, phantom))

    def rule(fraction: float, floor: float) -> PolicyRecord:
        flags = (level > floor) & (sales.counts <= fraction * level)
        return PolicyRecord(price_flags(flags, phantom), float(flags.mean()), *ranked)

    tuned = min((rule(q, floor) for q in FRACTIONS for floor in FLOORS), key=lambda policy: policy.cost)
    return {RULE: rule(RULE_FRACTION, 0.0), TUNED_RULE: tuned}
