"""A chain as retail has it: seasons, holidays, promotions, a changing range, stores whose data come late,
wrong records that last for weeks, and a level of every pair from the weeks before. One thing may change.

The weeks of `world` are alike but for chance. Here theta itself wanders: a record that is wrong this week is
likely to be wrong in the next, and what the level of a pair has learnt of it differs from week to week.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.drift.series import APART
from ew_pipeline.intake.history import trailing_level
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.simulate import ChainSettings, SimulatedChain, simulate_chain
from ew_pipeline.simulate.settings import iso_weeks
from ew_pipeline.studies.drift.fitted import SOURCES as FIT_SOURCES
from ew_pipeline.studies.drift.fitted import STABLE, TITLE, Chain, Chains, Fits, describe, warm_up
from ew_pipeline.studies.experiments.runner import Study

SOURCES = (*FIT_SOURCES, "intake/history.py", "simulate", "studies/drift/retail.py")
USUAL_SIZE = 30.0  # s0 of the demonstration's chain
HISTORY_WEEKS = 8  # before the first week that is fitted
PIECE = 104  # fitted weeks of one task: what is lost when a study is stopped

# What a field of the settings is from the change on. A range review is over in a week.
CHANGES: dict[str, dict[str, float]] = {
    STABLE: {},
    "anomaly rate": {"phantom_rate": 0.08},
    "severity": {"phantom_depth": 0.6},
    "observed share": {"late_store_rate": 0.3},
    "assortment": {"assortment_churn": 0.4},
    "mean demand": {"demand_level": 1.6},
    "overdispersion": {"dispersion_size": 2.5},
}
ONCE = ("assortment_churn",)


@dataclass(frozen=True)
class RetailTask:
    """Weeks ``first`` to ``last`` - 1 (from 0) of chain number ``world``; ``change_at``: the
    first changed week."""

    stores: int
    skus: int
    size: float
    fits: Fits
    scenario: str
    world: int
    first: int
    last: int
    change_at: int

    @property
    def name(self) -> str:
        return f"retail chain {self.world} of seed {self.fits.seed}, {self.scenario}, from week {self.first}"

    def identity(self) -> Mapping[str, Any]:
        return {**asdict(self), "kind": "retail"}

    def settings(self) -> ChainSettings:
        """Of the chain up to the last week of the task."""
        weeks = HISTORY_WEEKS + self.last
        usual = ChainSettings(stores=self.stores, skus=self.skus, weeks=weeks, dispersion_size=self.size)
        changed: dict[str, Any] = {
            field: _schedule(field, getattr(usual, field), value, weeks, HISTORY_WEEKS + self.change_at)
            for field, value in CHANGES[self.scenario].items()
        }
        return replace(usual, **changed)


def run_retail(
    chain: Chain, plan: Mapping[str, int], chains: int, fits: Fits, jobs: int, folder: Path | None
) -> dict[str, Chains]:
    """Fit ``plan[scenario]`` weeks of every scenario in every chain; changes come after the stable weeks."""
    tasks = [
        RetailTask(chain.stores, chain.skus, chain.size, fits, name, world, first, last, plan[STABLE])
        for world in range(chains)
        for name, count in plan.items()
        for first, last in _pieces(0 if name == STABLE else plan[STABLE], count)
    ]
    study = Study(TITLE, fit_weeks, prepare=warm_up, sources=SOURCES)
    found: dict[str, Chains] = {name: [[] for _ in range(chains)] for name in plan}
    for task, record in zip(tasks, study.run(tasks, jobs=jobs, folder=folder), strict=True):
        found[task.scenario][task.world] += record["weeks"]
    return found


def _pieces(start: int, count: int) -> list[tuple[int, int]]:
    end = start + count
    return [(first, min(first + PIECE, end)) for first in range(start, end, PIECE)]


def fit_weeks(task: RetailTask) -> dict[str, Any]:
    """The weeks of the task in order, as ``fitted.describe`` has them."""
    child = np.random.SeedSequence(task.fits.seed, spawn_key=(task.world,)).generate_state(1)
    chain = simulate_chain(task.settings(), int(child[0]))
    return {"weeks": [_fit(chain, HISTORY_WEEKS + week, task) for week in range(task.first, task.last)]}


def _fit(chain: SimulatedChain, t: int, task: RetailTask) -> dict[str, Any]:
    """As the weekly run does: no promotions, and a level from the weeks before."""
    labels = iso_weeks(chain.settings.start_week, t + 1)
    week_of_row = chain.sales["week"].cat.codes.to_numpy()
    here = slice(*np.searchsorted(week_of_row, (t - HISTORY_WEEKS, t + 1)))
    window = chain.sales.iloc[here]
    window = window[~window["promo"].to_numpy()]
    sales = SalesMatrix.from_long(window, labels[t])
    level = trailing_level(window, labels[t], HISTORY_WEEKS)
    fit = EntrywiseDetector(task.fits.mode, anomaly=task.fits.anomaly, random_state=0).fit(sales, level=level)
    before = SalesMatrix.from_long(window, labels[t - APART])
    known = np.isin(sales.store_ids, before.store_ids)[sales.rows]
    known &= np.isin(sales.sku_ids, before.sku_ids)[sales.cols]
    return describe(fit, float(known.mean()), stores_reporting=sales.shape[0] / task.stores)


def _schedule(field: str, before: float, after: float, weeks: int, at: int) -> Float:
    values = np.full(weeks, before)
    values[at : at + 1 if field in ONCE else None] = after
    return values
