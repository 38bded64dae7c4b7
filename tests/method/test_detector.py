"""The detector as its users call it: names, shapes, invariances, modes and decisions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln, xlogy

from ew_pipeline import Costs, EntrywiseDetector, SalesMatrix
from ew_pipeline.backtest.metrics import auc
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method import detector as detector_module
from ew_pipeline.method import selection
from ew_pipeline.method.detector import _clear
from ew_pipeline.method.sampler.chain import SamplerBudget
from ew_pipeline.method.variational import tier
from ew_pipeline.method.variational.tier import fit_variational_tier
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

BUDGET = SamplerBudget(20, 30, 5, 4)
MODES = ("auto", "thorough", "variational", "fast", "paper", "paper-practical")
EQUAL = Costs(false_alarm=1.0, missed=1.0)


def detector(mode="auto", **options):
    return EntrywiseDetector(mode, **{"budget": BUDGET, "random_state": 0, **options})


def drawn(seed=0, **settings):
    settings = {
        "n": 30,
        "m": 24,
        "rank": 2,
        "mean": 10.0,
        "observed_share": 0.9,
        "anomaly_rate": 0.1,
        "alpha": 0.15,
        **settings,
    }
    return draw_instance(EnsembleSettings(**settings), np.random.default_rng(seed))


@pytest.fixture(scope="module")
def instance():
    return drawn()


@pytest.fixture(scope="module")
def fits(instance):
    return {mode: detector(mode).fit(instance.sales) for mode in MODES}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_documented_result(fits, instance, mode):
    fit, size = fits[mode], instance.sales.n_observed
    for values in (fit.anomaly_probability_, fit.expected_sales_, fit.expected_cv_, fit.healthy_probability_):
        assert values.shape == (size,)
        assert np.isfinite(values).all()
    assert fit.anomaly_probability_.min() >= 0.0
    assert fit.anomaly_probability_.max() <= 1.0
    np.testing.assert_allclose(fit.healthy_probability_, 1.0 - fit.anomaly_probability_)
    assert (fit.expected_sales_ > 0.0).all()
    theta = fit.theta_
    assert 0.0 <= theta.alpha <= 1.0
    assert 0.0 <= theta.anomaly_rate <= 0.4
    assert theta.alpha_interval[0] <= theta.alpha_interval[1]
    assert theta.anomaly_rate_interval[0] <= theta.anomaly_rate_interval[1]
    assert isinstance(theta.at_bound, bool)
    assert 1 <= fit.rank_ <= 10
    assert fit.noise_ in ("poisson", "negative_binomial")
    assert fit.anomaly_ in ("exponential", "thinning", "zero")
    assert isinstance(fit.converged_, bool)
    assert sum(fit.rank_weights_.values()) == pytest.approx(1.0)
    assert fit.mode_reason_
    assert fit.decide(EQUAL).dtype == bool


@pytest.mark.parametrize("mode", MODES)
def test_results_are_read_only(fits, mode):
    for values in (fits[mode].anomaly_probability_, fits[mode].expected_sales_):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0.5


@pytest.mark.parametrize("mode", ["auto", "thorough", "variational", "fast", "paper-practical"])
def test_anomalies_are_ranked_above_healthy_pairs(fits, instance, mode):
    truth = instance.truth
    ideal = auc(1.0 - truth.healthy_probability, truth.anomalous)
    assert auc(fits[mode].anomaly_probability_, truth.anomalous) > ideal - 0.06


def test_the_default_finds_theta_and_the_choices_behind_the_data(fits, instance):
    fit = fits["auto"]
    assert fit.rank_ == 2
    assert fit.noise_ == "poisson"
    assert np.isinf(fit.dispersion_size_)
    low, high = fit.theta_.anomaly_rate_interval
    assert low < 0.1 < high  # 652 pairs leave much open: it may be an onset uniform in the week
    assert fit.theta_.anomaly_rate == pytest.approx(0.1, abs=0.08)
    assert fit.theta_.identified
    rates = instance.truth.rates[instance.sales.rows, instance.sales.cols]
    assert np.median(np.abs(fit.expected_sales_ / rates - 1.0)) < 0.12


def hot_cell(observed=None):
    """Every pair sells about 40; pair (7, 3) sells nothing."""
    rng = np.random.default_rng(2)
    demand = np.outer(rng.uniform(5.0, 8.0, 20), rng.uniform(5.0, 8.0, 12))
    counts = rng.poisson(demand)
    counts[7, 3] = 0
    return SalesMatrix.from_dense(counts, observed)


@pytest.mark.parametrize("mode", MODES)
def test_a_zero_in_a_hot_cell_is_the_most_suspicious_pair(mode):
    fit = detector(mode).fit(hot_cell())
    assert fit.sales.to_dense(fit.anomaly_probability_)[7, 3] == fit.anomaly_probability_.max()
    assert np.argmax(fit.anomaly_probability_) == 7 * 12 + 3
    if mode in ("auto", "thorough", "variational"):
        assert fit.anomaly_probability_.max() > 0.9
        assert np.flatnonzero(fit.decide(EQUAL)).tolist() == [7 * 12 + 3]


def test_the_order_is_row_major_over_observed_pairs_only():
    observed = np.ones((20, 12), dtype=bool)
    observed[0, :5] = observed[7, 1] = False
    fit = detector("variational").fit(hot_cell(observed))
    assert fit.anomaly_probability_.size == 240 - 6
    assert np.argmax(fit.anomaly_probability_) == 7 * 12 + 3 - 6


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_result(fits, instance, mode):
    again = detector(mode).fit(instance.sales)
    np.testing.assert_array_equal(again.anomaly_probability_, fits[mode].anomaly_probability_)
    np.testing.assert_array_equal(again.expected_sales_, fits[mode].expected_sales_)
    assert again.theta_ == fits[mode].theta_


def test_one_detector_can_fit_twice_with_the_same_result(instance):
    one = detector("thorough")
    first, second = one.fit(instance.sales), one.fit(instance.sales)
    np.testing.assert_array_equal(first.anomaly_probability_, second.anomaly_probability_)


def test_another_seed_gives_other_draws_and_nearly_the_same_answer(fits, instance):
    other = detector("thorough", random_state=1).fit(instance.sales)
    mine = fits["thorough"]
    assert not np.array_equal(other.anomaly_probability_, mine.anomaly_probability_)
    assert np.corrcoef(other.anomaly_probability_, mine.anomaly_probability_)[0, 1] > 0.97


@pytest.mark.parametrize("settings", [{}, {"observed_share": 0.35}])  # one sampled openly, one blind
def test_the_number_of_threads_changes_nothing(settings):
    sales = drawn(**settings).sales
    one, two = (detector("thorough", n_threads=k).fit(sales) for k in (1, 2))
    np.testing.assert_array_equal(one.anomaly_probability_, two.anomaly_probability_)
    np.testing.assert_array_equal(one.expected_sales_, two.expected_sales_)
    assert one.theta_ == two.theta_


@pytest.mark.parametrize("mode", ["thorough", "variational", "fast"])
def test_the_order_of_stores_and_skus_does_not_matter(fits, instance, mode):
    sales, rng = instance.sales, np.random.default_rng(0)
    to_row, to_col = rng.permutation(sales.shape[0]), rng.permutation(sales.shape[1])
    shuffled = SalesMatrix.from_coo(to_row[sales.rows], to_col[sales.cols], sales.counts, sales.shape)
    found = shuffled.to_dense(detector(mode).fit(shuffled).anomaly_probability_)
    p = found[to_row[sales.rows], to_col[sales.cols]]
    mine = fits[mode].anomaly_probability_
    assert np.corrcoef(p, mine)[0, 1] > 0.99
    assert ((p > 0.5) == (mine > 0.5)).mean() > 0.98


@pytest.mark.parametrize("mode", ["thorough", "variational", "fast"])
def test_stores_and_skus_can_change_places(fits, instance, mode):
    turned = instance.sales.transpose()
    p = turned.to_dense(detector(mode).fit(turned).anomaly_probability_).T
    mine = fits[mode].anomaly_probability_
    p = p[instance.sales.rows, instance.sales.cols]
    assert np.corrcoef(p, mine)[0, 1] > 0.98
    assert ((p > 0.5) == (mine > 0.5)).mean() > 0.97


def test_the_mode_and_its_reason_are_reported(fits):
    assert fits["auto"].mode_ == "thorough"
    assert "pairs" in fits["auto"].mode_reason_
    assert "allowed" in fits["auto"].mode_reason_
    for mode in MODES[1:]:
        assert fits[mode].mode_ == mode
        assert fits[mode].mode_reason_ == "as asked"


def test_auto_turns_variational_when_sampling_would_take_too_long(instance):
    fit = detector(budget=SamplerBudget(1_000_000, 1_000_000, 7, 4)).fit(instance.sales)
    assert fit.mode_ == "variational"
    assert "over the" in fit.mode_reason_


def test_auto_says_that_data_are_sparse_or_overdispersed():
    sparse = detector().fit(drawn(observed_share=0.3).sales)
    assert "sparse" in sparse.mode_reason_
    assert sparse.held_out_curve_ is not None
    assert any("fewer than 12" in words for words in sparse.warnings_)
    noisy = drawn(noise="negative_binomial", dispersion_size=2.0)
    fit = detector().fit(noisy.sales)
    assert fit.noise_ == "negative_binomial"
    assert "overdispersed" in fit.mode_reason_
    assert 0.8 < fit.dispersion_size_ < 6.0


class HalfSold:
    """A user's own model: Poisson(alpha M / 2)."""

    name = "half-sold"
    alpha_bounds = (0.0, 1.0)

    def log_pmf(self, counts, rates, alpha):
        mu = np.maximum(alpha * np.asarray(rates, dtype=np.float64) / 2.0, 1e-12)
        return xlogy(counts, mu) - mu - gammaln(np.asarray(counts) + 1.0)

    def mean_factor(self, alpha):
        return alpha / 2.0

    def sample(self, rates, alpha, rng):
        return rng.poisson(alpha * np.maximum(rates, 0.0) / 2.0)


def test_an_own_anomaly_model_goes_variational_and_says_so(instance):
    fit = detector(anomaly=HalfSold()).fit(instance.sales)
    assert fit.anomaly_ == "half-sold"
    assert fit.mode_ == "variational"
    assert "half-sold" in fit.mode_reason_
    assert auc(fit.anomaly_probability_, instance.truth.anomalous) > 0.8
    assert fit.decide_rate(0.1).dtype == bool  # needs the model's own likelihood


def test_an_own_anomaly_model_is_refused_by_the_sampler(instance):
    with pytest.raises(UsageError, match="variational"):
        detector("thorough", anomaly=HalfSold()).fit(instance.sales)


class AlwaysHalf(HalfSold):
    """No free parameter: an anomalous pair sells half."""

    name = "always-half"
    alpha_bounds = (1.0, 1.0)


def test_an_own_model_without_a_free_parameter_reports_its_alpha(instance):
    fit = detector("variational", anomaly=AlwaysHalf()).fit(instance.sales)
    assert fit.theta_.alpha == 1.0
    assert fit.theta_.alpha_interval == (1.0, 1.0)


@pytest.mark.parametrize("anomaly", ["exponential", "thinning", "zero", "uniform", "uniform_onset"])
def test_a_family_that_is_asked_for_is_used(instance, anomaly):
    fit = detector(anomaly=anomaly).fit(instance.sales)
    assert fit.anomaly_ == anomaly
    assert fit.mode_ == "thorough"
    assert auc(fit.anomaly_probability_, instance.truth.anomalous) > 0.7  # the data are "exponential"
    if anomaly == "zero":
        assert fit.theta_.alpha == 0.0
        # f is exactly 1 where something was sold, whatever the ranks' weights sum to in floating point
        assert (fit.anomaly_probability_[instance.sales.counts > 0] == 0.0).all()
        assert fit.decide(EQUAL).any()


@pytest.mark.parametrize("mode", ["thorough", "variational"])
@pytest.mark.parametrize("noise", ["poisson", "negative_binomial"])
def test_noise_that_is_asked_for_is_used(instance, mode, noise):
    fit = detector(mode, noise=noise).fit(instance.sales)
    assert fit.noise_ == noise
    assert np.isinf(fit.dispersion_size_) == (noise == "poisson")


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_is_asked_for_is_used(instance, mode):
    fit = detector(mode, rank=3).fit(instance.sales)
    assert fit.rank_ == 3
    assert dict(fit.rank_weights_) == {3: 1.0}


def test_max_rank_limits_the_search(instance):
    assert detector("variational", max_rank=1).fit(instance.sales).rank_ == 1


def test_decisions_follow_the_cost_rule(fits):
    fit = fits["thorough"]
    f = fit.healthy_probability_
    costs = Costs(false_alarm=np.linspace(0.5, 3.0, f.size), missed=np.linspace(4.0, 1.0, f.size))
    flags, saving = fit.decide(costs), fit.expected_saving(costs)
    np.testing.assert_array_equal(flags, saving >= 0.0)
    np.testing.assert_allclose(saving, (1.0 - f) * costs.missed - f * costs.false_alarm)
    assert 0 < flags.sum() < f.size


def test_a_dearer_false_alarm_flags_fewer(fits):
    fit = fits["thorough"]
    cheap, dear = (fit.decide(Costs(false_alarm=c, missed=1.0)) for c in (0.2, 5.0))
    assert dear.sum() < cheap.sum()
    assert (cheap | ~dear).all()  # what is flagged at the dear price is flagged at the cheap one


def test_capped_decisions_are_the_best_of_each_store(fits, instance):
    fit, rows = fits["thorough"], instance.sales.rows
    free, capped = fit.decide(EQUAL), fit.decide_capped(EQUAL, 1)
    saving = fit.expected_saving(EQUAL)
    per_store = np.bincount(rows[capped.flags], minlength=30)
    np.testing.assert_array_equal(per_store, np.minimum(np.bincount(rows[free], minlength=30), 1))
    for store in np.flatnonzero(per_store):
        mine = rows == store
        assert saving[mine & capped.flags].item() == saving[mine].max()
    assert capped.expected_saving_total == pytest.approx(saving[capped.flags].sum())
    np.testing.assert_array_equal(fit.decide_capped(EQUAL, 1000).flags, saving > 0.0)


def test_a_wider_interval_flags_fewer_at_the_same_rate(fits):
    fit = fits["thorough"]
    counts = [fit.rate_decision(0.05, z=z).inclusion.sum() for z in (0.0, 1.0, 2.0)]
    assert counts[0] > counts[1] > counts[2]
    assert fit.decide_rate(0.05, z=2.0).sum() < fit.decide_rate(0.05, z=0.0).sum()


def test_the_rate_is_kept_and_a_looser_one_flags_more(fits, instance):
    fit, healthy = fits["thorough"], ~instance.truth.anomalous
    tight, loose = fit.decide_rate(0.02), fit.decide_rate(0.2)
    assert tight.sum() < loose.sum()
    assert tight[healthy].mean() <= 0.04
    np.testing.assert_array_equal(tight, fit.decide_rate(0.02))


def test_intervals_hold_the_probability_and_widen_with_z(fits):
    fit = fits["thorough"]
    f = fit.healthy_probability_
    low1, high1 = fit.probability_interval(1.0)
    low2, high2 = fit.probability_interval(2.0)
    small = 1e-9
    assert (low1 <= f + small).all()
    assert (f <= high1 + small).all()
    assert (low2 <= low1 + small).all()
    assert (high1 <= high2 + 0.03).all()  # the peak between the ends is looked at on a coarse grid
    assert (high2 - low2).mean() > 1.3 * (high1 - low1).mean()
    for end in fit.probability_interval(0.0):
        np.testing.assert_array_equal(end, f)


def test_the_drop_probability_can_be_priced_instead(fits, instance):
    fit = detector("variational", probability="drop").fit(instance.sales)
    np.testing.assert_array_equal(fit.posterior_, fits["variational"].posterior_)
    np.testing.assert_array_equal(fit.anomaly_probability_, fit.drop_probability())
    assert ((fit.anomaly_probability_ >= 0.0) & (fit.anomaly_probability_ <= 1.0)).all()
    rates = instance.truth.rates[instance.sales.rows, instance.sales.cols]
    dropped = instance.sales.counts <= 0.5 * rates
    assert auc(fit.anomaly_probability_, dropped) > 0.97
    flags = fit.decide(EQUAL)
    np.testing.assert_array_equal(flags, fit.anomaly_probability_ >= 0.5)


def test_a_deeper_drop_is_less_likely(fits):
    fit = fits["variational"]
    deep, shallow = fit.drop_probability(0.3), fit.drop_probability(0.7)
    assert (deep <= shallow + 1e-12).all()
    assert deep.sum() < shallow.sum()


@pytest.fixture(scope="module")
def thinned():
    return drawn(n=40, m=40, rank=1, mean=30.0, observed_share=1.0, alpha=0.4, family="thinning")


def test_a_rival_family_must_be_borne_out_by_the_fit(thinned, monkeypatch):
    """Where the family is not sampled, the fit of a rival that does not hold up is done again."""

    def anomaly_of(**options):
        return detector("variational", **options).fit(thinned.sales).anomaly_

    assert anomaly_of() == "thinning"
    monkeypatch.setattr(detector_module, "CLEAR_ALPHA", 0.0)
    assert anomaly_of() == "exponential"
    assert anomaly_of(anomaly="thinning") == "thinning"  # asked for: not questioned


def test_a_fit_is_clear_when_theta_is_known_and_anomalies_are_deep(thinned):
    fit = detector().fit(thinned.sales)
    assert _clear(fit)
    assert not _clear(replace(fit, theta_=replace(fit.theta_, identified=False)))
    assert not _clear(replace(fit, theta_=replace(fit.theta_, alpha=0.8)))


@pytest.mark.parametrize("family", ["exponential", "thinning", "uniform_onset", "zero"])
def test_the_thorough_tier_finds_the_family_with_theta(family):
    found = drawn(n=60, m=60, rank=1, mean=30.0, observed_share=1.0, alpha=0.4, family=family)
    fit = detector().fit(found.sales)
    assert fit.mode_ == "thorough"
    assert fit.anomaly_ == family
    assert fit.anomaly_model.name == family
    assert fit.theta_.anomaly_rate == pytest.approx(0.1, abs=0.03)
    assert fit.diagnostics_["anomalies_exist"] > 0.99
    weight = fit.diagnostics_["weight_of_uniform_onset"]
    assert weight > 0.5 if family == "uniform_onset" else weight < 0.5


@pytest.mark.parametrize(
    ("mode", "at_bound", "taken"),
    [
        ("auto", True, "large"),
        ("auto", False, "variational"),
        ("variational", True, "variational"),
    ],
)
def test_a_variational_fit_on_the_edge_of_theta_is_not_the_default_s_answer(
    monkeypatch, mode, at_bound, taken
):
    """Seen with 14 pairs a store and five factors: one factor, p_A = 0 and flags that cost thrice nothing."""

    def ended(plan, found):
        fit = fit_variational_tier(plan, found)
        return replace(fit, theta_=replace(fit.theta_, at_bound=at_bound))

    monkeypatch.setattr("ew_pipeline.method.detector.fit_variational_tier", ended)
    monkeypatch.setattr(EntrywiseDetector, "_choose_tier", lambda *_: (False, "too many pairs to sample"))
    fit = detector(mode).fit(drawn().sales)
    assert fit.mode_ == taken
    assert ("on the edge" in fit.mode_reason_) == (taken == "large")


def test_overdispersion_that_only_the_chains_see_is_explored_again(monkeypatch):
    """A Poisson path on overdispersed data is done again with negative binomial noise."""
    noisy = drawn(noise="negative_binomial", dispersion_size=2.0)
    monkeypatch.setattr(selection, "NEGLIGIBLE_DISPERSION", 100.0)  # the exploration sees Poisson noise
    assert not tier.explore(detector()._plan(noisy.sales, None)).path.negative_binomial
    fit = detector().fit(noisy.sales)
    assert fit.noise_ == "negative_binomial"
    assert fit.diagnostics_["sampler_runs"] >= 2.0
    assert fit.held_out_curve_ is not None  # stacked on held-out entries, as overdispersed data are


def test_f_is_believed_as_far_as_anomalies_beat_the_null_model():
    found = tier.explore(detector()._plan(drawn(anomaly_rate=0.0).sales, None))
    f = np.array([0.0, 0.5, 1.0])
    at_even = replace(found, null_gain=tier.NULL_HANDICAP)
    np.testing.assert_allclose(tier._believed(at_even, f), [0.5, 0.75, 1.0])
    np.testing.assert_allclose(tier._believed(replace(found, null_gain=500.0), f), f)
    noisy = replace(at_even, path=replace(found.path, negative_binomial=True))
    np.testing.assert_array_equal(tier._believed(noisy, f), f)


@pytest.mark.parametrize("mode", ["thorough", "variational"])
def test_where_no_anomalies_are_needed_next_to_nothing_is_flagged(mode):
    """The model without anomalies predicts as well: f is averaged with it."""
    healthy = drawn(3, n=50, m=50, anomaly_rate=0.0)
    fit = detector(mode).fit(healthy.sales)
    assert fit.null_gain_ < 15.0
    assert fit.decide(EQUAL).mean() < 0.003
