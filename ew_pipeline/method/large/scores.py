"""What the large fit says of an entry from its predicted mean: f, and its weight in the regressions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from ew_pipeline.core.arrays import Float, Float32, Int32
from ew_pipeline.method._kernels import mixture
from ew_pipeline.method.entry_blocks import in_entry_blocks
from ew_pipeline.method.families import ExposureFamily, GammaExposure, UniformExposure
from ew_pipeline.method.large._als_kernels import Variance
from ew_pipeline.method.large._healthy_kernels import healthy_entries
from ew_pipeline.method.variational.theta import Parameters, entry_scores

UNIFORM_SHAPE = 3.0  # the Gamma exposure with the variance of a uniform one
CHUNK = 1 << 19  # entries that are scored at a time where a family is not compiled
MOST_TABLED = 4096  # counts; of greater ones, where one typing error makes two thousand million, log Gamma


def healthy_probabilities(
    counts: Int32,
    means: Float32,
    cv2: Float32,
    family: ExposureFamily,
    p: Parameters,
    threads: int = 1,
    out: Float32 | None = None,
) -> Float32:
    """f of every entry from its predicted mean, in ``out`` if it is given."""
    healthy = np.empty(counts.size, dtype=np.float32) if out is None else out
    s = _shape(family)
    rising = _rising_logs(s, int(counts.max(initial=0)))

    def compiled(first: int, end: int) -> None:
        healthy_entries(
            first,
            end,
            counts,
            means,
            cv2,
            family.mean_factor(p.alpha),
            p.anomaly_rate,
            p.inverse_size,
            s,
            rising,
            healthy,
        )

    def general(first: int, end: int) -> None:
        for at in range(first, end, CHUNK):
            part = slice(at, min(at + CHUNK, end))
            log_healthy, mixed = log_predictive(
                counts[part], means[part].astype(np.float64), cv2[part].astype(np.float64), family, p
            )
            healthy[part] = (1.0 - p.anomaly_rate) * np.exp(log_healthy - mixed)

    in_entry_blocks(compiled if isinstance(family, GammaExposure) else general, counts.size, threads)
    return healthy


def _rising_logs(s: float, largest: int) -> Float:
    """Sums over k < x of log(1 + k / s) for x = 0, 1, … as far as a table goes; empty where all are 0."""
    if not 0.0 < s < math.inf:
        return np.empty(0)
    return np.append(0.0, np.cumsum(np.log1p(np.arange(min(largest, MOST_TABLED)) / s)))


@dataclass(frozen=True, eq=False)
class BareCounts:
    """Counts with log x! and nothing else."""

    counts: Float
    log_factorial: Float

    @classmethod
    def of(cls, counts: Int32) -> BareCounts:
        x = counts.astype(np.float64)
        return cls(x, np.asarray(gammaln(x + 1.0)))


def log_predictive(
    counts: Int32, means: Float, cv2: Float, family: ExposureFamily, p: Parameters
) -> tuple[Float, Float]:
    """log P of each count if healthy, and under the mixture."""
    data = BareCounts.of(counts)
    log_healthy = np.empty(counts.size)
    mixture.healthy_log_pmf(data.counts, data.log_factorial, means, cv2, p.inverse_size, log_healthy)
    log_anomalous, _ = family.terms(data, means, p.alpha)
    return log_healthy, entry_scores(log_healthy, log_anomalous, np.full(counts.size, p.anomaly_rate))


def _shape(family: ExposureFamily) -> float:
    """s of the anomalous exposure, for the weights of the regressions."""
    if isinstance(family, GammaExposure):
        return family.s
    return UNIFORM_SHAPE if isinstance(family, UniformExposure) else 1.0


def variance_of(family: ExposureFamily, p: Parameters) -> Variance:
    shape = _shape(family)
    return Variance(
        inverse_size=p.inverse_size,
        alpha=max(family.mean_factor(p.alpha), 1e-6),
        inverse_shape=1.0 / shape if 0.0 < shape < math.inf else 0.0,
    )
