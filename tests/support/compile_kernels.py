"""Run the kernels that most tests need, so that they are compiled; ``first`` or ``second`` half of them.

A program of its own, which ``warm_kernels.py`` starts twice. What else there is, is compiled by the test that
needs it.
"""

from __future__ import annotations

import sys

import numpy as np

from ew_pipeline import EntrywiseDetector
from ew_pipeline.intake.history import trailing_level
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.simulate import ChainSettings, simulate_chain
from ew_pipeline.studies.bench.als import als
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance


def drawn() -> SalesMatrix:
    settings = EnsembleSettings(n=40, m=40, rank=1)
    return draw_instance(settings, np.random.default_rng(0)).sales


def fit(mode: str, with_level: bool = False, **chosen: str) -> None:
    sales = drawn()
    level = np.ones(sales.n_observed) if with_level else None
    EntrywiseDetector(mode, rank=1, **chosen).fit(sales, level=level)


def first_half() -> None:
    fit("thorough", noise="poisson", anomaly="exponential")
    fit("thorough", with_level=True, noise="negative_binomial", anomaly="uniform")


def second_half() -> None:
    for noise in ("poisson", "negative_binomial"):
        for anomaly in ("exponential", "uniform", "zero"):
            fit("large", noise=noise, anomaly=anomaly)
    fit("large", with_level=True, noise="negative_binomial", anomaly="exponential")
    fit("paper")
    fit("paper-practical")
    als(drawn(), 1, np.random.default_rng(0))
    table = simulate_chain(ChainSettings.small(stores=8, skus=12, weeks=8), 0).sales
    week = str(table["week"].max())
    SalesMatrix.from_long(table, week)
    trailing_level(table, week)


HALVES = {"first": first_half, "second": second_half}

if __name__ == "__main__":
    HALVES[sys.argv[1]]()
