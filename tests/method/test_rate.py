import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.method.paper.rate import expected_rates, flag_by_rate, greedy_rate_solution

TWENTIETHS = st.integers(0, 20).map(lambda k: k / 20)


@st.composite
def intervals(draw):
    pairs = draw(st.lists(st.tuples(TWENTIETHS, TWENTIETHS), min_size=1, max_size=12))
    bounds = np.sort(np.array(pairs), axis=1)
    return bounds[:, 1], bounds[:, 0]


def linear_programme(f_right, f_left, gamma):
    answer = linprog(
        -np.ones(f_right.size), A_ub=f_right[None, :], b_ub=[gamma * f_left.sum()], bounds=(0, 1)
    )
    assert answer.success
    return answer.x


def test_fills_the_most_suspicious_first_and_the_last_in_part():
    f = [0.5, 0.1, 0.4, 1.0]  # the budget is half of 2.0: 0.1 + 0.4 + 0.5 exactly
    np.testing.assert_allclose(greedy_rate_solution(f, f, 0.5), [1, 1, 1, 0])
    np.testing.assert_allclose(greedy_rate_solution(f, f, 0.35), [0.4, 1, 1, 0])  # 0.7 - 0.5 of 0.5


def test_the_interval_makes_the_budget_smaller():
    t = greedy_rate_solution(f_right=[0.2, 0.8, 1.0], f_left=[0.0, 0.2, 0.8], gamma=0.5)
    np.testing.assert_allclose(t, [1, 0.375, 0])  # budget 0.5: 0.2 whole, 0.3 of 0.8


def test_certain_anomalies_cost_nothing():
    np.testing.assert_array_equal(greedy_rate_solution([0.0, 0.0, 1.0], [0.0, 0.0, 0.0], 0.01), [1, 1, 0])


def test_ties_are_filled_in_the_order_of_entries():
    f = np.full(4, 0.5)
    np.testing.assert_allclose(greedy_rate_solution(f, f, 0.625), [1, 1, 0.5, 0])


@settings(max_examples=50, deadline=None)
@given(intervals(), st.integers(1, 20).map(lambda k: k / 20))
def test_greedy_flags_as_many_as_the_linear_programme(interval, gamma):
    f_right, f_left = interval
    t = greedy_rate_solution(f_right, f_left, gamma)
    assert ((t >= 0) & (t <= 1)).all()
    assert t @ f_right <= gamma * f_left.sum() + 1e-12
    assert t.sum() == pytest.approx(linear_programme(f_right, f_left, gamma).sum(), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_greedy_is_the_linear_programme_entry_by_entry_when_no_two_are_tied(seed):
    rng = np.random.default_rng(seed)
    f_right = rng.random(30)
    f_left, gamma = f_right * rng.random(30), rng.uniform(0.01, 1)
    np.testing.assert_allclose(
        greedy_rate_solution(f_right, f_left, gamma), linear_programme(f_right, f_left, gamma), atol=1e-9
    )


@given(intervals(), st.floats(0.01, 1))
def test_at_most_one_entry_is_left_to_chance(interval, gamma):
    t = greedy_rate_solution(*interval, gamma)
    assert np.count_nonzero((t > 0) & (t < 1)) <= 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_gamma_of_one_flags_everything(f):
    assert greedy_rate_solution(f, f, 1.0).min() == 1.0


@given(intervals(), st.floats(0.01, 1))
def test_threshold_separates_certain_from_never(interval, gamma):
    f_right, f_left = interval
    decision = flag_by_rate(f_right, f_left, gamma, np.random.default_rng(0))
    assert (decision.inclusion[f_right < decision.threshold] == 1).all()
    assert (decision.inclusion[f_right > decision.threshold] == 0).all()


@given(intervals(), st.floats(0.01, 1), st.floats(0, 1))
def test_no_probability_inside_the_interval_breaks_the_promised_rates(interval, gamma, where):
    f_right, f_left = interval
    decision = flag_by_rate(f_right, f_left, gamma, np.random.default_rng(0))
    f = np.clip(f_left + where * (f_right - f_left), f_left, f_right)
    fpr, tpr = expected_rates(decision.inclusion, f)
    assert fpr <= decision.expected_fpr + 1e-9
    assert decision.expected_fpr <= gamma + 1e-9
    # Without an expected anomaly inside the interval its rate is 0 by convention, which bounds nothing.
    assert tpr >= decision.expected_tpr - 1e-9 or (1 - f).sum() < 1e-9


def test_plug_in_rates_by_hand():
    f = np.array([0.2, 0.8, 1.0])
    decision = flag_by_rate(f, f, 0.3, np.random.default_rng(0))  # budget 0.6: 0.2 whole, half of 0.8
    assert decision.expected_fpr == pytest.approx(0.3)
    assert decision.expected_tpr == pytest.approx((0.8 + 0.5 * 0.2) / 1.0)
    assert decision.threshold == 0.8


def test_rates_without_negatives_or_positives_are_zero():
    assert expected_rates([1.0, 1.0], [0.0, 0.0]) == (0.0, 1.0)
    assert expected_rates([0.5, 0.5], [1.0, 1.0]) == (0.5, 0.0)


def test_the_fractional_entry_is_flagged_as_often_as_its_inclusion_says():
    f = np.array([0.2, 0.8, 1.0])  # inclusion 1, 0.25, 0 at gamma 0.2
    rng = np.random.default_rng(1)
    draws = np.array([flag_by_rate(f, f, 0.2, rng).flags for _ in range(4000)])
    assert draws[:, 0].all()
    assert not draws[:, 2].any()
    assert draws[:, 1].mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("gamma", [0.05, 1.0])
def test_every_call_takes_one_number_from_the_generator(gamma):
    f = np.linspace(0, 1, 7)
    used, fresh = np.random.default_rng(3), np.random.default_rng(3)
    flag_by_rate(f, f, gamma, used)
    fresh.random()
    assert used.random() == fresh.random()


@pytest.mark.parametrize("gamma", [0.0, -0.1, 1.01, np.nan])
def test_impossible_gamma_is_refused(gamma):
    with pytest.raises(UsageError, match="gamma"):
        greedy_rate_solution([0.5], [0.5], gamma)


def test_bounds_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="f_left exceeds f_right in 1 entries"):
        greedy_rate_solution([0.1, 0.5], [0.2, 0.5], 0.1)
    with pytest.raises(UsageError, match="f_right has 1 entries and f_left 2"):
        greedy_rate_solution([0.5], [0.5, 0.5], 0.1)
    with pytest.raises(UsageError, match="at least one"):
        greedy_rate_solution([], [], 0.1)
    with pytest.raises(DataError, match="f_right"):
        greedy_rate_solution([np.nan], [0.5], 0.1)
    with pytest.raises(UsageError, match="inclusion has 1"):
        expected_rates([0.5], [0.5, 0.5])


def test_results_are_read_only():
    decision = flag_by_rate([0.5, 0.6], [0.5, 0.6], 0.5, np.random.default_rng(0))
    assert not any(a.flags.writeable for a in (decision.flags, decision.inclusion))
