"""What is compared: each contender takes sales to what it is for, and says how good that was.

Ours go from the sparse sales to f; the peers do the matrix completion alone. A peer that is not installed
is skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ew_pipeline.algorithm._blocks import available_threads
from ew_pipeline.algorithm.als import als
from ew_pipeline.algorithm.detector import EntrywiseDetector
from ew_pipeline.algorithm.svd import zero_filled
from ew_pipeline.data.synthetic_sparse import SparseInstance

SWEEPS = 10
PEER_FACTORS = 8  # implicit's kernels want a multiple of four
UNOBSERVED = 300_000  # pairs at which factors are compared with the truth


@dataclass(frozen=True)
class Outcome:
    """Relative error of demand on observed and on unobserved pairs, and theta where there is one."""

    observed_error: float | None = None
    unobserved_error: float | None = None
    facts: dict[str, float | str] | None = None


@dataclass(frozen=True)
class Contender:
    """``needs``: the module that must be there. ``work`` is timed; what it returns is looked at after."""

    name: str
    what: str
    work: Callable[[SparseInstance, int], Callable[[], Outcome]]
    needs: str = "ew_pipeline"

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty if it can."""
        try:
            import_module(self.needs)
        except ImportError:
            return f"{self.needs} is not installed (pip install 'ew-pipeline[bench]')"
        return ""


def _error_at(instance: SparseInstance, left: NDArray[Any], right: NDArray[Any]) -> float:
    rng = np.random.default_rng(5)
    i = rng.integers(0, len(left), UNOBSERVED)
    j = rng.integers(0, len(right), UNOBSERVED)
    truth = np.einsum("er,er->e", instance.left[i], instance.right[j])
    found = np.einsum("er,er->e", left[i], right[j])
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def _relative(found: NDArray[Any], truth: NDArray[Any]) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def _detector(mode: str, fixed_rank: bool) -> Callable[[SparseInstance, int], Callable[[], Outcome]]:
    def work(instance: SparseInstance, rank: int) -> Callable[[], Outcome]:
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
            }
            return Outcome(
                _relative(fit.expected_sales_, instance.rates),
                _error_at(instance, fit.factors_.left, fit.factors_.right),
                facts,
            )

        return look

    return work


def _our_als(instance: SparseInstance, rank: int) -> Callable[[], Outcome]:
    fit = als(
        instance.sales,
        rank,
        np.random.default_rng(0),
        sweeps_least_squares=4,
        sweeps_poisson=SWEEPS - 4,
        threads=available_threads(),
    )
    return lambda: Outcome(
        _relative(fit.factors.rates_at(instance.sales), instance.rates),
        _error_at(instance, fit.factors.left, fit.factors.right),
    )


def _implicit(instance: SparseInstance, rank: int) -> Callable[[], Outcome]:
    from implicit.als import AlternatingLeastSquares

    sales = instance.sales
    matrix = sparse.csr_matrix(
        (sales.counts.astype(np.float32), sales.cols.copy(), sales.indptr.astype(np.int32)),
        shape=sales.shape,
    )
    model = AlternatingLeastSquares(factors=PEER_FACTORS, iterations=SWEEPS, random_state=0, use_gpu=False)
    model.fit(matrix, show_progress=False)
    return Outcome  # its factors rank pairs; they do not estimate demand


def _cmfrec(instance: SparseInstance, rank: int) -> Callable[[], Outcome]:
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
    model.fit(matrix)
    return lambda: Outcome(unobserved_error=_error_at(instance, model.A_, model.B_))


def _svds(instance: SparseInstance, rank: int) -> Callable[[], Outcome]:
    from scipy.sparse.linalg import svds

    found: tuple[NDArray[Any], ...] = svds(zero_filled(instance.sales), k=rank)
    left = found[0] * (found[1] / instance.sales.density)
    return lambda: Outcome(unobserved_error=_error_at(instance, left, found[2].T))


CONTENDERS = (
    Contender("ours: fast", "sales to f, one round, automatic rank", _detector("fast", False)),
    Contender("ours: default, fixed rank", "sales to f", _detector("large", True)),
    Contender("ours: default", "sales to f, automatic rank and noise", _detector("large", False)),
    Contender("ours: ALS alone", "4 least-squares and 6 Poisson-weighted sweeps", _our_als),
    Contender("implicit ALS", "8 factors, 10 iterations", _implicit, "implicit"),
    Contender("cmfrec ALS", "the same rank, 10 iterations", _cmfrec, "cmfrec"),
    Contender("scipy svds", "zero-filled, the same rank", _svds, "scipy"),
)
OURS = tuple(c.name for c in CONTENDERS if c.name.startswith("ours"))
