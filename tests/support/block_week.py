"""A small week in parquet files, for tests that run it by row blocks."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from support.chain import Untold

from ew_pipeline.cluster.run_blocks import run_blocks
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.weekly.request import make_request

WEEK = "2026-W30"
N, M, RANK = 120, 200, 2
CHANGES = {"detector": {"rank": RANK}}


def make_sales():
    rng = np.random.default_rng(5)
    demand = rng.gamma(2.0, 0.5, (N, RANK)) @ rng.gamma(2.0, 0.5, (M, RANK)).T * 8.0
    wrong = rng.random((N, M)) < 0.08
    counts = rng.poisson(np.where(wrong, rng.exponential(0.2, (N, M)), 1.0) * demand)
    return SalesMatrix.from_dense(
        counts,
        rng.random((N, M)) < 0.6,
        store_ids=[f"S{i:03d}" for i in range(N)],
        sku_ids=[f"K{j:03d}" for j in range(M)],
        week=WEEK,
    )


def write_files(sales, folder):
    """Six files of twenty stores, with rows of another week among them and the rows in no order."""
    frame = pd.DataFrame(sales.to_long()).assign(week=WEEK)
    frame = pd.concat([frame, frame.assign(week="2026-W29", units=1)]).sample(frac=1, random_state=0)
    part = np.searchsorted(sales.store_ids, frame["store_id"].to_numpy(dtype=str)) // 20
    for k in range(6):
        frame[part == k].to_parquet(folder / f"stores-{k}.parquet", index=False)
    return folder


def run(home, partitions, address, shadow=True, override_why=None, **changes):
    settings = Settings(home=home, dask_address=address)
    request = make_request(
        settings,
        week=WEEK,
        sales=str(partitions),
        shadow=shadow,
        override_why=override_why,
        changes={**CHANGES, **changes},
    )
    return run_blocks(request, settings, Steps(quiet=True), Untold(), block_entries=5000)


def scores_of(outcome):
    folder = outcome.result.folder
    files = sorted((folder / "scores").glob("*.parquet"))
    assert len(files) == json.loads((folder / "blocks.json").read_text())["blocks"]
    frame = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    return frame.astype({"store_id": str, "sku_id": str})
