"""Compiled parts of the large fit against the same thing said plainly."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.method._kernels.double_math import exp_inplace, log_into
from ew_pipeline.method._layout import CACHE_LINE, lay_out, padded
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.large.scores import healthy_probabilities, log_predictive
from ew_pipeline.method.variational.theta import Parameters
from ew_pipeline.method.widening import CHUNK, Widening


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(rank=st.integers(1, 20), first=st.integers(0, 20), size=st.integers(1, 60), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_laid_out_factors_are_those_of_the_entries(dtype, rank, first, size, seed):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((50, rank)).astype(dtype)
    others = rng.integers(0, 50, first + size).astype(np.int32)
    others.flags.writeable = False
    A = np.zeros((1 + -(-rank // 8) * 8, 64), dtype=dtype)
    lay_out(first, size, others, padded(factor), A)
    np.testing.assert_array_equal(A[1 : 1 + rank, :size], factor[others[first : first + size]].T)
    assert not A[0].any()
    assert not A[1 + rank :].any()


def test_padded_rows_do_not_lie_across_cache_lines():
    for rank in (1, 5, 8, 9):
        wide = padded(np.ones((3, rank), dtype=np.float32))
        assert wide.ctypes.data % CACHE_LINE == 0
        assert wide.shape[1] % 8 == 0
        np.testing.assert_array_equal(wide.sum(axis=1), rank)


def test_logarithm_and_exponential_are_those_of_the_library():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.exp(rng.uniform(-600, 600, 3000)), 1.0 + rng.uniform(-1e-3, 1e-3, 1000)])
    work, out = np.empty(values.size), np.empty(values.size)
    log_into(values, values.view(np.int64), work, work.view(np.int64), out, values.size)
    np.testing.assert_allclose(out, np.log(values), rtol=1e-15, atol=1e-18)
    powers = np.concatenate([rng.uniform(-700, 700, 3000), rng.uniform(-1, 1, 1000), [-800.0, 800.0]])
    found, work = powers.copy(), np.empty(powers.size)
    exp_inplace(found, work, work.view(np.int64), powers.size)
    np.testing.assert_allclose(found, np.exp(np.clip(powers, -708.0, 708.0)), rtol=1e-13)


@given(size=st.one_of(st.integers(1, 40), st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])))
@settings(max_examples=20, deadline=None)
def test_numbers_become_doubles_in_their_place(size):
    numbers = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    space = Widening.of(size)
    space.single[:] = numbers
    found = space.doubled()
    assert found is space.space
    np.testing.assert_array_equal(found, numbers.astype(np.float64))


@pytest.mark.parametrize("name", ["exponential", "thinning", "zero"])
@pytest.mark.parametrize("inverse_size", [0.0, 0.2])
def test_the_posterior_is_that_of_the_two_densities(name, inverse_size):
    rng = np.random.default_rng(1)
    means = np.exp(rng.normal(1.2, 1.3, 5000)).astype(np.float32)
    cv2 = np.minimum(2.0, np.exp(rng.normal(-5.0, 2.0, 5000))).astype(np.float32)
    cv2[:500] = 0.0
    counts = rng.poisson(means * rng.gamma(2.0, 0.5, 5000)).astype(np.int32)
    counts[-2:], means[-2:] = (300, 1500), (400.0, 1200.0)  # products that leave the range of a double
    counts[-5:-2], means[-5:-2] = (4097, 9000, 300_000), (5000.0, 9900.0, 400_000.0)  # beyond the table
    family, p = exposure_family(name), Parameters(0.2, 0.04, inverse_size)
    found = healthy_probabilities(counts, means, cv2, family, p)
    healthy, mixed = log_predictive(counts, means.astype(float), cv2.astype(float), family, p)
    np.testing.assert_allclose(found, 0.96 * np.exp(healthy - mixed), atol=3e-6)


def test_one_mistyped_count_takes_no_memory_of_its_size():
    counts = np.array([3, 2_000_000_000], dtype=np.int32)
    means, cv2 = np.array([4.0, 5.0], dtype=np.float32), np.full(2, 0.1, dtype=np.float32)
    family, p = exposure_family("exponential"), Parameters(0.2, 0.04, 0.2)
    healthy_probabilities(counts[:1], means[:1], cv2[:1], family, p)  # loads the kernel
    tracemalloc.start()
    try:
        found = healthy_probabilities(counts, means, cv2, family, p)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    assert found[0] > 0.9
    assert 0.0 <= found[1] <= 1.0
