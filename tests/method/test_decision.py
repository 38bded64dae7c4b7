from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.paper.decision import expected_saving, flag_by_cost, flag_with_cap

# Few distinct values, so that ties are common. Eighths are exact in binary: equal savings are equal.
EIGHTHS = st.integers(0, 8).map(lambda k: k / 8)
SMALL_COST = st.integers(0, 3).map(float)


@st.composite
def capped_problems(draw):
    n_stores = draw(st.integers(1, 3))
    n = draw(st.integers(1, 8))
    column = lambda values: np.array(draw(st.lists(values, min_size=n, max_size=n)))  # noqa: E731
    costs = Costs(column(SMALL_COST), column(SMALL_COST))
    caps = np.array(draw(st.lists(st.integers(0, 4), min_size=n_stores, max_size=n_stores)))
    return column(EIGHTHS), costs, column(st.integers(0, n_stores - 1)), caps


def best_total(saving, cap):
    """Try every set of at most `cap` entries."""
    return max(
        sum(saving[list(chosen)])
        for size in range(min(cap, len(saving)) + 1)
        for chosen in combinations(range(len(saving)), size)
    )


def test_flags_at_and_below_the_threshold():
    costs = Costs(false_alarm=1.0, missed=3.0)  # threshold 0.75
    np.testing.assert_array_equal(flag_by_cost([0.0, 0.74, 0.75, 0.76, 1.0], costs), [1, 1, 1, 0, 0])


def test_costs_apply_entry_by_entry():
    flags = flag_by_cost([0.5, 0.5], Costs(false_alarm=[1.0, 3.0], missed=[3.0, 1.0]))
    np.testing.assert_array_equal(flags, [True, False])


def test_a_dear_false_alarm_stops_flags_and_a_dear_miss_raises_them():
    """The two costs are swapped in section 2.1 of the paper; here they are not."""
    f = np.full(3, 0.6)
    assert not flag_by_cost(f, Costs(false_alarm=100.0, missed=1.0)).any()
    assert flag_by_cost(f, Costs(false_alarm=1.0, missed=100.0)).all()


def test_never_flags_where_missing_costs_nothing():
    f = [0.0, 0.5, 1.0]
    assert not flag_by_cost(f, Costs(0.0, 0.0)).any()
    assert not flag_by_cost(f, Costs(1.0, 0.0)).any()


def test_free_checks_flag_everything():
    assert flag_by_cost([0.0, 0.5, 1.0], Costs(0.0, 1.0)).all()


@given(capped_problems())
def test_cost_rule_is_no_dearer_than_the_other_choice_at_any_entry(problem):
    f, costs, _, _ = problem
    flags = flag_by_cost(f, costs)
    cost_if_flagged, cost_if_not = f * costs.false_alarm, (1 - f) * costs.missed
    chosen = np.where(flags, cost_if_flagged, cost_if_not)
    np.testing.assert_array_equal(chosen, np.minimum(cost_if_flagged, cost_if_not))


def test_swapping_the_costs_loses_money():
    rng = np.random.default_rng(0)
    f, c0, c1 = rng.random((3, 2000))

    def cost(flags):
        return np.where(flags, f * c0, (1 - f) * c1).mean()

    assert cost(flag_by_cost(f, Costs(c1, c0))) > 1.5 * cost(flag_by_cost(f, Costs(c0, c1)))


def test_expected_saving_by_hand():
    saving = expected_saving([0.25, 1.0], Costs(false_alarm=2.0, missed=4.0))
    np.testing.assert_allclose(saving, [0.75 * 4 - 0.25 * 2, -2.0])


def test_cap_takes_the_largest_savings_of_each_store():
    f = [0.1, 0.2, 0.3, 0.9, 0.4, 0.1]
    decision = flag_with_cap(f, Costs(1.0, 1.0), groups=[0, 0, 0, 0, 1, 1], cap=2)
    np.testing.assert_array_equal(decision.flags, [1, 1, 0, 0, 1, 1])
    np.testing.assert_allclose(decision.value_of_one_more, [0.4, 0.0])  # entry 2 saves 0.7 - 0.3
    assert decision.expected_saving_total == pytest.approx(0.8 + 0.6 + 0.2 + 0.8)


def test_cap_counts_money_not_probability():
    decision = flag_with_cap([0.01, 0.4], Costs(0.0, [1.0, 100.0]), groups=[0, 0], cap=1)
    np.testing.assert_array_equal(decision.flags, [False, True])
    np.testing.assert_allclose(decision.value_of_one_more, [0.99])


def test_equal_savings_go_to_the_likelier_anomaly_then_to_the_earlier_entry():
    costs = Costs(false_alarm=[0.0, 4.0, 4.0], missed=[4.0, 4.0, 4.0])
    f = [0.5, 0.25, 0.25]  # every saving is 2
    np.testing.assert_array_equal(expected_saving(f, costs), [2, 2, 2])
    np.testing.assert_array_equal(flag_with_cap(f, costs, [0, 0, 0], cap=1).flags, [0, 1, 0])
    np.testing.assert_array_equal(flag_with_cap(f, costs, [0, 0, 0], cap=2).flags, [0, 1, 1])


def test_a_pair_that_saves_nothing_takes_no_check():
    decision = flag_with_cap([0.5], Costs(1.0, 1.0), groups=[0], cap=5)
    assert not decision.flags.any()
    assert decision.expected_saving_total == 0.0


def test_caps_by_store_and_stores_without_entries():
    decision = flag_with_cap([0.1, 0.1, 0.1], Costs(1.0, 1.0), groups=[2, 0, 2], cap=[0, 5, 1, 3])
    np.testing.assert_array_equal(decision.flags, [1, 0, 0])
    np.testing.assert_allclose(decision.value_of_one_more, [0.8, 0.0, 0.8, 0.0])
    assert flag_with_cap([0.1], Costs(1, 1), [0], cap=1, n_groups=7).value_of_one_more.shape == (7,)


@settings(max_examples=200)
@given(capped_problems())
def test_cap_equals_brute_force_and_one_more_check_is_worth_what_it_says(problem):
    f, costs, groups, caps = problem
    decision = flag_with_cap(f, costs, groups, caps)
    saving = expected_saving(f, costs)
    totals = 0.0
    for store, cap in enumerate(caps):
        mine = saving[groups == store]
        best = best_total(mine, cap)
        assert decision.flags[groups == store].sum() <= cap
        assert mine[decision.flags[groups == store]].sum() == best
        assert decision.value_of_one_more[store] == best_total(mine, cap + 1) - best
        totals += best
    assert decision.expected_saving_total == totals


@given(capped_problems())
def test_a_wide_cap_flags_whatever_saves_money(problem):
    f, costs, groups, caps = problem
    decision = flag_with_cap(f, costs, groups, cap=99, n_groups=caps.size)
    np.testing.assert_array_equal(decision.flags, expected_saving(f, costs) > 0)
    assert not decision.value_of_one_more.any()


@given(capped_problems(), st.randoms(use_true_random=False))
def test_total_does_not_depend_on_the_order_of_entries(problem, random):
    f, costs, groups, caps = problem
    order = np.array(random.sample(range(f.size), f.size))
    shuffled = Costs(costs.false_alarm[order], costs.missed[order])
    one, other = flag_with_cap(f, costs, groups, caps), flag_with_cap(f[order], shuffled, groups[order], caps)
    assert one.expected_saving_total == other.expected_saving_total
    np.testing.assert_array_equal(one.value_of_one_more, other.value_of_one_more)


def test_results_are_read_only():
    decision = flag_with_cap([0.1, 0.1], Costs(1.0, 1.0), [0, 0], cap=1)
    arrays = (decision.flags, decision.value_of_one_more, flag_by_cost([0.1], Costs(1, 1)))
    assert not any(array.flags.writeable for array in (*arrays, expected_saving([0.1], Costs(1, 1))))


@pytest.mark.parametrize("wrong", [[0.5, np.nan], [0.5, 1.5], [0.5, -0.1]])
def test_what_is_not_a_probability_is_refused_by_entry(wrong):
    with pytest.raises(DataError, match=r"1 of 2 values of healthy_probability .* entry 1 = "):
        flag_by_cost(wrong, Costs(1.0, 1.0))


def test_a_dense_matrix_of_probabilities_is_refused():
    with pytest.raises(UsageError, match="row-major"):
        flag_by_cost(np.full((2, 2), 0.5), Costs(1.0, 1.0))


@pytest.mark.parametrize(
    ("groups", "cap", "n_groups"),
    [
        ([0], 1, None),  # one store for two entries
        ([0.0, 1.0], 1, None),  # not whole
        ([0, -1], 1, None),
        ([0, 2], [1, 1], None),  # a store without a cap
        ([0, 2], 1, 2),
        ([0, 1], [1, 1], 3),
        ([0, 1], -1, None),
        ([0, 1], 1.5, None),
        ([0, 1], [[1, 1]], None),
    ],
)
def test_stores_and_caps_that_do_not_fit_are_refused(groups, cap, n_groups):
    with pytest.raises(UsageError, match="store"):
        flag_with_cap([0.5, 0.5], Costs(1.0, 1.0), groups, cap, n_groups=n_groups)
