"""Cost and regret by hand on three pairs, and the two figures every method is measured against."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.cost import expected_cost, ideal_flags, regret
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

F = np.array([0.9, 0.5, 0.1])
FALSE_ALARM = np.array([1.0, 2.0, 3.0])
MISSED = np.array([10.0, 1.0, 4.0])


def test_expected_cost_by_hand():
    # flagged: 1 * 0.9; not flagged: 1 * 0.5; flagged: 3 * 0.1
    flags = np.array([True, False, True])
    assert expected_cost(flags, F, FALSE_ALARM, MISSED) == pytest.approx((0.9 + 0.5 + 0.3) / 3)


def test_ideal_flags_by_hand():
    # thresholds c1/(c0 + c1) = 10/11, 1/3, 4/7 against f = 0.9, 0.5, 0.1
    np.testing.assert_array_equal(ideal_flags(F, FALSE_ALARM, MISSED), [True, False, True])


def test_a_pair_on_the_threshold_is_flagged():
    assert ideal_flags(np.array([0.5]), 1.0, 1.0)[0]
    assert ideal_flags(np.array([0.5]), 0.0, 0.0)[0]


def test_regret_by_hand():
    # Ignoring all costs 10*.1 + 1*.5 + 4*.9 = 5.1; the ideal 0.9 + 0.5 + 0.3 = 1.7.
    assert regret(np.zeros(3, dtype=bool), F, FALSE_ALARM, MISSED) == pytest.approx((5.1 - 1.7) / 3)
    assert regret(ideal_flags(F, FALSE_ALARM, MISSED), F, FALSE_ALARM, MISSED) == 0


@given(data=st.data(), size=st.integers(1, 20))
def test_no_flags_are_cheaper_than_the_ideal(data, size):
    unit = st.floats(0, 1)
    f = data.draw(hnp.arrays(np.float64, size, elements=unit))
    c0 = data.draw(hnp.arrays(np.float64, size, elements=st.floats(0, 10)))
    c1 = data.draw(hnp.arrays(np.float64, size, elements=st.floats(0, 10)))
    flags = data.draw(hnp.arrays(np.bool_, size))
    assert regret(flags, f, c0, c1) >= -1e-12


@pytest.mark.parametrize("flags", [np.array([1, 0, 1]), np.array([True, False]), np.array([], dtype=bool)])
def test_flags_of_the_wrong_kind_are_refused(flags):
    with pytest.raises(UsageError, match="boolean array"):
        expected_cost(flags, F, 1.0, 1.0)


@pytest.fixture(scope="module")
def ensemble_regrets() -> dict[str, np.ndarray]:
    """Regret of swapped cost labels (with the true f*) and of Ignore on 400 instances."""
    rng = np.random.default_rng(20260101)
    swapped, ignored = [], []
    for _ in range(400):
        instance = draw_instance(EnsembleSettings(), rng)
        f, c0, c1 = (
            instance.truth.healthy_probability,
            instance.costs_false_alarm,
            instance.costs_missed,
        )
        swapped.append(regret(ideal_flags(f, c1, c0), f, c0, c1))
        ignored.append(regret(np.zeros(f.size, dtype=bool), f, c0, c1))
    return {"swapped": np.array(swapped), "ignored": np.array(ignored)}


# The regrets spread over instances with standard deviations 0.23 and 0.26: a mean of 400 has a standard
# error of 0.012 and 0.013. Three of them.
def test_swapped_costs_with_the_true_probability_cost_036(ensemble_regrets):
    assert ensemble_regrets["swapped"].mean() == pytest.approx(0.36, abs=0.036)


def test_ignore_has_regret_0277(ensemble_regrets):
    assert ensemble_regrets["ignored"].mean() == pytest.approx(0.277, abs=0.039)
