"""One fit to be done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.anomalies import AnomalyModel
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.selection import candidate_ranks


@dataclass(frozen=True, eq=False)
class Plan:
    """The data and the choices left open."""

    sales: SalesMatrix
    level: Float | None
    rank: int | None
    noise: str
    anomaly: str | AnomalyModel
    max_rank: int
    n_threads: int | None
    rng: np.random.Generator
    mode: str
    mode_reason: str
    probability: str
    drop_fraction: float
    cross_check: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        if self.rank is not None:
            return (self.rank,)
        return candidate_ranks(self.sales.shape, self.sales.n_observed, self.max_rank)
