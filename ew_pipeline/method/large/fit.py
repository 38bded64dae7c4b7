"""Steps 1 and 2 together at national scale: scoring steps of the mixture's likelihood by alternating
regressions, with theta on leave-one-out predictions.

The model is that of ``variational/fit.py`` (exposure form, two components, cavity estimates). The factors are
point estimates under Gaussian priors whose mean and covariance are learnt. A scoring step moves a whole
row at once where a coordinate-ascent sweep of Gamma factors creeps, so that a handful of sweeps does what
hundreds do there; each is one pass over the entries by row and one by column.

The rounds are the same wherever the entries are: in one place (``whole_week.py``) or in blocks of rows
(``blocks.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ew_pipeline.core.arrays import Float, Real
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.large._als_kernels import Variance
from ew_pipeline.method.large.binned import Bins, Grid
from ew_pipeline.method.large.scores import variance_of
from ew_pipeline.method.large.theta import (
    CENSORED_FROM,
    BinnedFit,
    Terms,
    calibration,
    censored_terms,
    fit_binned,
)
from ew_pipeline.method.selection import ACCEPT_NATS, CLEAR_ALPHA, CLEAR_NATS, NEGLIGIBLE_DISPERSION
from ew_pipeline.method.variational.theta import Parameters

SHORT_LINE = 50  # pairs of a row or column
SETTLED = 0.01  # of p_A, and in alpha: where another round changes nothing of note


@dataclass(frozen=True)
class Effort:
    """How much work a fit may spend, counted in passes over the entries by row and by column: before theta
    is asked for the first time, then in each round."""

    least_squares: int = 1
    poisson: int = 1
    rounds: int = 5
    sweeps: int = 2


FULL = Effort()
QUICK = Effort(rounds=1, sweeps=1)


class Passes(Protocol):
    """Passes over all entries of a week, by whoever holds them. The factors are with them, and what was
    predicted last."""

    @property
    def mean(self) -> float:
        """Units sold per unit of level."""

    @property
    def left(self) -> Real: ...

    @property
    def right(self) -> Real: ...

    @property
    def sweeps(self) -> int:
        """Done since the start."""

    def first_sweep(self, variance: Variance) -> None:
        """One of the start: all rows given the columns, then all columns given the rows."""

    def sweep(self, variance: Variance) -> None:
        """The same, and the priors of both are learnt from it."""

    def predict(self, variance: Variance) -> None:
        """What every entry is predicted to be without itself."""

    def binned(self) -> Bins:
        """The predictions, binned."""

    def rescore(self, grid: Grid, scale: Float, family: ExposureFamily, p: Parameters) -> None:
        """The predictions times scale[class, band], and f with them."""

    def weigh(self) -> None:
        """From now on, entries weigh what f says."""

    def lift(self) -> float:
        """What ``rescore`` has multiplied the predictions by, overall."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """What ``fit_rounds`` ends with.

    Attributes
    ----------
    left, right : U and V. ``lift`` is in them: what the calibration adds overall, which is all of e(theta)
        after one round and next to nothing after several.
    null_gain : nats of the binned likelihood over that without anomalies.
    rounds, sweeps : work done.
    """

    left: Real
    right: Real
    lift: float
    bins: Bins
    ratio: Float
    theta: BinnedFit
    null_gain: float
    rounds: int
    sweeps: int
    converged: bool

    @property
    def parameters(self) -> Parameters:
        return self.theta.parameters


def has_short_lines(shape: tuple[int, int], n_observed: int) -> bool:
    """Whether stores or SKUs have too few pairs, on average, for shallow anomalies to be told from noise."""
    return n_observed < SHORT_LINE * max(shape)


def fit_rounds(
    passes: Passes, family: ExposureFamily, *, noise: str, effort: Effort, short_lines: bool
) -> Fitted:
    """The start, every pair taken for healthy, then rounds of regressions and theta until theta settles.

    ``noise``: "poisson", "negative_binomial", or "auto": negative binomial where it is clearly better.
    ``short_lines``: see ``has_short_lines``.
    """
    for done in range(effort.least_squares + effort.poisson):
        passes.first_sweep(Variance(constant=passes.mean) if done < effort.least_squares else Variance())
    variance = Variance()
    last: Parameters | None = None
    rounds, converged = 0, False
    while True:
        for _ in range(effort.sweeps):
            passes.sweep(variance)
        passes.predict(variance)
        bins = passes.binned()
        ratio = calibration(bins)
        found = fit_noise(bins, ratio, family, noise, last, short_lines=short_lines)
        p = found.parameters
        scale = ratio / (1.0 - p.anomaly_rate * (1.0 - family.mean_factor(p.alpha)))
        passes.rescore(bins.grid, scale, family, p)
        rounds += 1
        converged = last is not None and settled(last, p)
        if converged or rounds == effort.rounds:
            break
        passes.weigh()
        variance = variance_of(family, p)
        last = p
    null = fit_binned(found.terms, family, negative_binomial=p.inverse_size > 0.0, anomalies=False, start=p)
    lift = passes.lift()
    return Fitted(
        left=passes.left * passes.left.dtype.type(lift),
        right=passes.right,
        lift=lift,
        bins=bins,
        ratio=ratio,
        theta=found,
        null_gain=found.top.log_likelihood - null.top.log_likelihood,
        rounds=rounds,
        sweeps=passes.sweeps,
        converged=found.top.converged and (converged or effort.rounds == 1),
    )


def fit_noise(
    bins: Bins,
    ratio: Float,
    family: ExposureFamily,
    noise: str,
    start: Parameters | None,
    *,
    short_lines: bool = False,
) -> BinnedFit:
    """theta with the noise asked for; "auto" takes the negative binomial where it gains ACCEPT_NATS and
    its dispersion is not negligible, as on small data."""
    terms = censored_terms(bins, ratio, CENSORED_FROM)
    if noise != "poisson":
        rival = fit_binned(terms, family, negative_binomial=True, start=start)
        rival = _deep_unless_clear(terms, family, rival, start) if short_lines else rival
        if noise == "negative_binomial":
            return rival
        start = rival.parameters
    plain = fit_binned(terms, family, negative_binomial=False, start=start)
    if noise == "poisson" or rival.parameters.inverse_size <= NEGLIGIBLE_DISPERSION:
        return plain
    gain = rival.top.log_likelihood - plain.top.log_likelihood
    return rival if gain > ACCEPT_NATS else plain


def _deep_unless_clear(
    terms: Terms, family: ExposureFamily, free: BinnedFit, start: Parameters | None
) -> BinnedFit:
    """``free`` (overdispersed noise) or, unless it falls clearly short, the best theta with deep anomalies.

    Anomalies that leave most of the sales are what noise looks like, and what factors do that were not found.
    On lines of 14 to 47 pairs they explain as much as deep ones, within a few nats, and cost up to 1.5 times
    what flagging nothing does where deep ones cost less than that.
    """
    if not family.alpha_free or free.parameters.alpha <= CLEAR_ALPHA:
        return free
    deep = fit_binned(terms, family, negative_binomial=True, start=start, most_alpha=CLEAR_ALPHA)
    return free if free.top.log_likelihood - deep.top.log_likelihood > CLEAR_NATS else deep


def settled(before: Parameters, after: Parameters) -> bool:
    return (
        abs(after.anomaly_rate - before.anomaly_rate) <= SETTLED * max(after.anomaly_rate, 1e-3)
        and abs(after.alpha - before.alpha) <= SETTLED
    )
