"""Where a chain stands: log factors, theta, priors, and everything that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int32
from ew_pipeline.method.families import GammaExposure, SampledFamily
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler import _sampler_kernels as kernels
from ew_pipeline.method.sampler import _theta_kernels as theta_kernels
from ew_pipeline.method.sampler._gradient_kernels import (
    CURVE_START,
    CURVE_STEP,
    GAMMA,
    THINNING,
    UNIFORM,
    ZERO,
)
from ew_pipeline.method.sampler._trajectory_kernels import leapfrog
from ew_pipeline.method.theta import RATE_CAP
from ew_pipeline.method.variational.axis_rates import EXTRA_RATES, PRIOR_COUNTS
from ew_pipeline.method.variational.fit import VariationalFit

SHAPE_GRID = np.exp(np.linspace(math.log(0.3), math.log(12.0), 24))


@dataclass(frozen=True, eq=False)
class CountTable:
    """Counts coded by their distinct values."""

    kinds: Float
    kind: Int32

    @classmethod
    def of(cls, data: Observations, kinds: Float | None = None) -> CountTable:
        """Code the counts by ``kinds`` (sorted, covering all of them; default: their own)."""
        if kinds is None:
            kinds = np.unique(data.counts)
        return cls(kinds, np.searchsorted(kinds, data.counts).astype(np.int32))


class SamplerState:
    """Position of a chain with everything derived from it."""

    def __init__(
        self,
        data: Observations,
        table: CountTable,
        family: SampledFamily,
        start: VariationalFit,
    ):
        self.data, self.table = data, table
        self.passes = 0  # gradient passes over the data so far
        self.code = _code(family)
        self.s = family.s if isinstance(family, GammaExposure) and self.code == GAMMA else 1.0
        self.shape_free = isinstance(family, GammaExposure) and family.shape_free
        scale = float(start.right.mean())
        self.logs = [
            _settled(np.log(np.maximum(start.left * scale, 1e-8))),
            _settled(np.log(np.maximum(start.right / scale, 1e-8))),
        ]
        rank = start.rank
        n, m = data.sales.shape
        self.factors = [np.empty((n, rank)), np.empty((m, rank))]
        self.single = [np.empty((rank, n), np.float32), np.empty((rank, m), np.float32)]
        self._refresh_factors()
        self.prior_shape = float(_settled(np.clip(np.mean(start.prior_shapes), 0.3, 12.0)))
        self.prior_rate = self.prior_shape / float(self.factors[0].mean())
        self.t = _settled(_start_theta(start, self.s))
        if not family.alpha_free:
            self.t[1] = 0.0  # alpha = 1/2, which is that of the uniform onset; the zero family has none
        size = table.kinds.size
        self.healthy_table, self.anomalous_table = np.empty(size), np.empty(size)
        self.log_odds, self.slope = np.empty(size, np.float32), np.empty(size, np.float32)
        self.shape_slope = np.zeros(size, np.float32)
        self.curves = uniform_table(table.kinds) if self.code == UNIFORM else np.zeros((1, 2, 2), np.float32)
        self.axes = start.axes
        self.at = [np.zeros(n, np.int64), np.zeros(m, np.int64)]
        if self.axes is not None:
            self.at = [np.argmax(share, axis=1) for share in self.axes.shares]
        self.spared = [1.0 - EXTRA_RATES[at] for at in self.at]
        self.spared32 = [spared.astype(np.float32) for spared in self.spared]
        self.refresh()

    def refresh(self) -> None:
        """Recompute what follows from the logs and t."""
        self._refresh_factors()
        self.refresh_theta()

    def _refresh_factors(self) -> None:
        for side in (0, 1):
            kernels.exponentials(self.logs[side], self.factors[side], self.single[side])

    def read_theta(self) -> None:
        """theta from its coordinates; the tables that depend on it stay as they are."""
        self.s0, self.alpha, self.rate = theta_kernels.theta_of(self.t, self.code)
        if self.shape_free:
            self.s = theta_kernels.shape_of(self.t)

    def refresh_theta(self) -> None:
        self.read_theta()
        theta_kernels.tables(
            self.table.kinds,
            self.s0,
            self.alpha,
            self.rate,
            self.s,
            self.code,
            self.healthy_table,
            self.anomalous_table,
            self.log_odds,
            self.slope,
            self.shape_slope,
        )

    def move_axes(self, current: list[Float], rng: np.random.Generator) -> float:
        """Move the extra anomaly rates of stores and SKUs; ``current`` (mu, f, log density) follows.

        Returns the log-likelihood.
        """
        if self.axes is None:
            raise ValueError("the chain has one anomaly rate for all")
        data, sales = self.data, self.data.sales
        views = (
            (sales.indptr, sales.cols, data.row_entry),
            (data.col_indptr, data.col_rows, data.col_entry),
        )
        n_rates = EXTRA_RATES.size
        for side, view in enumerate(views):
            if not self.axes.active[side]:
                continue
            at = self.at[side]
            counts = np.bincount(at, minlength=n_rates)
            weights = rng.standard_gamma(PRIOR_COUNTS + counts)
            kernels.move_lines(
                *view,
                self.table.kind,
                self.table.kinds,
                data.log_factorial,
                self.healthy_table,
                self.anomalous_table,
                self.s0,
                self.alpha,
                self.rate,
                self.s,
                self.code,
                EXTRA_RATES,
                np.log(np.maximum(weights, 1e-300)),
                (at + rng.integers(1, n_rates, at.size)) % n_rates,
                np.log(rng.random(at.size)),
                self.prior_shape,
                self.prior_rate if side == 0 else self.prior_shape,
                self.spared[1 - side],
                self.spared[side],
                at,
                self.logs[side],
                *current,
            )
            self.spared32[side][:] = self.spared[side]
        self.refresh()
        return float(current[2].sum())

    def densities(
        self,
        out: list[Float],
        on: tuple[Observations, CountTable] | None = None,
    ) -> float:
        """Exact mu, f and log density of every entry of the chain's data (or of others) into ``out``."""
        data, table = on or (self.data, self.table)
        return kernels.densities(
            data.sales.indptr,
            data.sales.cols,
            table.kind,
            table.kinds,
            data.level,
            data.log_factorial,
            self.factors[0],
            self.factors[1],
            self.spared[0],
            self.spared[1],
            self.healthy_table,
            self.anomalous_table,
            self.s0,
            self.alpha,
            self.rate,
            self.s,
            self.code,
            *out,
        )

    def prior_healthy(self) -> Float:
        """Of every entry: that it is healthy, before its sales are seen."""
        sales = self.data.sales
        return np.asarray((1.0 - self.rate) * self.spared[0][sales.rows] * self.spared[1][sales.cols])

    def log_prior(self, slope: Float) -> float:
        a, b = self.prior_shape, self.prior_rate
        return (
            theta_kernels.theta_prior(self.t, self.shape_free, slope)
            + a * float(self.logs[0].sum() + self.logs[1].sum())
            - b * float(self.factors[0].sum())
            - a * float(self.factors[1].sum())
        )

    def leapfrog(
        self,
        n_steps: int,
        step: float,
        chol: list[Float],
        scales: Float,
        theta_momentum: Float,
        momenta: list[Float],
    ) -> bool:
        """Move along a trajectory, momenta in place; whether theta stayed within its limits."""
        data = self.data
        within = leapfrog(
            n_steps,
            step,
            data.sales.indptr,
            data.sales.cols,
            self.table.kind,
            self.table.kinds,
            data.counts32,
            data.level32,
            self.code,
            self.s,
            self.shape_free,
            self.axes is not None,
            self.curves,
            self.prior_shape,
            self.prior_rate,
            self.spared[0],
            self.spared[1],
            self.spared32[0],
            self.spared32[1],
            chol[0],
            chol[1],
            scales,
            theta_momentum,
            momenta[0],
            momenta[1],
            self.t,
            self.logs[0],
            self.logs[1],
            self.factors[0],
            self.factors[1],
            self.single[0],
            self.single[1],
            self.healthy_table,
            self.anomalous_table,
            self.log_odds,
            self.slope,
            self.shape_slope,
        )
        self.read_theta()
        self.passes += n_steps + 1
        return within

    def resample_prior(self, rng: np.random.Generator) -> None:
        """Draw b and a given U, V."""
        left, right = self.factors
        self.prior_rate = rng.standard_gamma(self.prior_shape * left.size) / float(left.sum())
        self.prior_shape = theta_kernels.sample_prior_shape(
            rng.random(),
            SHAPE_GRID,
            left.size,
            right.size,
            float(self.logs[0].sum() + self.logs[1].sum()),
            float(right.sum()),
            self.prior_rate,
        )

    def metric(self, means: Float, healthy: Float) -> list[Float]:
        data, sales = self.data, self.data.sales
        anomalous = self.alpha * means
        weight = healthy * means / (1.0 + means / self.s0) + (1.0 - healthy) * anomalous / (
            1.0 + (anomalous / self.s if self.code == GAMMA else 0.0)
        )
        views = (
            (sales.indptr, sales.cols, data.row_entry),
            (data.col_indptr, data.col_rows, data.col_entry),
        )
        result = []
        for side, view in enumerate(views):
            own, other = self.factors[side], self.factors[1 - side]
            out = np.empty((own.shape[0], own.shape[1], own.shape[1]))
            kernels.metric(*view, weight, means, data.level, own, other, self.prior_shape, out)
            result.append(out)
        return result


def _settled(values: Float) -> Float:
    """Rounded to single precision: what leads up to a chain may differ by a last bit between processors,
    and a chain must start from the same place on all of them."""
    return np.asarray(np.asarray(values, np.float32), np.float64)


def _code(family: SampledFamily) -> int:
    if not isinstance(family, GammaExposure):
        return UNIFORM
    return GAMMA if family.shape_free or 0.0 < family.s < 1e9 else (ZERO if family.s == 0.0 else THINNING)


def uniform_table(kinds: Float) -> Float32:
    """Values and slopes of the uniform family's log-likelihood, up to where it is straight in log b."""
    top = math.log(float(kinds.max()) + 10.0) + 1.5
    out = np.empty((kinds.size, math.ceil((top - CURVE_START) / CURVE_STEP) + 1, 2), np.float32)
    theta_kernels.uniform_curves(kinds, CURVE_START, out)
    return out


def _start_theta(start: VariationalFit, shape: float) -> Float:
    """Coordinates of the variational estimate, kept off the bounds so that the chain can leave."""
    theta = start.parameters
    low, high = theta_kernels.LOG_SIZE_LOW, theta_kernels.LOG_SIZE_HIGH
    size = min(max(1.0 / max(theta.inverse_size, 1e-4), 0.6), 200.0)
    shares = np.array(
        [
            (math.log(size) - low) / (high - low),
            theta.alpha,
            theta.anomaly_rate / RATE_CAP,
            math.log(shape) / theta_kernels.LOG_SHAPE_HIGH,
        ]
    )
    shares = np.clip(shares, (0.02, 0.02, 0.02, 0.1), (0.98, 0.98, 0.98, 0.8))
    return np.asarray(np.log(shares / (1.0 - shares)))
