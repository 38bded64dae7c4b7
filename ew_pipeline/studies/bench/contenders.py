"""What is compared: each contender takes sales to what it is for, and says how good that was.

Ours go from the sparse sales to f; the peers do the matrix completion alone. A peer that is not installed,
or whose arrays do not fit, is skipped with the reason. All get the same number of threads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.arrays import available_threads
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.studies.bench import peers
from ew_pipeline.studies.bench.als import als
from ew_pipeline.studies.bench.outcome import SWEEPS, Outcome, error_at, relative_error
from ew_pipeline.studies.bench.stored import Size
from ew_pipeline.studies.ensemble_sparse import SparseInstance

RIDGE = 1.0  # lambda of the squared error, for ours and cmfrec's alike
DENSE_COPIES, MOST_DENSE = 4, 2e9  # of an n x m array in a library that knows no sparse data; bytes

Look = Callable[[], Outcome]
Work = Callable[[], Look]


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
    fit: Callable[[SparseInstance, int], Callable[[], peers.Factors | None]],
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
    Contender("implicit ALS", f"8 factors, {SWEEPS} iterations", _peer(peers.implicit), "implicit"),
    Contender("ours: default, fixed rank", "sales to f", _detector("large", True)),
    # Its penalty is in units of a prior, ridge * rank / mean of a loss divided by the mean: this is lambda.
    Contender(
        "ours: ALS as cmfrec", f"{SWEEPS} least-squares sweeps", _our_als(SWEEPS, lambda rank: RIDGE / rank)
    ),
    Contender("cmfrec ALS", f"the same rank, lambda and {SWEEPS} iterations", _peer(peers.cmfrec), "cmfrec"),
    Contender("ours: ALS", "4 least-squares and 6 Poisson-weighted sweeps", _our_als(4, lambda rank: 1.0)),
    Contender("ours: default", "sales to f, automatic rank and noise", _detector("large", False)),
    Contender("Spark ALS", f"the same rank, {SWEEPS} iterations", _peer(peers.spark), "pyspark", "java"),
    Contender("scipy svds", "zero-filled, the same rank", _peer(peers.svds), "scipy"),
    Contender(
        "fancyimpute", f"SoftImpute, {SWEEPS} iterations", _peer(peers.fancyimpute), "fancyimpute", dense=True
    ),
)
