"""A long parquet file to a ``SalesMatrix``, ours and as one would with pandas.

Run as ``python -m ew_pipeline.bench.reading WHO FILE``; prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ew_pipeline.bench.measure import child
from ew_pipeline.bench.processes import PeakMemory
from ew_pipeline.bench.stored import load
from ew_pipeline.data.sales_matrix import SalesMatrix

WEEK = "2026-W30"
READERS = ("ours", "pandas")


def write_long(folder: Path) -> Path:
    """The stored data as a long table, in an order of no use to anybody."""
    sales = load(folder).sales
    order = np.random.default_rng(0).permutation(sales.n_observed)
    stores, skus = (
        pa.array([f"{what}{k:06d}" for k in range(n)]) for what, n in zip("SK", sales.shape, strict=True)
    )
    path = folder / "long.parquet"
    table = pa.table(
        {
            "store_id": stores.take(pa.array(sales.rows[order])),
            "sku_id": skus.take(pa.array(sales.cols[order])),
            "week": pa.repeat(WEEK, sales.n_observed),
            "units": sales.counts[order].astype(np.int64),
        }
    )
    pq.write_table(table, path, row_group_size=1 << 20)
    return path


def compare_readers(folder: Path) -> dict[str, dict[str, Any]]:
    """Both readers on the same file, each in a process of its own."""
    path = write_long(folder)
    try:
        return {who: child("ew_pipeline.bench.reading", who, str(path)) for who in READERS}
    finally:
        path.unlink()


def read_with_pandas(path: Path) -> SalesMatrix:
    frame = pd.read_parquet(path)
    frame = frame[frame["week"] == WEEK]
    return SalesMatrix.from_long(frame, WEEK)


def main(who: str, path: str) -> None:
    """The child's part."""
    read = SalesMatrix.from_parquet if who == "ours" else read_with_pandas
    with PeakMemory() as memory:
        cpu, wall = time.process_time(), time.perf_counter()
        sales = read(Path(path))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    held = sales.cols.nbytes + sales.counts.nbytes
    figures = {
        "cpu_s": cpu,
        "wall_s": wall,
        "peak_gb": memory.extra / 1e9,
        "result_gb": held / 1e9,
        "units": int(sales.counts.sum()),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
