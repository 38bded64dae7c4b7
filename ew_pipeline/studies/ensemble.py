"""The paper's synthetic ensemble (section 4, "Synthetic Data"), with its truth in a type of its own.

One instance is one week of n stores by m SKUs:

1. M* = k U V^T with U (n x r), V (m x r) of independent Gamma(1, 2) entries; k makes the mean of M* exact.
2. A pair is observed with probability p_O. A healthy one sells Poisson(M*); with probability p_A it is
   anomalous and sells Poisson(E M*), E the part of the week before the record went wrong.
3. Both costs of a pair are uniform on [0, 10].

Exp(alpha) is the exponential distribution with *mean* alpha: the text says E[Anom(alpha, M)] = alpha M.

Beyond the paper: negative binomial noise, other anomaly families, block-missing observations and anomalies
that hit whole stores or SKUs. For one seed, settings that differ only in noise or family share M*, the
observed set, the anomalous pairs and the costs, because the counts are drawn last.

At national scale (``draw_sparse``) a given number of distinct pairs is drawn, and no n x m array is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit, gammainc, gammaln, hyp1f1, logit, xlogy

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.sales_matrix import SalesMatrix

Noise = Literal["poisson", "negative_binomial"]
Family = Literal["exponential", "thinning", "zero", "uniform_onset", "uniform"]
ObservedPattern = Literal["uniform", "block"]
AnomalyPattern = Literal["independent", "store", "sku", "both"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Array = TypeVar("Array", bound=npt.NDArray[np.generic])

BLOCKS_PER_AXIS = 10
CHUNK = 1 << 20  # pairs whose rates are formed at a time


@dataclass(frozen=True)
class EnsembleSettings:
    """What to draw. ``None`` means: drawn for each instance from the paper's range.

    Parameters
    ----------
    n, m
        Stores and SKUs.
    rank
        Integer, uniform on 1..10 (never above min(n, m)).
    mean
        Mean of all entries of M*, uniform on [1, 10].
    observed_share
        p_O, uniform on [0.5, 1].
    anomaly_rate
        p_A, uniform on [0, 0.3].
    alpha
        Anomaly parameter, uniform on [0, 1]. Not used by the families ``zero`` and ``uniform_onset``,
        which have none: the truth then records the mean factor, 0 and 0.5.
    noise, dispersion_size
        ``poisson``, or ``negative_binomial`` with X ~ Poisson(G M), G ~ Gamma(size s0, mean 1), hence
        variance M + M^2/s0. In an anomalous pair E takes the place of G: X ~ Poisson(E M) under
        either noise, as in the exposure form of the detector.
    family
        ``exponential``: E ~ Exp with mean alpha (the paper). ``thinning``: E = alpha. ``zero``: E = 0.
        ``uniform_onset``: the record goes wrong at a uniform time of the week, E ~ U(0, 1).
        ``uniform``: E ~ U(0, 2 alpha). The mean factor g is E's mean: alpha, alpha, 0, 1/2, alpha.
    omega
        ``uniform``: pairs observed independently. ``block``: the stores and the SKUs form 10 groups each
        (more when p_O < 1/10) and whole blocks are unobserved. The expected share is p_O and every
        row and column keeps an observed entry.
    anomalies
        ``independent``, or concentrated on hot stores (``store``), hot SKUs (``sku``) or both kinds
        (``both``: a pair is hot when its store or its SKU is). A hot pair is anomalous with probability
        ``hot_rate``; hot pairs hold the share ``hot_share`` of all anomalies in expectation, the others
        have the low rate that makes every pair's marginal rate exactly p_A.
    cost_high
        Both costs are U[0, cost_high].
    """

    n: int = 100
    m: int = 100
    rank: int | None = None
    mean: float | None = None
    observed_share: float | None = None
    anomaly_rate: float | None = None
    alpha: float | None = None
    noise: Noise = "poisson"
    dispersion_size: float | None = None
    family: Family = "exponential"
    omega: ObservedPattern = "uniform"
    anomalies: AnomalyPattern = "independent"
    hot_rate: float = 0.9
    hot_share: float = 0.5
    cost_high: float = 10.0

    def __post_init__(self) -> None:
        _require(self.n >= 1 and self.m >= 1, f"n = {self.n} and m = {self.m} must be at least 1")
        _require(
            self.rank is None or 1 <= self.rank <= min(self.n, self.m),
            f"rank = {self.rank} must lie in 1..min(n, m) = {min(self.n, self.m)}",
        )
        _require(self.mean is None or 0 < self.mean < np.inf, f"mean = {self.mean} must be positive")
        for name in ("observed_share", "anomaly_rate", "alpha", "hot_share"):
            value = getattr(self, name)
            _require(value is None or 0 <= value <= 1, f"{name} = {value} must lie in [0, 1]")
        _require(0 < self.hot_rate <= 1, f"hot_rate = {self.hot_rate} must lie in (0, 1]")
        _require(0 <= self.cost_high < np.inf, f"cost_high = {self.cost_high} must be finite, not negative")
        for name, allowed in (
            ("noise", Noise),
            ("family", Family),
            ("omega", ObservedPattern),
            ("anomalies", AnomalyPattern),
        ):
            value = getattr(self, name)
            _require(value in get_args(allowed), f"{name} = {value!r} is not one of {get_args(allowed)}")
        size = self.dispersion_size
        if self.noise == "negative_binomial":
            _require(
                size is not None and 0 < size < np.inf,
                f"negative binomial noise needs a positive dispersion_size, not {size}",
            )
        else:
            _require(size is None, f"Poisson noise has no dispersion_size ({size} given)")


@dataclass(frozen=True, eq=False)
class Truth:
    """What generated an instance. Estimators never see it; evaluation does.

    ``anomalous`` and ``healthy_probability`` run over the observed entries in row-major order.
    ``healthy_probability`` is f* = P(no anomaly | X, true parameters), Eq. (fij-star), section 3. With
    correlated anomalies it uses the marginal rate p_A of a single pair (the per-cell ideal), so a method
    that learns which stores are hot can have negative regret against it.
    """

    rates: FloatArray
    anomalous: BoolArray
    alpha: float
    anomaly_rate: float
    observed_share: float
    rank: int
    noise: Noise
    dispersion_size: float | None
    family: Family
    healthy_probability: FloatArray
    hot_stores: BoolArray
    hot_skus: BoolArray


@dataclass(frozen=True, eq=False)
class SyntheticInstance:
    """One week: what a detector may see, what the decision costs, and (apart) the truth.

    The costs run over the observed entries in row-major order.
    """

    sales: SalesMatrix
    costs_false_alarm: FloatArray
    costs_missed: FloatArray
    truth: Truth


def draw_instance(settings: EnsembleSettings, rng: np.random.Generator) -> SyntheticInstance:
    """Draw one instance of the ensemble (section 4, steps (i) to (iii))."""
    n, m = settings.n, settings.m
    # All five parameters are drawn even when given, so that fixing one leaves the others as they were.
    drawn_rank = min(int(rng.integers(1, 11)), n, m)
    drawn_mean, drawn_share = float(rng.uniform(1, 10)), float(rng.uniform(0.5, 1))
    drawn_rate, drawn_alpha = float(rng.uniform(0, 0.3)), float(rng.uniform(0, 1))
    rank = drawn_rank if settings.rank is None else settings.rank
    mean = drawn_mean if settings.mean is None else settings.mean
    p_O = drawn_share if settings.observed_share is None else settings.observed_share
    p_A = drawn_rate if settings.anomaly_rate is None else settings.anomaly_rate
    alpha = drawn_alpha if settings.alpha is None else settings.alpha
    if settings.family in ("zero", "uniform_onset"):
        alpha = 0.0 if settings.family == "zero" else 0.5

    U, V = rng.gamma(1.0, 2.0, size=(n, rank)), rng.gamma(1.0, 2.0, size=(m, rank))
    M = U @ V.T
    M *= mean / M.mean()
    Omega = _draw_blocks(n, m, p_O, rng) if settings.omega == "block" else rng.random((n, m)) < p_O
    rates, hot_stores, hot_skus = _draw_cell_rates(settings, p_A, rng)
    rows, cols = np.nonzero(Omega)
    B = (rng.random((n, m)) < rates)[rows, cols]
    c0 = rng.uniform(0, settings.cost_high, size=rows.size)
    c1 = rng.uniform(0, settings.cost_high, size=rows.size)

    M_Omega = M[rows, cols]
    E = np.where(
        B,
        _draw_exposure(settings.family, alpha, rows.size, rng),
        _draw_healthy_exposure(settings.dispersion_size, rows.size, rng),
    )
    X = rng.poisson(E * M_Omega)
    sales = SalesMatrix.from_coo(rows, cols, X, (n, m))
    f = _healthy_probability(X, M_Omega, p_A, alpha, settings.family, settings.dispersion_size)
    truth = Truth(
        rates=_frozen(M),
        anomalous=_frozen(B),
        alpha=alpha,
        anomaly_rate=p_A,
        observed_share=p_O,
        rank=rank,
        noise=settings.noise,
        dispersion_size=settings.dispersion_size,
        family=settings.family,
        healthy_probability=_frozen(f),
        hot_stores=_frozen(hot_stores),
        hot_skus=_frozen(hot_skus),
    )
    return SyntheticInstance(sales, _frozen(c0), _frozen(c1), truth)


def _draw_blocks(n: int, m: int, p_O: float, rng: np.random.Generator) -> BoolArray:
    """Observed set with whole blocks missing, expected share p_O, no empty row or column.

    On a G x G grid of blocks a random permutation's blocks are kept for sure, and K others are lost,
    uniformly chosen; K is (1 - p_O) G^2 rounded at random. Every block is then lost with probability
    1 - p_O, whatever its area.
    """
    G = min(n, m, max(BLOCKS_PER_AXIS, int(np.ceil(1 / p_O)) if p_O > 0 else BLOCKS_PER_AXIS))
    lost = (1 - p_O) * G**2
    if lost > G**2 - G + 1e-9:
        raise UsageError(
            f"block-missing data of {n} x {m} cannot keep an entry in every row and column"
            f" at observed_share = {p_O:g}",
            next_step=f"use observed_share >= 1/min(n, m) = {1 / min(n, m):g}, or omega='uniform'",
        )
    K = min(int(np.floor(lost + rng.random())), G**2 - G)
    keep = np.zeros((G, G), dtype=np.bool_)
    keep[np.arange(G), rng.permutation(G)] = True
    candidates = np.flatnonzero(~keep)
    grid = np.ones(G * G, dtype=np.bool_)
    grid[rng.choice(candidates, size=K, replace=False)] = False
    store_group, sku_group = np.arange(n) * G // n, np.arange(m) * G // m
    return grid.reshape(G, G)[np.ix_(store_group, sku_group)]


def _draw_cell_rates(
    settings: EnsembleSettings, p_A: float, rng: np.random.Generator
) -> tuple[FloatArray, BoolArray, BoolArray]:
    """P(anomaly) of every pair given which stores and SKUs are hot; its marginal is p_A everywhere."""
    n, m = settings.n, settings.m
    hot_stores, hot_skus = np.zeros(n, dtype=np.bool_), np.zeros(m, dtype=np.bool_)
    if settings.anomalies == "independent":
        return np.full((n, m), p_A), hot_stores, hot_skus
    q = settings.hot_share * p_A / settings.hot_rate  # probability that a pair is hot
    low = (1 - settings.hot_share) * p_A / (1 - q) if q < 1 else 0.0
    _require(
        q <= 1 and low <= settings.hot_rate,
        f"anomaly_rate = {p_A:g} cannot be concentrated with hot_rate = {settings.hot_rate:g}:"
        " the hot pairs would be no hotter than the others",
    )
    per_axis = 1 - np.sqrt(1 - q) if settings.anomalies == "both" else q
    if settings.anomalies in ("store", "both"):
        hot_stores[rng.permutation(n)[: int(np.floor(n * per_axis + rng.random()))]] = True
    if settings.anomalies in ("sku", "both"):
        hot_skus[rng.permutation(m)[: int(np.floor(m * per_axis + rng.random()))]] = True
    hot = hot_stores[:, None] | hot_skus[None, :]
    return np.where(hot, settings.hot_rate, low), hot_stores, hot_skus


def _draw_exposure(family: Family, alpha: float, size: int, rng: np.random.Generator) -> FloatArray:
    """E of anomalous pairs."""
    if family == "exponential":
        return rng.exponential(alpha, size=size)
    if family in ("uniform", "uniform_onset"):
        return rng.uniform(0, 2 * alpha, size=size)
    return np.full(size, alpha)


def _draw_healthy_exposure(s0: float | None, size: int, rng: np.random.Generator) -> FloatArray:
    """G of healthy pairs: 1 under Poisson noise, Gamma(s0) with mean 1 under negative binomial noise."""
    return np.ones(size) if s0 is None else rng.gamma(s0, 1 / s0, size=size)


def _healthy_probability(
    x: IntArray, M: FloatArray, p_A: float, alpha: float, family: Family, s0: float | None
) -> FloatArray:
    """f* = (1 - p_A) P0 / ((1 - p_A) P0 + p_A P1), Eq. (fij-star); as a logistic of the log odds."""
    log_odds = logit(1 - p_A) + _log_pmf_healthy(x, M, s0) - _log_pmf_anomalous(x, M, alpha, family)
    return np.asarray(expit(log_odds), dtype=np.float64)


def _log_pmf_healthy(x: IntArray, M: FloatArray, s0: float | None) -> FloatArray:
    if s0 is None:
        return np.asarray(xlogy(x, M) - M - gammaln(x + 1), dtype=np.float64)
    log_choose = gammaln(x + s0) - gammaln(s0) - gammaln(x + 1)
    return np.asarray(log_choose - s0 * np.log1p(M / s0) + xlogy(x, M / (s0 + M)), dtype=np.float64)


def _log_pmf_anomalous(x: IntArray, M: FloatArray, alpha: float, family: Family) -> FloatArray:
    mu = alpha * M
    if alpha == 0:  # every family then sells nothing
        return np.where(x == 0, 0.0, -np.inf)
    if family == "exponential":  # geometric with mean alpha M
        return np.asarray(xlogy(x, mu) - (x + 1) * np.log1p(mu), dtype=np.float64)
    if family == "thinning":
        return _log_pmf_healthy(x, mu, None)
    # E ~ U(0, 2 alpha): the mean of Poisson(t)(x) over t in (0, c) is P(x + 1, c)/c, P the regularised
    # incomplete gamma function, by its Kummer series, whose logarithm cannot underflow, when c is below x.
    a, c = x + 1.0, 2 * mu
    series = c < a
    log_tail = np.empty_like(c)
    log_tail[~series] = np.log(gammainc(a[~series], c[~series]))
    a_s, c_s = a[series], c[series]
    log_tail[series] = xlogy(a_s, c_s) - c_s - gammaln(a_s + 1) + np.log(hyp1f1(1.0, a_s + 1, c_s))
    return log_tail - np.log(c)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(f"synthetic ensemble: {message}", next_step="correct the EnsembleSettings")


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class SparseSettings:
    """What to draw; see ``EnsembleSettings``. ``dispersion_size`` None is Poisson noise."""

    n: int
    m: int
    observed: int
    rank: int = 5
    mean: float = 5.0
    anomaly_rate: float = 0.04
    alpha: float = 0.2
    dispersion_size: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.observed <= self.n * self.m // 2:
            raise UsageError(
                f"{self.observed} of {self.n} x {self.m} pairs are to be observed.",
                "observe at least one and at most half of them; denser data: ensemble.draw_instance.",
            )


@dataclass(frozen=True, eq=False)
class SparseInstance:
    """The sales, and apart from them what generated them."""

    sales: SalesMatrix
    rates: FloatArray
    anomalous: npt.NDArray[np.bool_]
    left: FloatArray
    right: FloatArray


def draw_sparse(settings: SparseSettings, rng: np.random.Generator) -> SparseInstance:
    """One instance: exponential onset, Poisson or negative binomial noise."""
    n, m = settings.n, settings.m
    left, right = rng.gamma(1.0, 2.0, (n, settings.rank)), rng.gamma(1.0, 2.0, (m, settings.rank))
    left *= settings.mean / float(left.mean(axis=0) @ right.mean(axis=0))
    keys = _distinct(n * m, settings.observed, rng)
    rows, cols = keys // m, (keys % m).astype(np.int32)
    rates = np.empty(keys.size)
    for first in range(0, keys.size, CHUNK):
        part = slice(first, first + CHUNK)
        rates[part] = np.einsum("er,er->e", left[rows[part]], right[cols[part]])
    counts, anomalous = draw_week(settings, rates, rng)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
    for array in (indptr, cols, counts):
        array.flags.writeable = False  # ours alone: SalesMatrix need not copy
    sales = SalesMatrix(
        indptr, cols, counts, (n, m), np.arange(n).astype(np.str_), np.arange(m).astype(np.str_)
    )
    return SparseInstance(sales, rates, anomalous, left, right)


def draw_week(
    settings: SparseSettings, rates: FloatArray, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Sales of pairs with these rates in one week, and which of them are anomalous."""
    s0 = settings.dispersion_size
    anomalous = rng.random(rates.size) < settings.anomaly_rate
    exposure = np.ones(rates.size) if s0 is None else rng.gamma(s0, 1.0 / s0, rates.size)
    exposure[anomalous] = rng.exponential(settings.alpha, np.count_nonzero(anomalous))
    return rng.poisson(exposure * rates).astype(np.int32), anomalous


def _distinct(n: int, size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """``size`` distinct numbers below n, ascending, uniformly chosen."""
    keys = _sorted_once(rng.integers(0, n, size))
    while keys.size < size:
        keys = _sorted_once(np.concatenate([keys, rng.integers(0, n, 2 * (size - keys.size) + 16)]))
    surplus = keys.size - size
    return np.asarray(np.delete(keys, rng.choice(keys.size, surplus, replace=False)) if surplus else keys)


def _sorted_once(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """``np.unique`` goes through a hash table first, which takes twenty times as long as sorting."""
    keys.sort()
    return np.asarray(keys[np.append(True, keys[1:] != keys[:-1])])
