"""Factors of the large fit, with the priors that are learnt and how well each line is known."""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Float32, Real
from ew_pipeline.method._layout import padded
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.entry_blocks import in_line_blocks
from ew_pipeline.method.large._als_kernels import Prior, Variance, gram
from ew_pipeline.method.large._cavity_kernels import leave_one_out_lines
from ew_pipeline.method.large.als import balanced, rounded, sweep

RIDGE = 1.0  # until the priors are learnt; see ``als``
FLOOR = 0.05


class FactorState:
    """Factors, their learnt priors and the inverse informations of all lines."""

    def __init__(self, left: Real, right: Real, priors: tuple[Prior, Prior]):
        self.left, self.right = left, right
        self.priors = priors
        rank = left.shape[1]
        size = rank * (rank + 1) // 2
        self.inverses: tuple[Real, Real] = (
            np.empty((len(left), size), dtype=left.dtype),
            np.empty((len(right), size), dtype=left.dtype),
        )
        self.sweeps = 0

    @classmethod
    def start(cls, both: BothWays, left: Real, right: Real) -> FactorState:
        return cls(left, right, ridges(left.shape[1], both.mean))

    def first_sweep(self, both: BothWays, variance: Variance, threads: int) -> None:
        """One from a start that is still far off: the priors stay, the factors are balanced."""
        self.left, self.right = balanced(*self._swept(both, variance, threads))

    def sweep(self, both: BothWays, variance: Variance, threads: int) -> None:
        """All rows given the columns, then all columns given the rows; the priors are learnt from both."""
        self.left, self.right = self._swept(both, variance, threads, self.inverses)
        self.priors = learnt_prior(self.left, self.inverses[0]), learnt_prior(self.right, self.inverses[1])
        self.sweeps += 1

    def _swept(
        self,
        both: BothWays,
        variance: Variance,
        threads: int,
        inverses: tuple[Real, Real] | tuple[None, None] = (None, None),
    ) -> tuple[Real, Real]:
        left, right, _ = sweep(
            both,
            self.left,
            self.right,
            priors=self.priors,
            floor=FLOOR * both.mean,
            variance=variance,
            threads=threads,
            inverses=inverses,
        )
        return left, right

    def predict(
        self,
        both: BothWays,
        variance: Variance,
        threads: int,
        means: Float32,
        cavity: Float32,
        cv2: Float32,
    ) -> None:
        """In-sample and leave-one-out means of all entries, and the latter's cv2, into the three arrays."""
        rows, right = both.by_row, padded(self.right)

        def block(first: int, end: int) -> None:
            leave_one_out_lines(
                first,
                end,
                rows.indptr,
                rows.others,
                rows.counts,
                rows.level,
                rows.healthy,
                self.left,
                right,
                self.inverses[0],
                self.inverses[1],
                FLOOR * both.mean,
                variance.inverse_size,
                variance.alpha,
                variance.inverse_shape,
                means,
                cavity,
                cv2,
            )

        in_line_blocks(block, rows.indptr, threads)


def learnt_prior(factor: Real, inverses: Real) -> Prior:
    """The Gaussian from which the lines' factors look drawn: their mean, and their covariance with each
    line's own uncertainty added (one EM step)."""
    values = factor.astype(np.float64)
    rank = values.shape[1]
    mean = values.mean(axis=0)
    away = values - mean
    uncertainty = np.zeros((rank, rank))
    uncertainty[np.tril_indices(rank)] = inverses.mean(axis=0, dtype=np.float64)
    uncertainty += np.tril(uncertainty, -1).T
    covariance = gram(away) / len(values) + uncertainty
    return Prior(rounded(np.linalg.inv(covariance), factor.dtype), mean)


def ridges(rank: int, mean: float) -> tuple[Prior, Prior]:
    """The priors of a start, for rows and for columns; ``mean``: the mean rate."""
    prior = Prior.ridge(rank, RIDGE * rank / mean)
    return prior, prior
