"""The Hamiltonian sampler: reproducible, energy-conserving, and right where brute force can check it."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.sampler import _sampler_kernels as kernels
from ew_pipeline.method.sampler import _theta_kernels as theta_kernels
from ew_pipeline.method.sampler._adaptation import THETA_SCALES, first_scales
from ew_pipeline.method.sampler.chain import SamplerBudget, _trajectory, run_chain
from ew_pipeline.method.sampler.rate_posterior import NEGLIGIBLE_RATE
from ew_pipeline.method.sampler.state import SHAPE_GRID, CountTable, SamplerState
from ew_pipeline.method.variational.fit import VariationalFit, fit_variational, start_factors
from ew_pipeline.method.variational.theta import Parameters
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

SHORT = SamplerBudget(20, 30, 5, 4)
FAMILIES = ("exponential", "thinning", "zero", "uniform", "uniform_onset")


def observations(seed=0, **settings):
    settings = {"n": 30, "m": 25, "rank": 2, "mean": 10.0, "observed_share": 0.9, **settings}
    instance = draw_instance(EnsembleSettings(**settings), np.random.default_rng(seed))
    return instance, Observations.of(instance.sales)


def variational(data, family="exponential", rank=2):
    start = start_factors(data, rank, np.random.default_rng(1))
    return fit_variational(data, exposure_family(family), start, negative_binomial=False)


def chain(data, start, seed=0, budget=SHORT, family="exponential", held_out=None):
    table = CountTable.of(data)
    return run_chain(
        data, table, exposure_family(family), start, np.random.default_rng(seed), budget, held_out
    )


def test_a_chain_is_its_seed():
    _, data = observations(anomaly_rate=0.1, alpha=0.2)
    start = variational(data)
    first, same, other = (chain(data, start, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.healthy_probability, same.healthy_probability)
    np.testing.assert_array_equal(first.rate_draws, same.rate_draws)
    np.testing.assert_array_equal(first.kept_left, same.kept_left)
    assert not np.array_equal(first.rate_draws, other.rate_draws)


def test_a_chain_holds_what_it_promises():
    _, data = observations(anomaly_rate=0.1, alpha=0.2)
    result = chain(data, variational(data))
    n = data.counts.size
    assert result.healthy_probability.shape == (n,)
    assert ((result.healthy_probability >= 0.0) & (result.healthy_probability <= 1.0)).all()
    assert (result.means > 0.0).all()
    assert result.rate_draws.shape == (30,)
    assert ((result.rate_draws > 0.0) & (result.rate_draws < 0.4)).all()
    assert ((result.size_draws >= 0.5) & (result.size_draws <= 2000.0)).all()
    assert result.kept_left.shape == (4, 30, 2)
    np.testing.assert_array_equal(result.kept_draws, [7, 14, 22, 29])
    assert result.kept_right.shape == (4, 25, 2)
    assert 0.3 < result.acceptance <= 1.0


def test_draws_under_a_flatter_prior_are_the_same_with_other_weights():
    _, data = observations(anomaly_rate=0.1, alpha=0.5, mean=2.0)
    table, start, family = CountTable.of(data), variational(data), exposure_family("exponential")
    own = run_chain(data, table, family, start, np.random.default_rng(0), SHORT)
    flatter = run_chain(data, table, family, start, np.random.default_rng(0), SHORT, rate_tilt=5.0)
    np.testing.assert_array_equal(flatter.rate_draws, own.rate_draws)
    np.testing.assert_allclose(own.draw_weights, 1.0 / 30.0)
    gaps = np.diff(np.log(flatter.draw_weights))
    np.testing.assert_allclose(gaps, 5.0 * np.diff(own.rate_draws), atol=1e-12)
    assert flatter.draw_weights.sum() == pytest.approx(1.0)
    assert flatter.healthy_probability.mean() < own.healthy_probability.mean()
    assert not np.allclose(flatter.means, own.means, rtol=1e-6)


def test_how_much_of_the_posterior_leaves_no_anomalies_is_as_draws_of_the_rate_have_it():
    """Under the sampler's prior of p_A, and by less under a flatter one, as the weights of its draws say."""
    _, data = observations(anomaly_rate=0.01, alpha=0.5, mean=3.0)
    table, start, family = CountTable.of(data), variational(data), exposure_family("exponential")
    budget = SamplerBudget(60, 600, 6, 300)
    counted, found = [], []
    for tilt in (0.0, 5.0):
        long = run_chain(data, table, family, start, np.random.default_rng(2), budget, rate_tilt=tilt)
        counted.append(long.draw_weights[long.rate_draws < NEGLIGIBLE_RATE].sum())
        below, whole = long.negligible
        found.append(below / whole)
    assert 0.05 < counted[0] < 0.6
    assert found == pytest.approx(counted, rel=0.25)
    assert found[1] / found[0] == pytest.approx(counted[1] / counted[0], rel=0.05)
    assert counted[1] < 0.95 * counted[0]


def test_the_posterior_covers_theta_on_a_clean_instance():
    instance, data = observations(seed=4, n=50, m=40, anomaly_rate=0.15, alpha=0.2, mean=20.0)
    result = chain(data, variational(data), budget=SamplerBudget(40, 60, 6, 4))
    for draws, truth in ((result.rate_draws, 0.15), (result.alpha_draws, 0.2)):
        low, high = np.quantile(draws, [0.01, 0.99])
        assert low - 0.01 < truth < high + 0.01
        assert high - low < 0.15
    ideal = instance.truth.healthy_probability
    assert np.corrcoef(result.healthy_probability, ideal)[0, 1] > 0.95


def test_held_out_entries_are_scored_by_the_posterior_predictive_and_not_seen():
    _, data = observations(anomaly_rate=0.05, alpha=0.2)
    mask = np.zeros(data.counts.size, dtype=bool)
    mask[::9] = True
    sales = data.sales
    seen, hidden = Observations.of(sales.select(~mask)), Observations.of(sales.select(mask))
    table = CountTable.of(seen, np.unique(data.counts))
    start = variational(data)
    family = exposure_family("exponential")
    blind = run_chain(seen, table, family, start, np.random.default_rng(0), SHORT, hidden)
    alone = run_chain(seen, table, family, start, np.random.default_rng(0), SHORT)
    np.testing.assert_array_equal(blind.healthy_probability, alone.healthy_probability)
    assert alone.held_out_density.size == 0
    reference = stats.poisson.logpmf(hidden.counts, data.counts.mean())
    assert blind.held_out_density.shape == (mask.sum(),)
    assert (blind.held_out_density < 0.0).all()
    assert blind.held_out_density.mean() > reference.mean() + 0.3


@pytest.mark.parametrize(
    ("family", "any_shape"),
    [*((family, False) for family in FAMILIES), ("exponential", True), ("thinning", True)],
)
def test_trajectories_conserve_energy_as_the_step_shrinks(family, any_shape):
    """A wrong gradient anywhere (factors, theta, the level, the shift by e(theta)) loses energy at every
    step size."""
    instance, _ = observations(n=12, m=10, anomaly_rate=0.2, alpha=0.3, family=family)
    level = np.random.default_rng(3).uniform(0.5, 2.0, instance.sales.n_observed)
    data = Observations.of(instance.sales, level)
    law = exposure_family(family)
    if any_shape:
        law = law.any_shape
    state = SamplerState(data, CountTable.of(data), law, variational(data, family))
    out = [np.empty(data.counts.size) for _ in range(3)]
    scales = THETA_SCALES * np.array([1.0, float(law.alpha_free), 1.0, float(state.shape_free)])
    rng = np.random.default_rng(2)
    accepted = []
    for _ in range(6):
        likelihood = state.densities(out)
        chol = state.metric(out[0], out[1])
        accepted.append(_trajectory(state, likelihood, chol, scales, 0.02, 50, rng, out)[1])
    assert min(accepted) > 0.97


def test_first_steps_of_the_dispersion_are_as_short_as_the_data_know_it():
    assert first_scales(6000, 0.2)[0] == pytest.approx(0.1)
    np.testing.assert_array_equal(first_scales(6000, 0.2)[1:], THETA_SCALES[1:])
    for entries, inverse_size in ((6000, 0.0), (100, 0.2)):  # not overdispersed; too few to know
        np.testing.assert_array_equal(first_scales(entries, inverse_size), THETA_SCALES)


def test_noise_that_is_forced_to_be_poisson_stays_so():
    """s0 at (next to) its largest value in every draw; learnt, it comes down on overdispersed data."""
    _, data = observations(anomaly_rate=0.1, alpha=0.2, noise="negative_binomial", dispersion_size=3.0)
    start = variational(data)
    free, forced = (
        run_chain(
            data,
            CountTable.of(data),
            exposure_family("exponential"),
            start,
            np.random.default_rng(0),
            SHORT,
            overdispersed=overdispersed,
        )
        for overdispersed in (True, False)
    )
    assert forced.size_draws.min() > 1900.0
    assert np.median(free.size_draws) < 10.0


def test_a_trajectory_that_runs_off_is_refused():
    _, data = observations(n=12, m=10, anomaly_rate=0.2, alpha=0.3)
    state = SamplerState(data, CountTable.of(data), exposure_family("exponential"), variational(data))
    out = [np.empty(data.counts.size) for _ in range(3)]
    likelihood = state.densities(out)
    chol = state.metric(out[0], out[1])
    _, probability = _trajectory(
        state, likelihood, chol, THETA_SCALES, 50.0, 5, np.random.default_rng(0), out
    )
    assert probability == 0.0


def brute_force(counts, seed=0, n_draws=20_000):
    """Posterior means for one store and rank one by importance sampling from the prior.

    The SKU factors are independent given (u, a, theta), so each is summed over a grid in log v; b is
    integrated out, which leaves p(u) ~ 1/u.
    """
    rng = np.random.default_rng(seed)
    s0 = np.exp(rng.uniform(theta_kernels.LOG_SIZE_LOW, theta_kernels.LOG_SIZE_HIGH, n_draws))
    alpha = rng.beta(1.0, 1.5, n_draws)
    rate = stats.truncexpon.rvs(8.0 * 0.4, scale=1.0 / 8.0, size=n_draws, random_state=rng)
    shape = rng.choice(SHAPE_GRID, n_draws)
    u = np.exp(rng.uniform(math.log(counts.max()) - 5.0, math.log(counts.max()) + 6.0, n_draws))
    log_v = np.linspace(-9.0, 3.0, 160)
    v = np.exp(log_v)
    prior = np.exp(shape[:, None] * (log_v + np.log(shape)[:, None] - v) - gammaln(shape)[:, None])
    mu = u[:, None] * v
    total = np.zeros(n_draws)
    healthy_share = np.empty((n_draws, counts.size))
    for j, x in enumerate(counts):
        normal = (1.0 - rate[:, None]) * stats.nbinom.pmf(x, s0[:, None], 1.0 / (1.0 + mu / s0[:, None]))
        wrong = rate[:, None] * stats.geom.pmf(x + 1, 1.0 / (1.0 + alpha[:, None] * mu))
        evidence = ((normal + wrong) * prior).sum(axis=1)
        healthy_share[:, j] = (normal * prior).sum(axis=1) / evidence
        total += np.log(evidence)
    weight = np.exp(total - total.max())
    weight /= weight.sum()
    assert 1.0 / (weight**2).sum() > 1000  # enough effective draws for the comparison
    return {
        "rate": weight @ rate,
        "alpha": weight @ alpha,
        "log_size": weight @ np.log(s0),
        "healthy": weight @ healthy_share,
    }


def test_the_sampler_agrees_with_brute_force_on_one_store():
    counts = np.array([6, 5, 8, 0, 6, 1])
    data = Observations.of(SalesMatrix.from_dense(counts[None, :]))
    exact = brute_force(counts)
    start = VariationalFit(
        left=np.full((1, 1), 4.0),
        right=np.ones((6, 1)),
        means=np.full(6, 4.0),
        cavity_means=np.full(6, 4.0),
        cavity_cv2=np.full(6, 0.1),
        cv2=np.full(6, 0.1),
        healthy_probability=np.full(6, 0.9),
        entry_scores=np.zeros(6),
        parameters=Parameters(0.3, 0.1, 0.1),
        prior_shapes=(1.0, 1.0),
        score=0.0,
        null_score=0.0,
        n_sweeps=1,
        converged=True,
    )
    # one chain of this length still moves by 0.02 from seed to seed
    chains = [chain(data, start, seed, SamplerBudget(300, 5000, 7, 4)) for seed in range(3)]

    def mean(value):
        return np.mean([value(each) for each in chains], axis=0)

    np.testing.assert_allclose(mean(lambda c: c.healthy_probability), exact["healthy"], atol=0.02)
    assert mean(lambda c: c.rate_draws.mean()) == pytest.approx(exact["rate"], abs=0.008)
    assert mean(lambda c: c.alpha_draws.mean()) == pytest.approx(exact["alpha"], abs=0.03)
    assert mean(lambda c: np.log(c.size_draws).mean()) == pytest.approx(exact["log_size"], abs=0.3)


def test_inverse_cholesky_is_that_of_the_inverse():
    matrix = np.array([[4.0, 2.0, 0.4], [2.0, 3.0, 0.5], [0.4, 0.5, 1.0]])
    out = np.empty((3, 3))
    kernels.inverse_cholesky(matrix.copy(), out)
    np.testing.assert_allclose(out, np.linalg.cholesky(np.linalg.inv(matrix)), atol=1e-12)
