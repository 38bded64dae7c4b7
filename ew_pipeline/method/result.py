"""What a fit gives back: probabilities per pair, theta, and how they were reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.method.anomalies import AnomalyModel
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.folds import RankCurve
from ew_pipeline.method.noise import NegativeBinomial, NoiseModel, Poisson
from ew_pipeline.method.paper.decision import CappedDecision, expected_saving, flag_by_cost, flag_with_cap
from ew_pipeline.method.paper.posterior import drop_probability, healthy_probability
from ew_pipeline.method.paper.rate import RateDecision, flag_by_rate
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.theta import Theta

# The rate constraint sums over all pairs, and their errors do not all point one way: with this share of
# each pair's own spread, z = 1 keeps the rate in nearly all instances (``ew reproduce table1``).
JOINT_ERROR = 0.7


@dataclass(frozen=True, eq=False)
class DetectorFit:
    """A fitted week. Arrays are over the observed pairs in row-major order, read-only.

    Attributes
    ----------
    posterior_ : P(anomalous | sales) under the mixture, in [0, 1]; higher is more suspicious.
    expected_sales_ : demand of the pair if it is healthy.
    expected_cv_ : its coefficient of variation.
    cavity_sales_, cavity_cv_ : the same as if the pair itself had not been seen.
    theta_ : alpha and p_A with 90% intervals and the verdict whether they are identified.
    rank_, noise_, anomaly_ : what was chosen, by predictive score where "auto".
    dispersion_size_ : s0 of the noise, Var = M + M^2 / s0; infinite for Poisson.
    mode_, mode_reason_ : the tier that ran and why.
    converged_ : False blocks publication.
    rank_curve_ : leave-one-out log predictive per pair, by rank; held_out_curve_ : of held-out pairs.
    null_gain_ : nats by which the anomaly mixture beats the model without anomalies, leave-one-out.
    rank_weights_ : the ranks averaged over.
    warnings_ : sentences for the report.
    store_extra_rate_, sku_extra_rate_ : by store and by SKU, the chance that a pair went wrong along with its
        whole store or SKU, on top of theta's p_A; None where nothing speaks for such rates.
    probability : which probability is priced, "posterior" or "drop".
    """

    sales: SalesMatrix
    posterior_: Float
    expected_sales_: Float
    expected_cv_: Float
    theta_: Theta
    rank_: int
    noise_: str
    anomaly_: str
    dispersion_size_: float
    mode_: str
    mode_reason_: str
    converged_: bool
    factors_: LowRankFactors
    anomaly_model: AnomalyModel
    cavity_sales_: Float
    cavity_cv_: Float
    null_gain_: float
    rank_curve_: RankCurve | None = None
    held_out_curve_: RankCurve | None = None
    rank_weights_: Mapping[int, float] = field(default_factory=dict)
    family_scores_: Mapping[str, float] = field(default_factory=dict)
    diagnostics_: Mapping[str, float] = field(default_factory=dict)
    warnings_: tuple[str, ...] = ()
    probability: str = "posterior"
    drop_fraction: float = 0.5
    store_extra_rate_: Float | None = None
    sku_extra_rate_: Float | None = None

    def __post_init__(self) -> None:
        for name in ("posterior_", "expected_sales_", "expected_cv_", "cavity_sales_", "cavity_cv_"):
            getattr(self, name).flags.writeable = False

    @cached_property
    def anomaly_probability_(self) -> Float:
        """The probability that is priced: ``posterior`` (the paper's) or ``drop``."""
        return self.posterior_ if self.probability == "posterior" else self.drop_probability()

    @property
    def healthy_probability_(self) -> Float:
        """f = 1 - anomaly_probability_."""
        return np.asarray(1.0 - self.anomaly_probability_)

    def drop_probability(self, drop_fraction: float | None = None) -> Float:
        """P(the pair's level >= sales / drop_fraction), from the level's predictive without this pair."""
        return drop_probability(
            self.sales.counts,
            self.cavity_sales_,
            self.cavity_cv_**2,
            self.drop_fraction if drop_fraction is None else drop_fraction,
        )

    def decide(self, costs: Costs) -> Bool:
        """Step 4: flag where f c0 <= (1 - f) c1."""
        return flag_by_cost(self.healthy_probability_, costs)

    def decide_capped(self, costs: Costs, max_checks_per_store: int | ArrayLike) -> CappedDecision:
        """At most K flags per store, those that save most; with the value of one more check."""
        return flag_with_cap(
            self.healthy_probability_,
            costs,
            self.sales.rows,
            max_checks_per_store,
            n_groups=self.sales.shape[0],
        )

    def expected_saving(self, costs: Costs) -> Float:
        """(1 - f) c1 - f c0 per pair: what a check is worth."""
        return expected_saving(self.healthy_probability_, costs)

    def probability_interval(self, z: float) -> tuple[Float, Float]:
        """(low, high) for f when the pair's expected sales move by z standard deviations either way.

        The shift is taken on the log-odds of the plug-in f and applied to the priced one. The log-odds
        are concave in the rate, so a peak between the ends is also looked at.
        """
        rates = np.maximum(self.expected_sales_, 1e-9)
        centre = logit(np.clip(self.healthy_probability_, 1e-12, 1.0 - 1e-12))
        if z == 0.0:
            return self.healthy_probability_, self.healthy_probability_
        base = self._plug_in_log_odds(rates)
        reach = JOINT_ERROR * z * self.expected_cv_
        moved = [rates * np.exp(w * reach) for w in (-1.0, -0.5, 0.5, 1.0)]
        shifts = np.array([self._plug_in_log_odds(r) - base for r in moved] + [np.zeros_like(base)])
        return np.asarray(expit(centre + shifts.min(axis=0))), np.asarray(expit(centre + shifts.max(axis=0)))

    def decide_rate(self, gamma: float, z: float = 1.0, random_state: int = 0) -> Bool:
        """Algorithm 2: as many anomalies as possible at a false-positive rate of at most ``gamma``.

        ``z`` sets the width of the interval for f; 0 is the plug-in rule, 1 keeps the rate almost
        always. (The paper's own delta is larger than one in practice.)
        """
        return self.rate_decision(gamma, z, random_state).flags

    def rate_decision(self, gamma: float, z: float = 1.0, random_state: int = 0) -> RateDecision:
        """Algorithm 2 with its inclusion probabilities and expected rates."""
        f_left, f_right = self.probability_interval(z)
        return flag_by_rate(f_right, f_left, gamma, np.random.default_rng(random_state))

    def _plug_in_log_odds(self, rates: Float) -> Float:
        noise: NoiseModel = (
            Poisson() if np.isinf(self.dispersion_size_) else NegativeBinomial(self.dispersion_size_)
        )
        f = healthy_probability(
            self.sales.counts,
            rates,
            self.theta_.alpha,
            self.theta_.anomaly_rate,
            noise,
            self.anomaly_model,
        )
        return np.asarray(logit(np.clip(f, 1e-12, 1.0 - 1e-12)))
