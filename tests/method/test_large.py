"""The large-scale fit: its kernels against plain numpy, theta against the truth, work counted."""

import tracemalloc

import numpy as np
import pytest

from ew_pipeline import Costs, EntrywiseDetector, SalesMatrix
from ew_pipeline.method import entry_blocks
from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.large import als as als_module
from ew_pipeline.method.large._als_kernels import Lines, Prior, Variance, half_sweep
from ew_pipeline.method.large.als import first_guess
from ew_pipeline.method.large.factor_state import FactorState, learnt_prior
from ew_pipeline.method.large.fit import FULL, QUICK
from ew_pipeline.method.large.rank import LEAST_SQUARES, POISSON, SWEEPS, large_ranks, sketch, sketch_rows
from ew_pipeline.method.large.scores import healthy_probabilities
from ew_pipeline.method.large.some_rows import entries_of, spread_part
from ew_pipeline.method.large.tier import effort_at, spending_on
from ew_pipeline.method.large.whole_week import fit_large
from ew_pipeline.method.noise import NegativeBinomial
from ew_pipeline.method.paper.posterior import healthy_probability
from ew_pipeline.method.sampler.chain import SamplerBudget
from ew_pipeline.method.selection import CLEAR_ALPHA
from ew_pipeline.method.variational.theta import Parameters
from ew_pipeline.studies.bench.als import als
from ew_pipeline.studies.ensemble import SparseSettings, draw_sparse

EXPONENTIAL = exposure_family("exponential")


def frozen(array):
    array.flags.writeable = False
    return array


def drawn(observed=250_000, n=2000, m=900, rank=3, seed=0, **other):
    return draw_sparse(
        SparseSettings(n=n, m=m, observed=observed, rank=rank, **other), np.random.default_rng(seed)
    )


@pytest.fixture(scope="module")
def poisson():
    return drawn()


@pytest.fixture(scope="module")
def fitted(poisson):
    right = sketch(poisson.sales, None, EXPONENTIAL, (3,), np.random.default_rng(0), 1).right
    return fit_large(BothWays.of(poisson.sales), EXPONENTIAL, right, noise="auto", effort=FULL, threads=1)


def started(both, rank, sweeps):
    """From nothing, by so many Poisson-weighted sweeps."""
    state = FactorState.start(both, *first_guess(both, rank, np.random.default_rng(0)))
    for done in range(4 + sweeps):
        state.first_sweep(both, Variance(constant=both.mean) if done < 4 else Variance(), 1)
    return state


def test_both_ways_hold_the_same_entries(poisson):
    sales = poisson.sales
    both = BothWays.of(sales, np.arange(1.0, sales.n_observed + 1))
    columns = both.by_column
    entry = sales.by_column.entry
    np.testing.assert_array_equal(sales.rows[entry], columns.others)
    np.testing.assert_array_equal(sales.counts[entry], columns.counts)
    np.testing.assert_array_equal(both.by_row.level[entry], columns.level)
    np.testing.assert_array_equal(np.diff(columns.indptr), np.bincount(sales.cols, minlength=sales.shape[1]))
    assert (np.diff(columns.others)[np.diff(sales.cols[entry]) == 0] > 0).all()


def test_a_half_sweep_is_one_scoring_step_of_the_mixture():
    """The new factors against the normal equations of the score and its expected slope, line by line."""
    rng = np.random.default_rng(1)
    n, m, r = 30, 400, 3
    sales = SalesMatrix.from_dense(rng.poisson(4.0, (n, m)), rng.random((n, m)) < 0.8)
    e = sales.n_observed
    f, L = rng.uniform(0.0, 1.0, e), rng.uniform(0.5, 2.0, e)
    U, V = rng.uniform(0.5, 1.5, (n, r)), rng.uniform(0.5, 1.5, (m, r))
    K = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 1.5]])
    prior = Prior(K, np.array([1.0, 0.5, 2.0]))
    law = Variance(inverse_size=0.2, alpha=0.3, inverse_shape=1.0)
    inverses = np.empty((n, 6))
    new, _ = half_sweep(
        Lines(sales.indptr, sales.cols, sales.counts, frozen(L), frozen(f)),
        V,
        U,
        prior=prior,
        floor=0.01,
        variance=law,
        inverses=inverses,
    )
    for i in range(n):
        part = slice(sales.indptr[i], sales.indptr[i + 1])
        v, x, level, healthy = V[sales.cols[part]], sales.counts[part], L[part], f[part]
        rate = v @ U[i]
        mu = level * rate
        good = (x - mu) / (rate * (1 + 0.2 * mu))
        bad = (x - 0.3 * mu) / (rate * (1 + 0.3 * mu))
        slope = healthy * level / (rate * (1 + 0.2 * mu)) + (1 - healthy) * 0.3 * level / (
            rate * (1 + 0.3 * mu)
        )
        H = (v * slope[:, None]).T @ v + K
        score = v.T @ (healthy * good + (1 - healthy) * bad) - K @ (U[i] - prior.mean)
        np.testing.assert_allclose(new[i], U[i] + np.linalg.solve(H, score), rtol=1e-9)
        np.testing.assert_allclose(inverses[i], np.linalg.inv(H)[np.tril_indices(r)], rtol=1e-9)


def test_leave_one_out_is_what_a_fit_without_the_entry_predicts():
    """One-step cavity of an entry against sweeps to convergence with that entry taken out."""
    sales = drawn(observed=6_000, n=150, m=100, rank=2, seed=3, anomaly_rate=0.0).sales
    both = BothWays.of(sales, None, np.float64)
    variance = Variance()
    state = started(both, 2, 40)
    for _ in range(30):
        state.sweep(both, variance, 1)
    means, cavity, cv2 = (np.empty(sales.n_observed) for _ in range(3))
    state.predict(both, variance, 1, means, cavity, cv2)
    moved, believed = [], []
    for e in range(0, sales.n_observed, 311):
        keep = np.ones(sales.n_observed, dtype=bool)
        keep[e] = False
        part = BothWays.of(sales.select(keep), None, np.float64)
        other = FactorState.start(part, state.left, state.right)
        other.priors = state.priors
        for _ in range(15):
            other.sweep(part, variance, 1)
        moved.append(other.left[sales.rows[e]] @ other.right[sales.cols[e]] - means[e])
        believed.append(cavity[e] - means[e])
    assert np.corrcoef(moved, believed)[0, 1] > 0.98
    assert np.polyfit(moved, believed, 1)[0] == pytest.approx(1.0, abs=0.15)


def test_f_is_the_posterior_of_the_predictive(poisson):
    sales = poisson.sales
    rng = np.random.default_rng(2)
    some = slice(0, 3000)
    means = rng.uniform(0.2, 40.0, 3000).astype(np.float32)
    cv2 = rng.uniform(0.001, 0.3, 3000).astype(np.float32)
    for name, p in (("exponential", 0.3), ("thinning", 0.3), ("zero", 0.0), ("uniform", 0.4)):
        theta = Parameters(p, 0.07, 0.2)
        got = healthy_probabilities(sales.counts[some], means, cv2, exposure_family(name), theta)
        size = 1.0 / (cv2.astype(float) + 0.2)
        expected = healthy_probability(
            sales.counts[some], means, p, 0.07, NegativeBinomial(size), anomaly_model(name)
        )
        np.testing.assert_allclose(got, expected, atol=2e-5)


def test_a_learnt_prior_has_the_mean_and_spread_of_the_lines_with_their_own_uncertainty():
    rng = np.random.default_rng(0)
    truth = rng.multivariate_normal([2.0, -1.0], [[1.0, 0.4], [0.4, 0.5]], 100_000)
    own = np.array([[0.3, 0.1], [0.1, 0.2]])
    shrunk_away = truth - rng.multivariate_normal([0.0, 0.0], own, len(truth))
    prior = learnt_prior(truth, np.tile(own[np.tril_indices(2)], (len(truth), 1)))
    np.testing.assert_allclose(prior.mean, [2.0, -1.0], atol=0.02)
    np.testing.assert_allclose(np.linalg.inv(prior.precision), np.cov(shrunk_away.T), atol=0.03)


@pytest.mark.parametrize("size", [None, 30.0])
def test_theta_and_demand_are_near_the_truth(size):
    instance = drawn(dispersion_size=size, seed=5)
    fit = EntrywiseDetector("large").fit(instance.sales)
    assert fit.rank_ == 3
    assert fit.noise_ == ("poisson" if size is None else "negative_binomial")
    assert fit.converged_
    assert fit.theta_.anomaly_rate == pytest.approx(0.04, rel=0.15)
    low, high = fit.theta_.anomaly_rate_interval
    assert low < 0.04 < high
    low, high = fit.theta_.alpha_interval
    assert low < 0.2 < high
    error = np.linalg.norm(fit.expected_sales_ - instance.rates) / np.linalg.norm(instance.rates)
    plain = als(instance.sales, 3, np.random.default_rng(0)).factors.rates_at(instance.sales)
    assert error < np.linalg.norm(plain - instance.rates) / np.linalg.norm(instance.rates)


def test_fast_is_close_to_large(poisson, fitted):
    fast = EntrywiseDetector("fast").fit(poisson.sales)
    assert fast.mode_ == "fast"
    assert fast.rank_ == 3
    assert fast.diagnostics_["rounds"] == 1
    assert fast.theta_.anomaly_rate == pytest.approx(0.04, rel=0.2)
    assert np.corrcoef(fast.posterior_, 1.0 - fitted.healthy.single)[0, 1] > 0.97


def test_auto_takes_it_above_half_a_million_pairs_and_says_so(monkeypatch, poisson):
    monkeypatch.setattr("ew_pipeline.method.detector.MOST_VARIATIONAL", 1000)
    fit = EntrywiseDetector(rank=3).fit(poisson.sales)
    assert fit.mode_ == "large"
    assert "250,000 pairs" in fit.mode_reason_


def test_with_a_level_auto_takes_it_sooner(poisson):
    level = np.full(poisson.sales.n_observed, 5.0)
    fit = EntrywiseDetector(rank=1).fit(poisson.sales, level=level)
    assert fit.mode_ == "large"
    assert "250,000 pairs with a level" in fit.mode_reason_


def test_auto_takes_it_where_lines_are_short_and_says_so():
    """14 pairs to a store: the variational tier found two factors of three, and 11% anomalies of 4%."""
    thin = drawn(observed=100_000, n=7000, m=1000, seed=2)
    fit = EntrywiseDetector().fit(thin.sales)
    assert fit.mode_ == "large"
    assert "14 to a store" in fit.mode_reason_
    assert fit.rank_ == 3
    assert fit.theta_.anomaly_rate < 0.07


@pytest.mark.parametrize(
    ("line", "size", "seconds", "mode"),
    [
        (45, None, 0.0, "large"),
        (45, 2.0, 0.0, "thorough"),
        (20, 2.0, 0.0, "large"),
        (20, None, 5.0, "thorough"),
    ],
)
def test_short_lines_are_sampled_where_they_are_few_or_long_enough_and_overdispersed(
    monkeypatch, line, size, seconds, mode
):
    monkeypatch.setattr("ew_pipeline.method.detector.EASY_SECONDS", seconds)
    monkeypatch.setattr("ew_pipeline.method.detector.THIN_FROM", 1000)
    few = drawn(observed=300 * line, n=100, m=300, rank=1, seed=3, dispersion_size=size)
    budget = SamplerBudget(warm_up=10, draws=10, kept=5)
    fit = EntrywiseDetector(max_rank=2, budget=budget).fit(few.sales)
    assert fit.mode_ == mode
    assert (f"{line} to a SKU" in fit.mode_reason_) == (mode == "large")


def test_short_lines_do_not_take_noise_for_shallow_anomalies():
    """24 pairs to a store, s0 = 2: alpha 0.87 and alpha 0.09 explain the week alike; the first costs more
    than flagging nothing does."""
    thin = drawn(168_000, 7000, 1000, rank=5, seed=3022, dispersion_size=2.0)
    fit = EntrywiseDetector(n_threads=1).fit(thin.sales)
    assert fit.mode_ == "large"
    assert fit.theta_.alpha < CLEAR_ALPHA
    costs = np.random.default_rng(4).uniform(0.0, 10.0, (2, thin.sales.n_observed))
    flags = fit.decide(Costs(false_alarm=costs[0], missed=costs[1]))
    paid = costs[0][flags & ~thin.anomalous].sum() + costs[1][~flags & thin.anomalous].sum()
    assert paid < costs[1][thin.anomalous].sum()


def test_on_short_lines_no_rank_is_given_up_for_the_ones_above_it():
    """With 14 pairs to a store and s0 = 3 the scores fall from ten factors to five, and one is the best."""
    thin = drawn(100_100, 7000, 1000, rank=5, seed=3015, anomaly_rate=0.1, dispersion_size=3.0)
    fit = EntrywiseDetector("large", n_threads=1).fit(thin.sales)
    assert fit.held_out_curve_.ranks[0] == 1
    assert fit.rank_ == 1


@pytest.mark.parametrize("mode", ["large", "fast"])
def test_with_a_level_the_low_rank_is_the_ratio(mode, poisson):
    rng = np.random.default_rng(7)
    sales = poisson.sales
    level = rng.gamma(2.0, 4.0, sales.n_observed)
    exposure = np.where(rng.random(level.size) < 0.04, rng.exponential(0.2, level.size), 1.0)
    counts = rng.poisson(level * exposure).astype(np.int32)
    sold = SalesMatrix(sales.indptr, sales.cols, frozen(counts), sales.shape, sales.store_ids, sales.sku_ids)
    fit = EntrywiseDetector(mode).fit(sold, level=level)
    assert fit.rank_ == 1
    assert fit.theta_.anomaly_rate == pytest.approx(0.04, rel=0.15)
    np.testing.assert_allclose(np.median(fit.expected_sales_ / level), 1.0, atol=0.02)


def test_the_result_does_not_depend_on_threads(monkeypatch, poisson):
    monkeypatch.setattr(entry_blocks, "WORTH_A_THREAD", 1000)
    one, three = (EntrywiseDetector("large", n_threads=k).fit(poisson.sales) for k in (1, 3))
    np.testing.assert_array_equal(one.posterior_, three.posterior_)
    np.testing.assert_array_equal(one.expected_sales_, three.expected_sales_)
    assert one.theta_ == three.theta_
    assert (one.rank_, one.noise_) == (three.rank_, three.noise_)


def test_blocks_of_lines_give_the_same_bits_on_any_number_of_threads(monkeypatch, poisson):
    monkeypatch.setattr(entry_blocks, "WORTH_A_THREAD", 1000)
    both = BothWays.of(poisson.sales)
    start = started(both, 3, 0)
    results = []
    for threads in (1, 3):
        state = FactorState.start(both, start.left, start.right)
        state.sweep(both, Variance(), threads)
        out = [np.empty(poisson.sales.n_observed, dtype=np.float32) for _ in range(3)]
        state.predict(both, Variance(), threads, *out)
        results.append([state.left, state.right, *state.inverses, *out])
    for one, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("rank", [1, 4])
def test_the_rank_is_found_on_held_out_entries(rank):
    instance = drawn(rank=rank, observed=120_000, n=1000, m=600, seed=11)
    rng = np.random.default_rng(0)
    for n_rows in (1000, 500):
        part, _ = spread_part(instance.sales, None, n_rows)
        found = sketch(part, None, EXPONENTIAL, (1, 2, 3, 4, 5, 7), rng, 1)
        assert found.rank == found.curve.best == rank
        assert found.curve.ranks[0] == (1 if rank == 1 else 2)  # 3 and 2 are clearly worse than 4: no 1


def test_a_part_of_the_rows_is_those_rows_with_their_levels(poisson):
    sales = poisson.sales
    level = np.arange(1.0, sales.n_observed + 1)
    part, own = spread_part(sales, level, 40)
    rows = np.searchsorted(sales.store_ids.astype(int), part.store_ids.astype(int))
    assert part.shape == (40, sales.shape[1])
    assert (rows[0], rows[-1]) == (0, sales.shape[0] - 1)
    np.testing.assert_array_equal(part.to_dense(), sales.to_dense()[rows])
    np.testing.assert_array_equal(part.to_dense(own), sales.to_dense(level)[rows])
    assert spread_part(sales, level, sales.shape[0])[0] is sales


def test_entries_of_rows_also_where_some_have_none():
    indptr = np.array([0, 2, 2, 5, 6])
    np.testing.assert_array_equal(entries_of(indptr, np.array([0, 1, 3])), [0, 1, 5])
    np.testing.assert_array_equal(entries_of(indptr, np.array([1, 2])), [2, 3, 4])


def test_a_sketch_has_enough_rows_for_its_columns_and_is_smaller_where_no_rank_is_chosen():
    shape, observed, most = (70_000, 10_000), 10**7, 4_000_000
    assert sketch_rows(shape, observed, (1, 2), most) == 28_000
    assert sketch_rows(shape, observed, (5,), most) == 4_200
    few_rows = (5_000, 100_000)
    assert sketch_rows(few_rows, 10**8, (1, 2), 600_000) == 200  # 40 entries of each column
    assert sketch_rows((20, 100), 1_500, (1, 2), most) == 20


def test_a_fit_from_the_sketch_is_nearly_there_after_three_sweeps(poisson, fitted):
    """Against the whole fit; from factors drawn at random three sweeps are not enough."""
    sales = poisson.sales
    both, rng = BothWays.of(sales), np.random.default_rng(0)
    part, _ = spread_part(sales, None, 600)
    errors = []
    for right in (sketch(part, None, EXPONENTIAL, (3,), rng, 1).right, first_guess(both, 3, rng)[1]):
        fit = fit_large(both, EXPONENTIAL, right, noise="auto", effort=QUICK, threads=1)
        errors.append(np.linalg.norm(fit.means.single - poisson.rates) / np.linalg.norm(poisson.rates))
    best = np.linalg.norm(fitted.means.single - poisson.rates) / np.linalg.norm(poisson.rates)
    assert errors[0] < 1.1 * best
    assert errors[1] > 1.2 * best


@pytest.mark.parametrize(("most", "expected"), [(8, 8), (7, 7), (6, 6), (10, 10), (1, 1)])
def test_the_largest_rank_allowed_is_tried(most, expected):
    assert large_ranks((3000, 1000), 240_000, most)[-1] == expected


def test_work_is_counted_in_sweeps_and_memory_in_entries(monkeypatch, poisson):
    """Passes over the data and bytes per entry, which load does not change; nothing of the size n x m."""
    sweeps = []
    real = als_module.half_sweep
    monkeypatch.setattr(als_module, "half_sweep", lambda *a, **k: sweeps.append(1) or real(*a, **k))
    sales = poisson.sales
    EntrywiseDetector("large", rank=3).fit(sales)  # compiled
    sweeps.clear()
    tracemalloc.start()
    EntrywiseDetector("large", rank=3).fit(sales)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    of_sketch = LEAST_SQUARES + POISSON + SWEEPS
    assert len(sweeps) / 2 <= of_sketch + FULL.least_squares + FULL.poisson + FULL.rounds * FULL.sweeps
    assert peak < 90 * sales.n_observed + 30e6
    sweeps.clear()
    EntrywiseDetector("fast", rank=3).fit(sales)
    assert len(sweeps) / 2 == of_sketch + 3


def test_nothing_of_the_size_of_the_whole_matrix_is_made():
    sparse = drawn(observed=60_000, n=20_000, m=15_000, rank=1, seed=1)  # 3e8 pairs, 2.4 GB as doubles
    tracemalloc.start()
    EntrywiseDetector("large", rank=1).fit(sparse.sales)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def test_few_pairs_get_rounds_until_theta_settles_and_fast_is_one_round_of_many():
    assert spending_on("large", 999_999).effort.rounds > spending_on("large", 1_000_000).effort.rounds
    assert spending_on("fast", 200_000).effort.rounds == 1
    assert spending_on("fast", 199_999) == spending_on("large", 199_999)


def test_short_lines_get_all_rounds_also_in_a_quick_fit():
    quick, full = (spending_on(mode, 1_000_000).effort for mode in ("fast", "large"))
    assert effort_at(quick, (10_000, 10_000), 1_000_000, rank=5) == quick
    for shape in ((10_001, 50), (50, 10_001)):
        assert effort_at(quick, shape, 1_000_000, rank=5).rounds == full.rounds > quick.rounds


def test_a_rank_between_the_candidates_is_found_and_theta_with_it():
    """Eight factors: candidates are 7 and 10, and a factor too few looked like twice the anomalies."""
    drawn = draw_sparse(SparseSettings(n=3000, m=1000, observed=240_000, rank=8), np.random.default_rng(5))
    fit = EntrywiseDetector("fast", random_state=0).fit(drawn.sales)
    assert fit.rank_ == 8
    assert fit.theta_.anomaly_rate == pytest.approx(drawn.anomalous.mean(), abs=0.015)
    # at the end of the range it has fewer sweeps behind it than 7 has, and must not lose for that
    assert EntrywiseDetector("fast", max_rank=8, random_state=1).fit(drawn.sales).rank_ == 8
