"""The entrywise detector: sales of one week in, a probability per pair out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.errors import DataError, FitError, UsageError
from ew_pipeline.method.anomalies import AnomalyModel
from ew_pipeline.method.families import SampledFamily, exposure_family
from ew_pipeline.method.large.fit import SHORT_LINE, has_short_lines
from ew_pipeline.method.large.tier import fit_large_tier
from ew_pipeline.method.paper.denoise import check_rank
from ew_pipeline.method.paper.variants import fit_reference
from ew_pipeline.method.plan import Plan
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.sampler.chain import SamplerBudget
from ew_pipeline.method.sampler.tier import fit_thorough
from ew_pipeline.method.selection import CLEAR_ALPHA, DENSE_ENTRIES_PER_LINE, is_sparse
from ew_pipeline.method.variational.tier import FAMILIES, Exploration, explore, fit_variational_tier

MODES = ("auto", "thorough", "variational", "large", "fast", "paper", "paper-practical")
NOISES = ("auto", "poisson", "negative_binomial")
PROBABILITIES = ("posterior", "drop")
# A pass of the sampler over one entry: an eighth of the sweep that `ew bench small` prints. Quick machines
# take a third of it, slow ones a third more; a constant, so that no choice depends on machine or load.
SECONDS_PER_PASS_ENTRY = 15e-9
EASY_CHAINS, DIFFICULT_CHAINS = 5, 8  # two at two or three ranks; two at four
EASY_SECONDS, DIFFICULT_SECONDS = 5.0, 30.0
MOST_VARIATIONAL = 500_000  # the path over ranks, noises and families takes minutes there, hours at 1e7
# On a simulated chain's week of 57,000 pairs with a level from history the tiers rank the wrong records alike
# (AUC .850 thorough, .849 large), and the large one takes a tenth of the time.
MOST_WITH_LEVEL = 40_000
# Below SHORT_LINE pairs of a row or column, the large tier is taken: at 14 and at 30 the variational
# one took for anomalies what it had too few factors for, and cost up to thirty times what doing nothing does.
THIN_FROM = 40_000  # pairs at the least: fewer are no task for the large tier
# Below that the sampler, too, takes noise for factors and factors for anomalies: at 14 to 30 pairs it cost up
# to 0.15 more than the large tier, with an exploration before it, where that takes a second; at 47 0.05 less.
SAMPLED_LINE = 40
LARGE_MODES = ("large", "fast")
FEWEST_ENTRIES = 3


class EntrywiseDetector:
    """Find pairs whose sales are too low for what their stores and SKUs sell elsewhere.

    Model (section 2 of the paper): X ~ Noise(M) if healthy, Anom(alpha, M) with probability p_A, M low
    rank. The fit learns M, alpha, p_A, the noise's dispersion and the rank from the sales alone.

    Parameters
    ----------
    mode : "auto" takes the sampler ("thorough") where the data are small, or sparse or overdispersed and
        the budget allows, the "variational" tier above that, and "large" (regressions, theta on binned
        predictions) above half a million pairs, or 40,000 with a level from history, or in place of the
        variational tier where stores or SKUs have fewer than 50 pairs or that ends with theta on the edge of
        its range. "fast" is one round of "large". "paper" is Algorithm 1 and "paper-practical" the variant
        of the paper's experiments, both without oracle knowledge.
    rank : "auto" (by cross-validation) or a number.
    noise : "auto", "poisson" or "negative_binomial".
    anomaly : "auto", "exponential", "thinning", "zero", "uniform", "uniform_onset", or your own
        AnomalyModel.
    probability : what is priced: "posterior" (the paper) or "drop", P(level >= sales / drop_fraction).
    max_rank : largest rank tried by "auto".
    cross_check : also score the chosen rank and its neighbours on held-out pairs (``held_out_curve_``).
    n_threads : chains, or blocks of rows, that are worked on side by side; None takes one for chains and
        every core this process may use for blocks. The result does not depend on it.
    random_state : seed; the same data and seed give the same result.

    Examples
    --------
    >>> import numpy as np
    >>> from ew_pipeline import Costs, EntrywiseDetector, SalesMatrix
    >>> rng = np.random.default_rng(0)
    >>> demand = np.outer(rng.gamma(3, 2, 40), rng.gamma(3, 0.5, 30))
    >>> counts = rng.poisson(demand)
    >>> counts[7, 3] = 0
    >>> fit = EntrywiseDetector(mode="variational").fit(SalesMatrix.from_dense(counts))
    >>> bool(fit.decide(Costs(false_alarm=1.0, missed=1.0)).reshape(40, 30)[7, 3])
    True
    """

    def __init__(
        self,
        mode: str = "auto",
        *,
        rank: int | str = "auto",
        noise: str = "auto",
        anomaly: str | AnomalyModel = "auto",
        probability: str = "posterior",
        drop_fraction: float = 0.5,
        max_rank: int = 10,
        cross_check: bool = False,
        n_threads: int | None = None,
        budget: SamplerBudget | None = None,
        random_state: int = 0,
    ) -> None:
        self.mode = mode
        self.rank = rank
        self.noise = noise
        self.anomaly = anomaly
        self.probability = probability
        self.drop_fraction = drop_fraction
        self.max_rank = max_rank
        self.cross_check = cross_check
        self.n_threads = n_threads
        self.budget = budget
        self.random_state = random_state

    def fit(self, sales: SalesMatrix, level: ArrayLike | None = None) -> DetectorFit:
        """Learn from one week.

        ``level``: a positive number per observed pair (row-major), the pair's own level from history; the
        low rank is then put on the ratio to it. Without it, the paper's one-week model.
        """
        self._check_settings(sales)
        plan = self._plan(sales, _checked_level(level, sales))
        _refuse_hopeless(sales)
        if self.mode in LARGE_MODES:
            return fit_large_tier(plan)
        if self.mode in ("paper", "paper-practical"):
            return fit_reference(plan)
        most, with_level = (
            (MOST_VARIATIONAL, "") if plan.level is None else (MOST_WITH_LEVEL, " with a level")
        )
        if self.mode == "auto" and sales.n_observed > most:
            reason = (
                f"{sales.n_observed:,} pairs{with_level}: more than {most:,} take the other tiers too long"
            )
            return fit_large_tier(replace(plan, mode="large", mode_reason=reason))
        if self.mode == "auto" and self._too_thin(sales):
            return self._fit_thin(plan)
        fit = self._explore_and_fit(plan)
        sampled = fit.mode_ == "thorough" and fit.noise_ == "poisson"  # the family too, with theta
        if self.anomaly == "auto" and not sampled and fit.anomaly_ != FAMILIES[0] and not _clear(fit):
            # A rival family chosen on the cavity score but not borne out by the fit soaks up misfit of M.
            fit = self._explore_and_fit(replace(plan, anomaly=FAMILIES[0]))
        if self.mode == "auto" and fit.mode_ == "variational" and fit.theta_.at_bound:
            # Too few factors for what stores differ by, on lines too short to tell: the roles are swapped.
            reason = f"{fit.mode_reason_}; the variational tier ended with theta on the edge of its range"
            return fit_large_tier(replace(plan, mode="large", mode_reason=reason))
        return fit

    def _too_thin(self, sales: SalesMatrix) -> bool:
        """Whether lines are too short for the variational tier, and pairs too many for the sampler unless
        they turn out to be overdispersed."""
        sparse = sales.n_observed < DENSE_ENTRIES_PER_LINE * sum(sales.shape)
        seconds, limit = self._sampling(sales, difficult=sparse)
        short = has_short_lines(sales.shape, sales.n_observed)
        return short and sales.n_observed >= THIN_FROM and seconds > limit

    def _fit_thin(self, plan: Plan) -> DetectorFit:
        """The large tier, which takes a second or two here. Where it finds overdispersion, lines are long
        enough to be sampled and the variational tier finds it too, the sampler."""
        sales = plan.sales
        line = "store" if sales.shape[0] > sales.shape[1] else "SKU"
        reason = (
            f"{sales.n_observed:,} pairs, {sales.n_observed / max(sales.shape):.0f} to a {line}: "
            f"below {SHORT_LINE} the variational tier goes astray"
        )
        own = replace(plan, rng=np.random.default_rng(self.random_state))
        large = fit_large_tier(replace(own, mode="large", mode_reason=reason))
        seconds, limit = self._sampling(sales, difficult=True)
        sampled = sales.n_observed >= SAMPLED_LINE * max(sales.shape) and seconds <= limit
        if large.noise_ == "poisson" or not sampled:
            return large
        found, budget = explore(plan), self._budget(sales)
        thorough, reason = self._choose_tier(sales, found)
        return (
            fit_thorough(replace(plan, mode="thorough", mode_reason=reason), found, budget)
            if thorough
            else large
        )

    def _explore_and_fit(self, plan: Plan) -> DetectorFit:
        found = explore(plan)
        thorough, reason = self._choose_tier(plan.sales, found)
        plan = replace(plan, mode="thorough" if thorough else "variational", mode_reason=reason)
        if thorough:
            return fit_thorough(plan, found, self._budget(plan.sales))
        return fit_variational_tier(plan, found)

    def _budget(self, sales: SalesMatrix) -> SamplerBudget:
        return self.budget or SamplerBudget.for_entries(sales.n_observed)

    def _sampling(self, sales: SalesMatrix, difficult: bool) -> tuple[float, float]:
        """CPU seconds that sampling takes, about, and those that "auto" allows for it."""
        limit, chains = (DIFFICULT_SECONDS, DIFFICULT_CHAINS) if difficult else (EASY_SECONDS, EASY_CHAINS)
        return sales.n_observed * self._budget(sales).passes * chains * SECONDS_PER_PASS_ENTRY, limit

    def _plan(
        self,
        sales: SalesMatrix,
        level: np.ndarray[tuple[int], np.dtype[np.float64]] | None,
    ) -> Plan:
        return Plan(
            sales=sales,
            level=level,
            rank=None if self.rank == "auto" else int(self.rank),
            noise=self.noise,
            anomaly=self.anomaly,
            max_rank=self.max_rank,
            n_threads=self.n_threads,
            rng=np.random.default_rng(self.random_state),
            mode=self.mode,
            mode_reason="as asked",
            probability=self.probability,
            drop_fraction=self.drop_fraction,
            cross_check=self.cross_check,
        )

    def _choose_tier(self, sales: SalesMatrix, found: Exploration) -> tuple[bool, str]:
        sampleable = isinstance(found.family, SampledFamily)
        if self.mode == "variational":
            return False, "as asked"
        if not sampleable:
            why = f"the anomaly model {found.family.name!r} has no exposure the sampler could draw"
            if self.mode == "thorough":
                raise UsageError(f"mode 'thorough' is not possible: {why}.", "use mode='variational'.")
            return False, why
        if self.mode == "thorough":
            return True, "as asked"
        kinds = []
        if is_sparse(found.data):
            kinds.append("sparse")
        if found.path.negative_binomial:
            kinds.append("overdispersed")
        seconds, limit = self._sampling(sales, difficult=bool(kinds))
        described = f"{sales.n_observed} pairs" + (f", {' and '.join(kinds)}" if kinds else "")
        if seconds <= limit:
            return (
                True,
                f"{described}: sampling takes about {seconds:.0f} CPU s, at most {limit:.0f} are allowed",
            )
        return (
            False,
            f"{described}: sampling would take about {seconds:.0f} CPU s, over the {limit:.0f} allowed",
        )

    def _check_settings(self, sales: SalesMatrix) -> None:
        for name, value, choices in (
            ("mode", self.mode, MODES),
            ("noise", self.noise, NOISES),
            ("probability", self.probability, PROBABILITIES),
        ):
            if value not in choices:
                raise UsageError(f"{name} is {value!r}.", f"choose one of {', '.join(choices)}.")
        if self.rank != "auto":
            if not isinstance(self.rank, int) or isinstance(self.rank, bool):
                raise UsageError(f"rank is {self.rank!r}.", "give 'auto' or a whole number.")
            check_rank(self.rank, sales.shape)
        if self.anomaly != "auto":
            exposure_family(self.anomaly)
        if self.max_rank < 1 or (self.n_threads is not None and self.n_threads < 1):
            raise UsageError(f"max_rank is {self.max_rank} and n_threads {self.n_threads}; both start at 1.")


def _clear(fit: DetectorFit) -> bool:
    """Whether the anomalies found are deep enough, and theta known well enough, to trust the family."""
    return fit.theta_.identified and fit.theta_.alpha <= CLEAR_ALPHA


def _checked_level(
    level: ArrayLike | None, sales: SalesMatrix
) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    if level is None:
        return None
    values = np.asarray(level, dtype=np.float64)
    if values.shape != (sales.n_observed,):
        raise DataError(
            f"the level has shape {values.shape}; there are {sales.n_observed} observed pairs.",
            "give one level per observed pair, in row-major order.",
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0.0)))
    if bad.size:
        first = ", ".join(f"{sales.store_ids[sales.rows[e]]}/{sales.sku_ids[sales.cols[e]]}" for e in bad[:5])
        raise DataError(
            f"{bad.size} levels are not positive numbers (pairs {first}{', …' if bad.size > 5 else ''}).",
            "shrink a pair's level towards its SKU's, so that none is zero, or leave the pair out.",
        )
    return values


def _refuse_hopeless(sales: SalesMatrix) -> None:
    if sales.n_observed < FEWEST_ENTRIES:
        raise FitError(
            f"only {sales.n_observed} pairs are observed.", "widen the week's input: more stores or SKUs."
        )
    if not sales.counts.any():
        raise FitError(
            f"all {sales.n_observed} observed pairs sold zero; there is no demand to compare with.",
            "check that the sales file holds the week's units.",
        )
