"""Weeks of a chain before and after one thing about it has changed: drawn, fitted, kept as in the ledger.

Expected sales are low rank (the paper's ensemble), the same every week but for small effects of the week on
stores and SKUs. Which pairs are ranged hardly changes; who is anomalous is drawn again each week.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import Week
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance
from ew_pipeline.studies.experiments.options import SOURCES as FIT_SOURCES
from ew_pipeline.studies.experiments.runner import Study

STORE_EFFECT, SKU_EFFECT = 0.06, 0.10  # standard deviation of the log of a week's effect
RANGE_CHANGES = 0.01  # share of the pairs whose ranging differs in a week
STABLE = "stable"
SOURCES = (*FIT_SOURCES, "studies/drift/fitted.py")
COSTS = Costs(false_alarm=1.0, missed=3.0)
FIRST_WEEK = Week(2020, 1)
TITLE = "drift"
Chains = list[list[Mapping[str, Any]]]  # the fitted weeks of every chain, in order


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


@dataclass(frozen=True)
class Fits:
    """How every week is fitted, and the seed of the study."""

    mode: str
    anomaly: str
    seed: int


@dataclass(frozen=True)
class WeekTask:
    """Week ``week`` (from 0) of a scenario of chain number ``world``."""

    chain: Chain
    mode: str
    anomaly: str
    scenario: str
    world: int
    week: int
    seed: int

    @property
    def name(self) -> str:
        return f"chain {self.world} of seed {self.seed}, {self.scenario}, week {self.week}"

    def identity(self) -> Mapping[str, Any]:
        plain = asdict(self)
        plain["chain"]["size"] = _finite(self.chain.size)
        return plain


def run_alike(
    chain: Chain, plan: Mapping[str, int], chains: int, fits: Fits, jobs: int, folder: Path | None
) -> dict[str, Chains]:
    """Fit ``plan[scenario]`` weeks of every scenario in every chain; weeks alike but for chance."""
    tasks = [
        WeekTask(chain, fits.mode, fits.anomaly, name, world, week, fits.seed)
        for world in range(chains)
        for name, count in plan.items()
        for week in range(count)
    ]
    records = Study(TITLE, fit_week, prepare=warm_up, sources=SOURCES).run(tasks, jobs=jobs, folder=folder)
    found: dict[str, Chains] = {name: [[] for _ in range(chains)] for name in plan}
    for task, record in zip(tasks, records, strict=True):
        found[task.scenario][task.world].append(record)
    return found


def fit_week(task: WeekTask) -> dict[str, Any]:
    """Columns of the ledger's ``segments`` that drift reads; an infinite dispersion size is None."""
    number = list(SCENARIOS).index(task.scenario)
    drawn = draw_week(task.chain, SCENARIOS[task.scenario], task.world, task.week, number, task.seed)
    fit = EntrywiseDetector(task.mode, anomaly=task.anomaly, random_state=0).fit(drawn.sales)
    return describe(fit, drawn.carried_over)


def describe(fit: DetectorFit, carried_over: float, stores_reporting: float = 1.0) -> dict[str, Any]:
    """What the ledger would keep of a fit."""
    theta, sales, flagged = fit.theta_, fit.sales, fit.decide(COSTS)
    stores, skus = sales.shape
    return {
        "alpha": theta.alpha,
        "alpha_low": theta.alpha_interval[0],
        "alpha_high": theta.alpha_interval[1],
        "anomaly_rate": theta.anomaly_rate,
        "anomaly_rate_low": theta.anomaly_rate_interval[0],
        "anomaly_rate_high": theta.anomaly_rate_interval[1],
        "identified": bool(theta.identified),
        "at_bound": bool(theta.at_bound),
        "stores": stores,
        "skus": skus,
        "pairs": sales.n_observed,
        "pairs_flagged": int(flagged.sum()),
        "expected_units": float(fit.expected_sales_.sum()),
        "expected_saving": float(fit.expected_saving(COSTS)[flagged].sum()),
        "expected_cost_ignoring": float(fit.anomaly_probability_.sum() * 3.0),
        "rank": fit.rank_,
        "anomaly": fit.anomaly_,
        "dispersion_size": _finite(fit.dispersion_size_),
        "singular_values": [float(value) for value in fit.factors_.singular_values()],
        "carried_over": carried_over,
        "stores_reporting": stores_reporting,
    }


def as_rows(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Records in the order of their weeks, as ``series.build_series`` takes them."""
    weeks = [FIRST_WEEK.shift(place) for place in range(len(records))]
    rows = [
        {**record, "week": str(week), "segment": "all", "publication_id": place + 1}
        for place, (week, record) in enumerate(zip(weeks, records, strict=True))
    ]
    return pd.DataFrame(rows)


def warm_up() -> None:
    """Compile or load the kernels, once in every worker."""
    drawn = draw_instance(EnsembleSettings(n=12, m=12, rank=1), np.random.default_rng(0))
    EntrywiseDetector("variational").fit(drawn.sales)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
