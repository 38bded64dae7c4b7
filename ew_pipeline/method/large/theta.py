"""Step 2 at national scale: theta and the noise's dispersion together, from binned predictions.

Four things make theta right where there are millions of pairs and hardly any random error is left:

- *The mean is calibrated.* Pairs predicted to sell mu sell e(theta) r(mu) mu on average; r is read off the
  bins. A prediction that is half a percent too low moves p_A by a tenth of its value.
- *The upper tail is censored.* Of a count above its mean only that fact is used. Anomalies lower sales, but
  the exponential onset has a long upper tail, and with it the mixture explains whatever the noise model
  misses up there: p_A doubles at s0 = 5.
- *Dispersion is fitted with theta,* not before it: fitted first, it soaks up the anomalies.
- *Errors of the prediction are integrated over,* and not added to the dispersion: they are symmetric where
  noise is skewed, and one Gamma of the same variance has too many low counts to leave room for anomalies
  (at s0 = 5, p_A came out a fifth too low).

The interval has three parts: random error from the information, how far theta moves when more of the
upper tail is used, which is what the noise model's misfit is worth, and MODEL_ERROR for the law of the
predictions' own errors, which no amount of data makes exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from ew_pipeline.core.arrays import Float, Int64
from ew_pipeline.method._kernels import mixture
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.intervals import ThetaIntervals, Z, to_theta
from ew_pipeline.method.large.binned import MOST_COUNTS, Bins
from ew_pipeline.method.paper._scoring import (
    EDGE,
    Top,
    climb,
    from_unbounded,
    score_matrix,
    to_unbounded,
    weighted_gram,
)
from ew_pipeline.method.paper.likelihood import ON_BOUND, ThetaEstimate
from ew_pipeline.method.theta import Theta
from ew_pipeline.method.variational.theta import (
    INVERSE_SIZE_BOUNDS,
    RATE_BOUNDS,
    RATE_ERROR_WIDENING,
    Parameters,
    entry_scores,
)

CENSORED_FROM = 1.0  # times the mean
WIDER_CENSORED_FROM = 2.0  # the second opinion behind the interval
TAIL_MOVE = 1.5  # by how much the move to it is widened: what it shows is part of the misfit
MODEL_ERROR = 0.04  # on the unbounded scale; at small p_A about 4% of it
MOST_KNOTS, PER_KNOT = 12, 2_000  # of the calibration, per class: as many as have so many entries each
SMALLEST_MEAN, LARGEST_MEAN = 0.05, 240.0  # outside, a pair says next to nothing, or needs a longer table
LARGEST_CV2 = 1.0  # a prediction this uncertain has no shape to speak of
STARTS = ((0.2, 0.05), (0.6, 0.05))
# Three places of a normal error, in standard deviations, with their weights (Gauss-Hermite): exact to its
# fifth moment, and more places move p_A by less than a percent.
ERRORS = ((-math.sqrt(3.0), 1.0 / 6.0), (0.0, 2.0 / 3.0), (math.sqrt(3.0), 1.0 / 6.0))
LEAST_SHARE = 0.05  # of the predicted mean: where a standard deviation is more than half of it


@dataclass(frozen=True, eq=False)
class Terms:
    """The censored likelihood: counts below the cut one by one, and one tail per (class, band)."""

    counts: Float
    log_factorial: Float
    means: Float
    cv2: Float
    group: Int64
    weights: Float  # of the counts, then of the tails

    @property
    def n_groups(self) -> int:
        return self.weights.size - self.counts.size


@dataclass(frozen=True, eq=False)
class BinnedFit:
    """The parameters found, with where and how well."""

    parameters: Parameters
    top: Top
    terms: Terms
    free: tuple[int, ...]


def calibration(bins: Bins) -> Float:
    """r by class and band: what pairs sold over what was predicted, smooth in the logarithm of the mean."""
    means, entries = bins.grid.means, bins.entries
    log_means = np.log(means)
    ratio = np.ones(entries.shape)
    for c, (n, sold) in enumerate(zip(entries, bins.sold, strict=True)):
        if not n.any():
            continue
        knots = min(max(int(n.sum()) // PER_KNOT, 1), MOST_KNOTS)
        place = (np.cumsum(n) - n / 2.0) / n.sum()
        knot = np.unique((place * knots).astype(int), return_inverse=True)[1]
        weight = np.bincount(knot, weights=n)
        sums = [np.bincount(knot, weights=w)[weight > 0] for w in (n * log_means, sold, n * means)]
        at = sums[0] / weight[weight > 0]
        ratio[c] = np.exp(np.interp(log_means, at, np.log(np.maximum(sums[1], 0.5) / sums[2])))
    # numpy's exponentials differ between processors in their last bit, and factors must not
    return ratio.astype(np.float32).astype(np.float64)


def censored_terms(bins: Bins, ratio: Float, censored_from: float) -> Terms:
    """The terms of all bins that say something of theta."""
    means = bins.grid.means * ratio
    told = (bins.entries > 0) & (means > SMALLEST_MEAN) & (bins.cv2 < LARGEST_CV2)
    told &= means < min(LARGEST_MEAN, MOST_COUNTS / censored_from - 2.0)
    if not told.any():
        return Terms(*(np.empty(0),) * 4, np.empty(0, dtype=np.int64), np.empty(0))
    table = bins.weights[told]
    cuts = np.ceil(censored_from * means[told]).astype(np.int64) + 2
    of = np.repeat(np.arange(cuts.size), cuts)
    counts = np.arange(of.size) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    tabled = counts < table.shape[1]
    weights = np.zeros(of.size)
    weights[tabled] = table[of[tabled], counts[tabled]]
    tails = table.sum(axis=1) - np.bincount(of, weights=weights, minlength=cuts.size)
    x = counts.astype(np.float64)
    return Terms(
        counts=x,
        log_factorial=np.asarray(gammaln(x + 1.0)),
        means=means[told][of],
        cv2=bins.cv2[told][of],
        group=of,
        weights=np.concatenate([weights, tails]),
    )


def fit_binned(
    terms: Terms,
    family: ExposureFamily,
    *,
    negative_binomial: bool,
    anomalies: bool = True,
    start: Parameters | None = None,
    most_alpha: float = 1.0,
) -> BinnedFit:
    """The parameters of highest likelihood with alpha up to ``most_alpha``, from ``start`` or from several
    places."""
    ranges = _ranges(family, most_alpha)
    free = tuple(
        k for k, on in enumerate((family.alpha_free and anomalies, anomalies, negative_binomial)) if on
    )
    likelihood = _likelihood(terms, family, ranges, negative_binomial, anomalies)
    places = [(start.alpha, start.anomaly_rate)] if start else STARTS
    size = max(start.inverse_size, 1e-3) if start else 0.1
    tops = [
        climb(likelihood, terms.weights, _unbounded((alpha, rate, math.log(size)), ranges), free)
        for alpha, rate in (places if anomalies else places[:1])
    ]
    top = max(tops, key=lambda top: top.log_likelihood)
    alpha, rate, log_size = (from_unbounded(u, r) for u, r in zip(top.where, ranges, strict=True))
    top = replace(top, where=_unbounded((alpha, rate, log_size), _ranges(family)))
    found = Parameters(
        _to_six_digits(alpha) if family.alpha_free else family.alpha_bounds[0],
        _to_six_digits(rate) if anomalies else 0.0,
        _to_six_digits(math.exp(log_size)) if negative_binomial else 0.0,
    )
    return BinnedFit(found, top, terms, free)


def binned_theta(bins: Bins, ratio: Float, family: ExposureFamily, fit: BinnedFit, null_gain: float) -> Theta:
    """theta with 90% intervals: random error, and the move to a likelihood that sees more of the tail."""
    ranges = _ranges(family)
    negative_binomial = 2 in fit.free
    likelihood = _likelihood(fit.terms, family, ranges, negative_binomial, True)
    at = fit.top.where
    scores = score_matrix(likelihood, at, likelihood(at), fit.free)[list(fit.free)]
    information = weighted_gram(scores, fit.terms.weights) + 1e-9 * np.eye(len(fit.free))
    random = np.zeros(3)
    random[list(fit.free)] = RATE_ERROR_WIDENING * Z * np.sqrt(np.diag(np.linalg.inv(information)))
    wider = fit_binned(
        censored_terms(bins, ratio, WIDER_CENSORED_FROM),
        family,
        negative_binomial=negative_binomial,
        start=fit.parameters,
    )
    reach = np.minimum(
        np.sqrt(random**2 + (TAIL_MOVE * (wider.top.where - at)) ** 2 + MODEL_ERROR**2), 2.0 * EDGE
    )
    ends = [
        [from_unbounded(max(min(u + sign * r, EDGE), -EDGE), bounds) for sign in (-1.0, 1.0)]
        for u, r, bounds in zip(at, reach, ranges, strict=True)
    ]
    alpha_ends = ends[0] if family.alpha_free else list(family.alpha_bounds)
    p = fit.parameters
    values = {"alpha": (p.alpha, ranges[0]), "anomaly_rate": (p.anomaly_rate, ranges[1])}
    estimate = ThetaEstimate(
        alpha=p.alpha,
        anomaly_rate=p.anomaly_rate,
        log_likelihood=fit.top.log_likelihood,
        log_likelihood_null=fit.top.log_likelihood - null_gain,
        at_bound=tuple(
            name
            for k, (name, (value, (low, high))) in enumerate(values.items())
            if k in fit.free and min(value - low, high - value) < ON_BOUND * (high - low)
        ),
        converged=fit.top.converged,
        n_evaluations=fit.top.n_evaluations,
        alpha_bounds=family.alpha_bounds,
        rate_bounds=RATE_BOUNDS,
    )
    return to_theta(
        estimate,
        ThetaIntervals((alpha_ends[0], alpha_ends[1]), (ends[1][0], ends[1][1]), "information"),
    )


def _ranges(family: ExposureFamily, most_alpha: float = 1.0) -> tuple[tuple[float, float], ...]:
    low, high = INVERSE_SIZE_BOUNDS
    least, most = family.alpha_bounds if family.alpha_free else (0.0, 1.0)
    return (least, min(most, most_alpha)), RATE_BOUNDS, (math.log(low), math.log(high))


def _to_six_digits(value: float) -> float:
    """Far more than the data say, and few enough that the last bits, which depend on the processor, are gone
    before theta goes into the next round."""
    return float(f"{value:.6g}")


def _unbounded(values: tuple[float, ...], ranges: tuple[tuple[float, float], ...]) -> Float:
    return np.array([to_unbounded(value, bounds) for value, bounds in zip(values, ranges, strict=True)])


def _likelihood(
    terms: Terms,
    family: ExposureFamily,
    ranges: tuple[tuple[float, float], ...],
    negative_binomial: bool,
    anomalies: bool,
) -> Callable[[Float], Float]:
    """log P of each count below its cut and of each tail, as a function on the unbounded scale."""
    spread = np.sqrt(terms.cv2)

    def at(u: Float) -> Float:
        alpha, rate, log_size = (from_unbounded(v, bounds) for v, bounds in zip(u, ranges, strict=True))
        rate = rate if anomalies else 0.0
        predicted = terms.means / (1.0 - rate * (1.0 - family.mean_factor(alpha)))
        inverse_size = math.exp(log_size) if negative_binomial else 0.0
        log_healthy, exact = np.empty(predicted.size), np.zeros(predicted.size)
        rates = np.full(predicted.size, rate)
        pieces = []
        for place, weight in ERRORS:
            means = predicted * np.maximum(1.0 + place * spread, LEAST_SHARE)
            mixture.healthy_log_pmf(
                terms.counts, terms.log_factorial, means, exact, inverse_size, log_healthy
            )
            log_anomalous, _ = family.terms(terms, means, alpha)
            pieces.append(math.log(weight) + entry_scores(log_healthy, log_anomalous, rates))
        most = np.maximum.reduce(pieces)
        shares = sum(np.exp(piece - most) for piece in pieces)  # a third of the time of np.logaddexp
        below = most + np.log(shares)
        tail = 1.0 - np.bincount(terms.group, weights=np.exp(below), minlength=terms.n_groups)
        return np.concatenate([below, np.log(np.maximum(tail, 1e-12))])

    return at
