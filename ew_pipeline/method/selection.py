"""Rank, noise and anomaly family, each by predictive score (the paper: "identified through
cross-validation").

Two scores, both of counts the fit has not seen:
- leave-one-out: the summed log cavity predictive of a variational fit. Free, and right where each
  row and column has many entries and noise is Poisson;
- held-out entries: a fit without a tenth of the entries, scored on them. Right everywhere, dearer.
  On sparse or overdispersed data the cavity overstates large ranks by hundreds of nats, so there
  this one decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.folds import RankCurve, rank_curve
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.variational.axis_rates import AxisRates
from ew_pipeline.method.variational.fit import VariationalFit, fit_variational, start_factors
from ew_pipeline.method.variational.theta import Parameters

CANDIDATE_RANKS = (1, 2, 3, 4, 5, 7, 10, 14, 20)
OVERDISPERSED_RANKS = (1, 2, 3, 5, 10, 20)  # noise hides fine differences in rank
ACCEPT_NATS = 5.0  # a rival noise or family must win by this much; always taking it costs regret
# The same for a family on overdispersed data, where noise hides what an anomaly looks like: with s0 = 5 the
# score took 11 in 100 exponential onsets for thinning, by up to 58 nats, and some then missed most of their
# anomalies (regret 0.040, without it 0.034).
FAMILY_NATS_IN_NOISE = 60.0
NEGLIGIBLE_DISPERSION = 0.025  # 1 / s0: variance M + M^2 / 67 differs from Poisson only on fast movers
CLEAR_ALPHA = 0.55
CLEAR_NATS = 50.0
SMALL_ALPHA = 0.1
MANY_ENTRIES = 20_000
CLEAR_GAIN = 0.05  # nats per entry
ONSET = "uniform_onset"
PATH_SWEEPS = 150
PATH_TOLERANCE = 2e-4
STOP_AFTER = 2  # non-improving ranks
DENSE_ENTRIES_PER_LINE = 12.0  # observed entries per row and column from which the cavity is trusted
HELD_OUT_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class RankPath:
    """Variational fits along the ranks, with the curve that tracking keeps."""

    fits: dict[int, VariationalFit]
    negative_binomial: bool

    @property
    def best(self) -> VariationalFit:
        return max(self.fits.values(), key=lambda fit: fit.score)

    @property
    def only_best(self) -> RankPath:
        return RankPath({self.best.rank: self.best}, self.negative_binomial)

    def with_dispersion(self, inverse_size: float) -> RankPath:
        """The same fits, said to have this dispersion: where a chain starts."""
        fits = {
            rank: replace(fit, parameters=replace(fit.parameters, inverse_size=inverse_size))
            for rank, fit in self.fits.items()
        }
        return RankPath(fits, self.negative_binomial)

    def under(self, data: Observations, family: ExposureFamily) -> RankPath:
        """All fits refitted for another family."""
        fits = {
            rank: rival_fit(data, family, fit, negative_binomial=self.negative_binomial)
            for rank, fit in self.fits.items()
        }
        return RankPath(fits, self.negative_binomial)

    @property
    def curve(self) -> RankCurve:
        """Leave-one-out log predictive per entry, by rank."""
        return rank_curve({rank: self.fits[rank].entry_scores for rank in sorted(self.fits)})


def candidate_ranks(shape: tuple[int, int], n_observed: int, max_rank: int) -> tuple[int, ...]:
    """Ranks worth trying."""
    limit = largest_rank(shape, n_observed, max_rank)
    return tuple(r for r in CANDIDATE_RANKS if r <= limit)


def largest_rank(shape: tuple[int, int], n_observed: int, max_rank: int) -> int:
    """At most min(n, m), and no more factors than entries can carry."""
    return max(1, min(*shape, max_rank, n_observed // (2 * sum(shape)) + 2))


def is_sparse(data: Observations) -> bool:
    """Fewer observed entries per row and column than the cavity approximation needs."""
    return density(data) < 1.0


def density(data: Observations) -> float:
    """Observed entries per row and column, of those that the cavity approximation needs."""
    return float(data.counts.size / sum(data.sales.shape) / DENSE_ENTRIES_PER_LINE)


def rank_path(
    data: Observations,
    family: ExposureFamily,
    ranks: tuple[int, ...],
    rng: np.random.Generator,
    *,
    negative_binomial: bool,
    axes: AxisRates | None = None,
) -> RankPath:
    """One variational fit per rank, ascending, until two in a row do not improve the score."""
    fits: dict[int, VariationalFit] = {}
    best, worse = -np.inf, 0
    for rank in ranks:
        fit = fit_variational(
            data,
            family,
            start_factors(data, rank, rng),
            negative_binomial=negative_binomial,
            axes=axes,
            max_sweeps=PATH_SWEEPS,
            tolerance=PATH_TOLERANCE,
        )
        fits[rank] = fit
        if fit.score > best:
            best, worse = fit.score, 0
        else:
            worse += 1
            if worse >= STOP_AFTER:
                break
    return RankPath(fits, negative_binomial)


def choose_noise(
    data: Observations,
    family: ExposureFamily,
    ranks: tuple[int, ...],
    rng: np.random.Generator,
    noise: str,
    other_families: tuple[ExposureFamily, ...] = (),
    axes: AxisRates | None = None,
) -> RankPath:
    """The Poisson path, or the negative binomial one where its rival wins.

    The rival is tried at the path's best rank and at ranks 1 and 2: a Poisson path on overdispersed data
    spends factors on the noise, and the dispersion shows where there are few. To win it must gain
    ACCEPT_NATS *and* be overdispersed by more than NEGLIGIBLE_DISPERSION: the cavity score flatters it
    (exposures can follow the noise), but the dispersion it finds on Poisson data is next to nothing.
    Anomalies of another family look like overdispersion, so ``other_families`` with Poisson noise must
    be beaten as well, unless no family could make up for it.
    """
    if noise == "negative_binomial":
        return rank_path(data, family, ranks, rng, negative_binomial=True, axes=axes)
    path = rank_path(data, family, ranks, rng, negative_binomial=False, axes=axes)
    if noise == "poisson":
        return path
    tried = sorted({r for r in (1, 2) if r in path.fits} | {path.best.rank})
    rivals = [rival_fit(data, family, path.fits[rank], negative_binomial=True) for rank in tried]
    rival = max(rivals, key=lambda fit: fit.score)
    if rival.parameters.inverse_size <= NEGLIGIBLE_DISPERSION or rival.score <= path.best.score + ACCEPT_NATS:
        return path
    if _beyond_families(data.counts.size, rival.score - path.best.score):
        other_families = ()
    explained = [rival_fit(data, other, path.best, negative_binomial=False).score for other in other_families]
    needed = max([path.best.score, *explained]) + ACCEPT_NATS
    if rival.score <= needed:
        return path
    coarse = tuple(r for r in ranks if r in OVERDISPERSED_RANKS) or ranks
    overdispersed = rank_path(data, family, coarse, rng, negative_binomial=True, axes=axes)
    # a rival that won only by where it started from has won nothing
    return overdispersed if overdispersed.best.score > needed else path


def _beyond_families(n_entries: int, gain: float) -> bool:
    """Whether noise explains so much more that the anomalies' family cannot be the reason.

    Asked only of weeks on which three more fits take seconds.
    """
    return n_entries > MANY_ENTRIES and gain > CLEAR_GAIN * n_entries


def rival_fit(
    data: Observations,
    family: ExposureFamily,
    fit: VariationalFit,
    *,
    negative_binomial: bool,
    anomalies: bool = True,
) -> VariationalFit:
    """Refit from ``fit`` under another noise or family."""
    start = Parameters(
        min(max(fit.parameters.alpha, 0.05), 0.7),
        min(max(fit.parameters.anomaly_rate, 0.02), 0.2),
        max(fit.parameters.inverse_size, 0.05) if negative_binomial else 0.0,
    )
    return fit_variational(
        data,
        family,
        (fit.left, fit.right),
        negative_binomial=negative_binomial,
        parameters=start,
        anomalies=anomalies,
        axes=fit.axes if anomalies else None,
        max_sweeps=PATH_SWEEPS,
        tolerance=PATH_TOLERANCE,
    )


@dataclass(frozen=True)
class FamilyChoice:
    """The family chosen, the leave-one-out scores by name, and that of the first without anomalies."""

    family: ExposureFamily
    scores: dict[str, float]
    null_score: float


def choose_family(data: Observations, families: tuple[ExposureFamily, ...], path: RankPath) -> FamilyChoice:
    """The first family unless another one's predictive wins by ACCEPT_NATS, or FAMILY_NATS_IN_NOISE.

    A rival must also say that anomalous pairs lose much of their sales (alpha <= CLEAR_ALPHA), and beat the
    model without anomalies by CLEAR_NATS: pairs that keep most of their sales cannot be told from chance,
    and there a family soaks up misfit of M.
    The uniform onset is scored and never taken: it and the exponential one often explain the same data with
    anomaly rates far apart, and this score favours the one with more anomalies where M has too many
    factors. The thorough tier samples both.
    """
    start, first = path.best, families[0]

    def fitted(family: ExposureFamily, anomalies: bool = True) -> VariationalFit:
        return rival_fit(data, family, start, negative_binomial=path.negative_binomial, anomalies=anomalies)

    base = fitted(first)
    null = fitted(first, anomalies=False).score
    needed = FAMILY_NATS_IN_NOISE if path.negative_binomial else ACCEPT_NATS
    chosen, best = first, base.score + needed
    scores = {first.name: base.score}
    for family in families[1:]:
        onset = family.name == ONSET
        # no sales at all is the limit of small alpha, and far from the uniform onset
        if not family.alpha_free and onset == (base.parameters.alpha < SMALL_ALPHA):
            continue
        if onset and path.negative_binomial:  # noise hides the difference
            continue
        rival = fitted(family)
        scores[family.name] = rival.score
        clear = not family.alpha_free or rival.parameters.alpha <= CLEAR_ALPHA
        if not onset and clear and rival.score > max(best, null + CLEAR_NATS):
            chosen, best = family, rival.score
    return FamilyChoice(chosen, scores, null)


def held_out_masks(n_observed: int, n_masks: int, rng: np.random.Generator) -> list[Bool]:
    """Disjoint random tenths of the entries."""
    fold = rng.permutation(n_observed) % round(1.0 / HELD_OUT_SHARE)
    return [fold == k for k in range(n_masks)]


def held_out_scores(
    data: Observations,
    family: ExposureFamily,
    ranks: tuple[int, ...],
    masks: list[Bool],
    rng: np.random.Generator,
    *,
    negative_binomial: bool,
    axes: AxisRates | None = None,
) -> RankCurve:
    """Log predictive of held-out entries under variational fits that did not see them, by rank."""
    pieces: dict[int, Float] = {}
    for rank in ranks:
        start = start_factors(data, rank, rng)
        pieces[rank] = np.concatenate(
            [
                fit_variational(
                    data,
                    family,
                    start,
                    negative_binomial=negative_binomial,
                    held_out=mask,
                    axes=axes,
                    max_sweeps=PATH_SWEEPS,
                    tolerance=PATH_TOLERANCE,
                ).entry_scores[mask]
                for mask in masks
            ]
        )
    return rank_curve(pieces)
