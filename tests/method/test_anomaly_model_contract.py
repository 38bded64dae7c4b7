"""Every anomaly model, built in or a user's own, keeps the promises of section 2: it is a law, its mean is
g(alpha) M, and its sampler draws from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ew_pipeline.method.anomalies import BUILT_IN, AnomalyModel, anomaly_model
from ew_pipeline.method.intervals import information_interval, to_theta
from ew_pipeline.method.noise import Poisson, noise_log_pmf
from ew_pipeline.method.paper.likelihood import MixtureProblem, maximum_likelihood
from ew_pipeline.method.paper.posterior import healthy_probability


@dataclass(frozen=True)
class GammaOnset:
    """A user's own discrete family: the week stops after E ~ Gamma(3) with mean alpha."""

    name: str = "gamma onset"
    alpha_bounds: tuple[float, float] = (0.0, 1.0)

    def log_pmf(self, counts: Any, rates: Any, alpha: float) -> Any:
        return noise_log_pmf(counts, alpha * np.asarray(rates, dtype=float), 3.0)

    def mean_factor(self, alpha: float) -> float:
        return alpha

    def sample(self, rates: Any, alpha: float, rng: np.random.Generator) -> Any:
        return rng.poisson(rng.gamma(3.0, alpha / 3.0, size=np.shape(rates)) * np.asarray(rates))


@dataclass(frozen=True)
class GammaSales:
    """A user's own continuous law with mean (alpha) M: takings, not units. As anomaly and as noise."""

    shape: float = 4.0
    name: str = "gamma sales"
    alpha_bounds: tuple[float, float] = (0.05, 0.95)

    def log_pmf(self, counts: Any, rates: Any, alpha: float = 1.0) -> Any:
        scale = np.maximum(alpha * np.asarray(rates, dtype=float), 1e-300) / self.shape
        return stats.gamma.logpdf(np.asarray(counts, dtype=float), self.shape, scale=scale)

    def mean_factor(self, alpha: float) -> float:
        return alpha

    def sample(self, rates: Any, alpha: float, rng: np.random.Generator) -> Any:
        return rng.gamma(self.shape, alpha * np.asarray(rates) / self.shape)


DISCRETE: list[AnomalyModel] = [*BUILT_IN.values(), GammaOnset()]
ALL = [*DISCRETE, GammaSales()]
ALPHAS = (0.05, 0.4, 0.95)
RATES = (0.02, 0.7, 6.0, 60.0)


def name_of(model: AnomalyModel) -> str:
    return model.name


def alphas_of(model: AnomalyModel) -> tuple[float, ...]:
    low, high = model.alpha_bounds
    return ALPHAS if low < high else (low,)


@pytest.mark.parametrize("model", DISCRETE, ids=name_of)
def test_probabilities_sum_to_one_and_their_mean_is_g_times_the_rate(model: AnomalyModel) -> None:
    counts = np.arange(3000)
    for alpha in alphas_of(model):
        for rate in RATES:
            pmf = np.exp(model.log_pmf(counts, rate, alpha))
            assert pmf.sum() == pytest.approx(1.0, abs=1e-9)
            assert counts @ pmf == pytest.approx(model.mean_factor(alpha) * rate, abs=1e-6)


def test_a_continuous_density_integrates_to_one_with_mean_g_times_the_rate() -> None:
    model = GammaSales()
    x = np.linspace(1e-6, 60.0, 200_001)
    density = np.exp(model.log_pmf(x, 6.0, 0.4))
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-6)
    assert np.trapezoid(x * density, x) == pytest.approx(model.mean_factor(0.4) * 6.0, abs=1e-5)


@pytest.mark.parametrize("model", DISCRETE, ids=name_of)
def test_the_sampler_agrees_with_the_probabilities(model: AnomalyModel) -> None:
    rng = np.random.default_rng(7)
    for alpha in alphas_of(model):
        for rate in (0.7, 6.0):
            draws = np.asarray(model.sample(np.full(4000, rate), alpha, rng))
            expected = 4000 * np.exp(model.log_pmf(np.arange(60), rate, alpha))
            last = max(int(np.sum(expected >= 8.0)) - 1, 0)  # pool the tail into cells worth testing
            pooled = np.append(expected[:last], 4000 - expected[:last].sum())
            seen = np.append(np.bincount(draws, minlength=60)[:last], np.sum(draws >= last))
            if pooled.size == 1:
                assert seen[0] == 4000
            else:
                assert stats.chisquare(seen, pooled).pvalue > 1e-3


def test_the_sampler_of_a_continuous_model_agrees_with_its_density() -> None:
    draws = GammaSales().sample(np.full(4000, 6.0), 0.4, np.random.default_rng(3))
    assert stats.kstest(draws, stats.gamma(4.0, scale=0.4 * 6.0 / 4.0).cdf).pvalue > 1e-3


@pytest.mark.parametrize("model", DISCRETE, ids=name_of)
def test_log_probabilities_are_never_nan_nor_positive(model: AnomalyModel) -> None:
    counts = np.array([0, 1, 2, 50, 10_000, 2**31 - 1], dtype=float)[:, None]
    rates = np.array([0.0, 1e-300, 1e-9, 0.3, 40.0, 1e6, 2.0**31])[None, :]
    for alpha in {*alphas_of(model), *model.alpha_bounds}:
        values = model.log_pmf(counts, rates, alpha)
        assert values.shape == (6, 7)
        assert not np.any(np.isnan(values))
        assert np.all(values <= 1e-9)


@pytest.mark.parametrize("model", ALL, ids=name_of)
def test_one_call_on_arrays_equals_many_calls_on_numbers(model: AnomalyModel) -> None:
    counts, rates = np.array([0.0, 1.0, 4.0, 9.0]), np.array([0.5, 3.0, 3.0, 20.0])
    alpha = alphas_of(model)[-1]
    one_by_one = [float(model.log_pmf(x, m, alpha)) for x, m in zip(counts, rates, strict=True)]
    np.testing.assert_array_equal(model.log_pmf(counts, rates, alpha), one_by_one)
    assert np.shape(model.sample(rates, alpha, np.random.default_rng(0))) == rates.shape


@pytest.mark.parametrize("model", DISCRETE, ids=name_of)
def test_every_model_goes_through_estimation_and_posterior(model: AnomalyModel) -> None:
    rng = np.random.default_rng(11)
    rates = rng.gamma(2.0, 6.0, size=3000) + 0.1
    alpha, rate = alphas_of(model)[0], 0.15
    anomalous = rng.random(3000) < rate
    counts = np.where(anomalous, model.sample(rates, alpha, rng), rng.poisson(rates))
    estimate = maximum_likelihood(counts, rates, anomaly_model(model), Poisson(), rates_are_scaled=False)
    assert estimate.alpha == pytest.approx(alpha, abs=0.05)
    assert estimate.anomaly_rate == pytest.approx(rate, abs=0.03)
    f = healthy_probability(counts, rates, estimate.alpha, estimate.anomaly_rate, Poisson(), model)
    # a family whose alpha is fixed high leaves many of its anomalies with nearly all of their sales
    found, cleared = (0.3, 0.9) if alpha < 0.1 else (0.6, 0.85)
    assert f[anomalous].mean() < found < cleared < f[~anomalous].mean()


class GammaNoise(GammaSales):
    """The continuous law for healthy takings: the signatures of a noise model."""

    def sample(self, rates: Any, rng: np.random.Generator) -> Any:  # type: ignore[override]
        return super().sample(rates, 1.0, rng)


def test_a_continuous_model_goes_through_estimation_intervals_and_posterior() -> None:
    rng = np.random.default_rng(5)
    model, noise = GammaSales(), GammaNoise(shape=6.0)
    rates = rng.gamma(2.0, 6.0, size=2000) + 0.1
    anomalous = rng.random(2000) < 0.15
    takings = np.where(anomalous, model.sample(rates, 0.2, rng), noise.sample(rates, rng))
    estimate = maximum_likelihood(takings, rates, model, noise, rates_are_scaled=False)
    assert estimate.alpha == pytest.approx(0.2, abs=0.03)
    assert estimate.anomaly_rate == pytest.approx(0.15, abs=0.03)
    problem = MixtureProblem(takings, rates, model, noise, rates_are_scaled=False)
    intervals = information_interval(problem, estimate)
    assert intervals.alpha[0] < 0.2 < intervals.alpha[1]
    assert to_theta(estimate, intervals).identified
    f = healthy_probability(takings, rates, estimate.alpha, estimate.anomaly_rate, noise, model)
    assert f[anomalous].mean() < 0.3 < 0.9 < f[~anomalous].mean()
