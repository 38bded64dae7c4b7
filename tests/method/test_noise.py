from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.noise import NegativeBinomial, Poisson, estimate_dispersion, noise_log_pmf


def test_poisson_by_hand() -> None:
    np.testing.assert_allclose(np.exp(Poisson().log_pmf([0, 1, 2], 2.0)), np.exp(-2.0) * np.array([1, 2, 2]))


def test_negative_binomial_of_size_one_is_geometric() -> None:
    np.testing.assert_allclose(np.exp(NegativeBinomial(1.0).log_pmf([0, 1, 2], 1.0)), [0.5, 0.25, 0.125])


@pytest.mark.parametrize("size", [0.05, 0.5, 3.0, 49.0, 51.0, 1e3])
@pytest.mark.parametrize("rate", [1e-3, 0.7, 12.0, 300.0])
def test_negative_binomial_agrees_with_scipy(size: float, rate: float) -> None:
    counts = np.arange(600)
    np.testing.assert_allclose(
        noise_log_pmf(counts, rate, size),
        stats.nbinom.logpmf(counts, size, size / (size + rate)),
        rtol=1e-9,
        atol=1e-8,
    )


@given(
    count=st.integers(0, 5000),
    rate=st.floats(1e-6, 1e4),
    log10_size=st.floats(9.0, 300.0),
)
def test_large_sizes_approach_poisson_without_a_jump(count: int, rate: float, log10_size: float) -> None:
    size = 10.0**log10_size
    poisson = float(noise_log_pmf(count, rate, math.inf))
    # First-order difference of NB and Poisson: ((x - m)^2 - x) / (2 s).
    bound = ((count - rate) ** 2 + count + 1.0) / size + 1e-11 * (1.0 + abs(poisson))
    assert abs(float(noise_log_pmf(count, rate, size)) - poisson) <= bound


@given(
    count=st.sampled_from([0, 1, 16, 17, 1023, 1024, 10**6, 2**31 - 1]),
    rate=st.floats(-1.0, 1e9),
    size=st.one_of(st.floats(1e-6, 1e12), st.just(math.inf)),
)
def test_log_probabilities_are_never_nan_nor_positive(count: int, rate: float, size: float) -> None:
    value = float(noise_log_pmf(count, rate, size))
    assert not math.isnan(value)
    assert value <= 1e-9


def test_size_may_be_one_per_entry() -> None:
    sizes = np.array([1.0, 5.0, math.inf])
    values = NegativeBinomial(sizes).log_pmf([3, 3, 3], [2.0, 2.0, 2.0])
    assert values.tolist() == [float(noise_log_pmf(3, 2.0, s)) for s in sizes]
    draws = NegativeBinomial(np.array([math.inf, 0.5])).sample(
        np.full((20_000, 2), 4.0), np.random.default_rng(0)
    )
    assert np.var(draws, axis=0) == pytest.approx([4.0, 4.0 + 16.0 / 0.5], rel=0.1)


def test_a_zero_rate_allows_only_zero() -> None:
    assert noise_log_pmf([0, 2], [0.0, -0.1], 3.0).tolist() == [0.0, -math.inf]


def test_a_size_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="every size must be above 0"):
        NegativeBinomial(np.array([1.0, 0.0]))


def test_dispersion_is_found_and_poisson_is_infinite() -> None:
    rng = np.random.default_rng(2)
    rates = rng.gamma(2.0, 4.0, size=5000)
    assert estimate_dispersion(NegativeBinomial(3.0).sample(rates, rng), rates) == pytest.approx(3.0, rel=0.1)
    under_dispersed = np.round(rates)
    assert estimate_dispersion(under_dispersed, rates) == math.inf
