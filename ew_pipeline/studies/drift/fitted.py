"""One week of one study: draw it, fit it, keep what the ledger would keep of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ew_pipeline.core.week import Week
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.studies.drift.world import SCENARIOS, Chain, draw_week
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance
from ew_pipeline.studies.experiments.options import SOURCES as FIT_SOURCES
from ew_pipeline.studies.experiments.runner import Study

SOURCES = (*FIT_SOURCES, "studies/drift/world.py", "studies/drift/fitted.py")
COSTS = Costs(false_alarm=1.0, missed=3.0)
FIRST_WEEK = Week(2020, 1)
TITLE = "drift"

Chains = list[list[Mapping[str, Any]]]
"""The fitted weeks of every chain, in order."""


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
