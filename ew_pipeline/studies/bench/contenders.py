"""What is compared: each contender takes sales to what it is for, and says how good that was.

Ours go from the sparse sales to f; the peers do the matrix completion alone. A peer that is not installed,
or whose arrays do not fit, is skipped with the reason. All get the same number of threads.

A peer's function puts the data into the form that its library wants and returns what is timed. That returns
the factors, left and right, or nothing where they do not estimate demand.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ew_pipeline.core.arrays import available_threads
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.paper.denoise import zero_filled
from ew_pipeline.studies.bench.als import als
from ew_pipeline.studies.bench.outcome import SWEEPS, Outcome, error_at, relative_error
from ew_pipeline.studies.bench.stored import Size
from ew_pipeline.studies.ensemble import SparseInstance

Factors = tuple[NDArray[Any], NDArray[Any]]
IMPLICIT_FACTORS = 8  # its kernels want a multiple of four
SPARK_MEMORY = "5g"
RIDGE = 1.0  # lambda of the squared error, for ours and cmfrec's alike
DENSE_COPIES, MOST_DENSE = 4, 2e9  # of an n x m array in a library that knows no sparse data; bytes
Look = Callable[[], Outcome]
Work = Callable[[], Look]


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
        lambda_=RIDGE,
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


@dataclass(frozen=True)
class Contender:
    """``prepare`` puts the data into the contender's own form and is not timed; ``work``, which it returns,
    is; what that returns is looked at after. ``needs``: the module that must be there."""

    name: str
    what: str
    prepare: Callable[[SparseInstance, int], Work]
    needs: str = "ew_pipeline"
    program: str = ""
    dense: bool = False

    @property
    def ours(self) -> bool:
        return self.name.startswith("ours")

    def absent(self, size: Size) -> str:
        """Why it cannot run here; empty if it can."""
        needed = 8.0 * size.rows * size.cols * DENSE_COPIES
        if self.dense and needed > MOST_DENSE:
            return f"it works on dense arrays, {needed / 1e9:.0f} GB at this size"
        if find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        if self.program and shutil.which(self.program) is None:
            return f"it needs {self.program}, which is not on the path"
        return ""


def _detector(mode: str, fixed_rank: bool) -> Callable[[SparseInstance, int], Work]:
    def prepare(instance: SparseInstance, rank: int) -> Work:
        def work() -> Look:
            fit = EntrywiseDetector(mode, rank=rank if fixed_rank else "auto").fit(instance.sales)

            def look() -> Outcome:
                low, high = fit.theta_.anomaly_rate_interval
                facts: dict[str, float | str] = {
                    "rank": fit.rank_,
                    "noise": fit.noise_,
                    "alpha": fit.theta_.alpha,
                    "anomaly_rate": fit.theta_.anomaly_rate,
                    "anomaly_rate_low": low,
                    "anomaly_rate_high": high,
                    **fit.diagnostics_,
                }
                return Outcome(
                    relative_error(fit.expected_sales_, instance.rates),
                    error_at(instance, fit.factors_.left, fit.factors_.right),
                    facts,
                )

            return look

        return work

    return prepare


def _our_als(least_squares: int, ridge: Callable[[int], float]) -> Callable[[SparseInstance, int], Work]:
    def prepare(instance: SparseInstance, rank: int) -> Work:
        def work() -> Look:
            fit = als(
                instance.sales,
                rank,
                np.random.default_rng(0),
                sweeps_least_squares=least_squares,
                sweeps_poisson=SWEEPS - least_squares,
                ridge=ridge(rank),
                threads=available_threads(),
            )
            return lambda: _of_factors(instance, fit.factors.left, fit.factors.right)

        return work

    return prepare


def _of_factors(instance: SparseInstance, left: NDArray[Any], right: NDArray[Any]) -> Outcome:
    sales = instance.sales
    found = np.empty(sales.n_observed)
    for first in range(0, found.size, 1 << 20):
        part = slice(first, first + (1 << 20))
        found[part] = np.einsum("er,er->e", left[sales.rows[part]], right[sales.cols[part]])
    return Outcome(relative_error(found, instance.rates), error_at(instance, left, right))


def _peer(
    fit: Callable[[SparseInstance, int], Callable[[], Factors | None]],
) -> Callable[[SparseInstance, int], Work]:
    def prepare(instance: SparseInstance, rank: int) -> Work:
        run = fit(instance, rank)

        def work() -> Look:
            found = run()
            return Outcome if found is None else lambda: _of_factors(instance, *found)

        return work

    return prepare


CONTENDERS = (
    Contender("ours: fast", "sales to f, one round, automatic rank", _detector("fast", False)),
    Contender("implicit ALS", f"8 factors, {SWEEPS} iterations", _peer(implicit), "implicit"),
    Contender("ours: default, fixed rank", "sales to f", _detector("large", True)),
    # Its penalty is in units of a prior, ridge * rank / mean of a loss divided by the mean: this is lambda.
    Contender(
        "ours: ALS as cmfrec", f"{SWEEPS} least-squares sweeps", _our_als(SWEEPS, lambda rank: RIDGE / rank)
    ),
    Contender("cmfrec ALS", f"the same rank, lambda and {SWEEPS} iterations", _peer(cmfrec), "cmfrec"),
    Contender("ours: ALS", "4 least-squares and 6 Poisson-weighted sweeps", _our_als(4, lambda rank: 1.0)),
    Contender("ours: default", "sales to f, automatic rank and noise", _detector("large", False)),
    Contender("Spark ALS", f"the same rank, {SWEEPS} iterations", _peer(spark), "pyspark", "java"),
    Contender("scipy svds", "zero-filled, the same rank", _peer(svds), "scipy"),
    Contender(
        "fancyimpute", f"SoftImpute, {SWEEPS} iterations", _peer(fancyimpute), "fancyimpute", dense=True
    ),
)
