import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.method.costs import Costs

COST = st.floats(0, 1e308, allow_subnormal=False)


def test_threshold_is_missed_over_the_sum():
    assert Costs(false_alarm=1.0, missed=3.0).threshold == 0.75
    by_pair = Costs(false_alarm=[1, 3, 0], missed=[1, 1, 2]).threshold
    np.testing.assert_array_equal(by_pair, [0.5, 0.25, 1.0])


def test_threshold_of_no_cost_at_all_is_zero_which_means_never():
    assert Costs(0.0, 0.0).threshold == 0.0
    np.testing.assert_array_equal(Costs([0.0, 1.0], 0.0).threshold, [0.0, 0.0])


@given(COST, COST)
def test_threshold_is_a_probability_for_any_finite_costs(c0, c1):
    assert 0 <= Costs(c0, c1).threshold <= 1


def test_arrays_are_copied_and_read_only():
    given_costs = np.array([1.0, 2.0])
    costs = Costs(given_costs, 1.0)
    given_costs[0] = 99.0
    assert costs.false_alarm[0] == 1.0
    for array in (costs.false_alarm, costs.threshold, *costs.broadcast(2)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5.0


def test_broadcast_repeats_numbers_and_keeps_arrays():
    c0, c1 = Costs(2.0, [1.0, 2.0, 3.0]).broadcast(3)
    np.testing.assert_array_equal(c0, [2, 2, 2])
    np.testing.assert_array_equal(c1, [1, 2, 3])


def test_broadcast_to_another_length_is_refused():
    with pytest.raises(UsageError, match="missed has 3 costs for 4 observed entries"):
        Costs(2.0, [1.0, 2.0, 3.0]).broadcast(4)


def test_four_costs_reduce_to_two_with_flagged_first_and_anomalous_second():
    costs = Costs.from_four(
        flagged_healthy=10.0, ignored_healthy=1.0, ignored_anomalous=[50.0, 40.0], flagged_anomalous=-5.0
    )
    assert costs.false_alarm == 9.0  # c10 - c00
    np.testing.assert_array_equal(costs.missed, [55.0, 45.0])  # c01 - c11


@given(st.tuples(*[st.integers(-9, 9)] * 4), st.integers(0, 10))
def test_four_costs_choose_what_is_cheapest_under_the_general_model(four, tenths):
    c10, c00, c01, c11 = four
    if c10 < c00 or c01 < c11:
        return
    costs = Costs.from_four(
        flagged_healthy=c10, ignored_healthy=c00, ignored_anomalous=c01, flagged_anomalous=c11
    )
    f = tenths / 10
    flagging, ignoring = f * c10 + (1 - f) * c11, f * c00 + (1 - f) * c01
    saving = (1 - f) * costs.missed - f * costs.false_alarm
    assert saving == pytest.approx(ignoring - flagging)


@pytest.mark.parametrize(
    ("four", "meaning"),
    [
        ((1.0, 2.0, 5.0, 0.0), "flagging a healthy pair pays better"),
        ((2.0, 1.0, 0.0, 5.0), "better left alone than found"),
    ],
)
def test_negative_difference_of_four_costs_is_explained(four, meaning):
    c10, c00, c01, c11 = four
    with pytest.raises(UsageError, match=meaning):
        Costs.from_four(
            flagged_healthy=c10, ignored_healthy=c00, ignored_anomalous=c01, flagged_anomalous=c11
        )


def test_four_costs_of_different_lengths_are_refused():
    with pytest.raises(UsageError, match="flagged_healthy has 2, ignored_anomalous has 3"):
        Costs.from_four(
            flagged_healthy=[1, 1], ignored_healthy=0, ignored_anomalous=[1, 1, 1], flagged_anomalous=0
        )


def test_offending_entries_are_named_and_counted():
    missed = np.ones(12)
    missed[[1, 3, 4, 7, 8, 9, 11]] = [-1, np.nan, np.inf, -2, -3, -4, -5]
    with pytest.raises(DataError) as caught:
        Costs(1.0, missed)
    assert "missed costs" in str(caught.value)
    assert "7 of 12" in str(caught.value)
    assert "entry 1 = -1.0, entry 3 = nan, entry 4 = inf, entry 7 = -2.0, entry 8 = -3.0, … +2" in str(
        caught.value
    )


@pytest.mark.parametrize("wrong", [-0.5, np.nan, np.inf, "much", None])
def test_a_wrong_number_is_a_usage_error(wrong):
    with pytest.raises(UsageError, match="false_alarm"):
        Costs(wrong, 1.0)


def test_mismatched_or_dense_arrays_are_refused():
    with pytest.raises(UsageError, match="false_alarm has 2, missed has 3"):
        Costs([1, 2], [1, 2, 3])
    with pytest.raises(UsageError, match="row-major"):
        Costs(np.ones((2, 2)), 1.0)
