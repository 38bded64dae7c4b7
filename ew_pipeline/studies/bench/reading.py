"""A long parquet file to a ``SalesMatrix``, and as one would with pandas to sparse rows.

Run as ``python -m ew_pipeline.studies.bench.reading WHO FILE``; prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from ew_pipeline.core.week import Week
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.bench.measure import child, medians
from ew_pipeline.studies.bench.processes import PeakMemory
from ew_pipeline.studies.bench.stored import load
from ew_pipeline.studies.ensemble import SparseSettings, draw_week

WEEK = "2026-W30"
READERS = ("ours", "pandas")
FEW = 100  # rows


def write_long(folder: Path, weeks: int = 1) -> Path:
    """The stored data as a long table, the last of ``weeks``, in an order of no use to anybody."""
    instance = load(folder)
    sales, rng = instance.sales, np.random.default_rng(0)
    order = rng.permutation(sales.n_observed * weeks)
    settings = SparseSettings(*sales.shape, sales.n_observed)
    past = [draw_week(settings, instance.rates, rng)[0] for _ in range(weeks - 1)]
    names = pa.array([str(Week.parse(WEEK).shift(-k)) for k in range(weeks)])
    stores, skus = (
        pa.array([f"{what}{k:06d}" for k in range(n)]) for what, n in zip("SK", sales.shape, strict=True)
    )
    pair = order % sales.n_observed
    path = folder / "long.parquet"
    table = pa.table(
        {
            "store_id": stores.take(pa.array(sales.rows[pair])),
            "sku_id": skus.take(pa.array(sales.cols[pair])),
            "week": names.take(pa.array(order // sales.n_observed)),
            "units": np.concatenate([sales.counts, *past])[order].astype(np.int64),
        }
    )
    pq.write_table(table, path, row_group_size=1 << 20)
    return path


def compare_readers(folder: Path, repeats: int = 1) -> dict[str, dict[str, Any]]:
    """Both readers on the same file, each in a process of its own, turn by turn; medians."""
    path = write_long(folder)
    turns: dict[str, list[dict[str, Any]]] = {who: [] for who in READERS}
    try:
        for _ in range(repeats):
            for who, took in turns.items():
                took.append(child("ew_pipeline.studies.bench.reading", who, str(path)))
    finally:
        path.unlink()
    return {who: medians(took) for who, took in turns.items()}


def read_with_pandas(path: Path) -> sparse.csr_matrix:
    """As one would with what pandas does by itself: codes of the sorted ids, and sparse rows of them. Ours
    refuses copies, gaps and counts that are none besides."""
    frame = pd.read_parquet(path)
    frame = frame[frame["week"] == WEEK]
    row, stores = pd.factorize(frame["store_id"], sort=True)
    col, skus = pd.factorize(frame["sku_id"], sort=True)
    shape = len(stores), len(skus)
    return sparse.csr_matrix((frame["units"].to_numpy(np.int32), (row, col)), shape=shape)


def main(who: str, path: str) -> None:
    """The child's part. A few rows are read first: what is loaded or compiled for it once is told apart."""
    read: Callable[[Path], Any] = SalesMatrix.from_parquet if who == "ours" else read_with_pandas
    warm_up = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        few = Path(place) / "few.parquet"
        batch = next(pq.ParquetFile(path).iter_batches(FEW))
        pq.write_table(pa.Table.from_batches([batch]), few)
        read(few)
    warm_up = time.process_time() - warm_up
    with PeakMemory() as memory:
        cpu, wall = time.process_time(), time.perf_counter()
        found = read(Path(path))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    cols, counts = (
        (found.cols, found.counts) if isinstance(found, SalesMatrix) else (found.indices, found.data)
    )
    figures = {
        "warm_up_cpu_s": warm_up,
        "cpu_s": cpu,
        "wall_s": wall,
        "peak_gb": memory.extra / 1e9,
        "result_gb": (cols.nbytes + counts.nbytes) / 1e9,
        "units": int(counts.sum()),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
