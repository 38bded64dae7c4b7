"""Other libraries on the same data. Each function puts the data into the form that its library wants and
returns what is to be timed; that returns the factors, left and right, or nothing where they do not estimate
demand."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ew_pipeline.core.arrays import available_threads
from ew_pipeline.method.paper.denoise import zero_filled
from ew_pipeline.studies.bench.outcome import SWEEPS
from ew_pipeline.studies.ensemble_sparse import SparseInstance

Factors = tuple[NDArray[Any], NDArray[Any]]
IMPLICIT_FACTORS = 8  # its kernels want a multiple of four
SPARK_MEMORY = "5g"


def implicit(instance: SparseInstance, rank: int) -> Callable[[], None]:
    from implicit.als import AlternatingLeastSquares

    sales = instance.sales
    matrix = sparse.csr_matrix(
        (sales.counts.astype(np.float32), sales.cols.copy(), sales.indptr.astype(np.int32)),
        shape=sales.shape,
    )
    model = AlternatingLeastSquares(
        factors=IMPLICIT_FACTORS,
        iterations=SWEEPS,
        random_state=0,
        use_gpu=False,
        num_threads=available_threads(),
    )
    return lambda: model.fit(matrix, show_progress=False)  # its factors rank pairs


def cmfrec(instance: SparseInstance, rank: int) -> Callable[[], Factors]:
    from cmfrec import CMF

    sales = instance.sales
    matrix = sparse.coo_matrix(
        (sales.counts.astype(np.float32), (sales.rows.copy(), sales.cols.copy())), shape=sales.shape
    )
    model = CMF(
        k=rank,
        lambda_=1.0,
        niter=SWEEPS,
        use_cg=False,
        user_bias=False,
        item_bias=False,
        center=False,
        verbose=False,
        nthreads=available_threads(),
    )

    def run() -> Factors:
        model.fit(matrix)
        return model.A_, model.B_

    return run


def svds(instance: SparseInstance, rank: int) -> Callable[[], Factors]:
    from scipy.sparse.linalg import svds as truncated

    matrix = zero_filled(instance.sales)

    def run() -> Factors:
        found: tuple[NDArray[Any], ...] = truncated(matrix, k=rank)
        return found[0] * (found[1] / instance.sales.density), found[2].T

    return run


def spark(instance: SparseInstance, rank: int) -> Callable[[], Factors]:
    """Read by Spark from a parquet file and cached before the clock starts; 2 threads are ``local[2]``."""
    import pandas as pd
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import SparkSession

    sales = instance.sales
    session = (
        SparkSession.builder.master(f"local[{available_threads()}]")
        .config("spark.driver.memory", SPARK_MEMORY)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sales.parquet"
        table = {"row": sales.rows, "col": sales.cols, "units": sales.counts.astype(np.float32)}
        pd.DataFrame(table).to_parquet(path, index=False, row_group_size=1 << 20)
        ratings = session.read.parquet(str(path)).cache()
        ratings.count()
    model = ALS(
        rank=rank,
        maxIter=SWEEPS,
        regParam=0.1,
        userCol="row",
        itemCol="col",
        ratingCol="units",
        seed=0,
        numUserBlocks=available_threads(),
        numItemBlocks=available_threads(),
    )

    def run() -> Factors:
        fitted = model.fit(ratings)
        left, right = np.zeros((sales.shape[0], rank)), np.zeros((sales.shape[1], rank))
        for side, found in ((left, fitted.userFactors), (right, fitted.itemFactors)):
            rows = found.toPandas()
            side[rows["id"].to_numpy()] = np.stack(rows["features"].tolist())
        return left, right

    return run


def fancyimpute(instance: SparseInstance, rank: int) -> Callable[[], Factors]:
    from fancyimpute import SoftImpute

    dense = instance.sales.to_dense()
    solver = SoftImpute(max_iters=SWEEPS, max_rank=rank, init_fill_method="mean", verbose=False)

    def run() -> Factors:
        u, s, vt = np.linalg.svd(solver.fit_transform(dense), full_matrices=False)
        return u[:, :rank] * s[:rank], vt[:rank].T

    return run
