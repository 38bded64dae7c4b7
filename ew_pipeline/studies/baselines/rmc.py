"""Robust Matrix Completion (Klopp, Lounici, Tsybakov 2017): Stable-PCP with bounded entries.

    … with ||M||_max <= a and ||A||_max <= a

The paper takes a = k ||M*||_max, which needs the truth. Here a is twice the 99.9% quantile of the sales.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.baselines.low_rank import LowRank
from ew_pipeline.studies.baselines.stable_pcp import stable_pcp

BOUND = 2.0
BOUND_QUANTILE = 0.999


def rmc(sales: SalesMatrix, rank: int, share: float) -> LowRank:
    """M; ``share`` of the observed entries may be anomalies."""
    bound = BOUND * max(float(np.quantile(sales.counts, BOUND_QUANTILE)), 1.0)
    return stable_pcp(sales, rank, share, bound)
