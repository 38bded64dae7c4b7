import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.backtest.metrics import auc, average_precision, calibration_table, true_positive_rate_at
from ew_pipeline.core.errors import DataError, UsageError

# Few distinct scores, so that ties are common.
RANKED = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25)
BOTH_CLASSES = RANKED.filter(lambda pairs: len({label for _, label in pairs}) == 2)


def split(pairs):
    return np.array([s for s, _ in pairs], dtype=float), np.array([y for _, y in pairs])


def test_auc_by_eye():
    assert auc([0.9, 0.8, 0.1], [1, 1, 0]) == 1.0
    assert auc([0.1, 0.2, 0.9], [1, 1, 0]) == 0.0  # higher is more suspicious
    assert auc([0.5, 0.5, 0.5], [1, 0, 0]) == 0.5
    assert auc([0.9, 0.5, 0.5, 0.1], [1, 1, 0, 0]) == 3.5 / 4


@given(BOTH_CLASSES)
def test_auc_counts_pairs(pairs):
    s, y = split(pairs)
    wins = [(a > h) + 0.5 * (a == h) for a in s[y] for h in s[~y]]
    assert auc(s, y) == pytest.approx(np.mean(wins))


def test_one_class_alone_has_no_ranking():
    for labels in ([1, 1], [0, 0]):
        assert np.isnan(auc([0.1, 0.2], labels))
        assert np.isnan(true_positive_rate_at(0.5, [0.1, 0.2], labels))
    assert np.isnan(average_precision([0.1, 0.2], [0, 0]))
    assert average_precision([0.1, 0.2], [1, 1]) == 1.0


def test_average_precision_by_eye():
    assert average_precision([0.9, 0.8, 0.7], [1, 0, 1]) == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert average_precision([0.5, 0.5, 0.5, 0.5], [1, 0, 0, 0]) == 0.25  # a tie is flagged as a whole


def test_true_positive_rate_at_a_false_positive_rate_by_eye():
    scores, labels = [0.9, 0.8, 0.7, 0.6, 0.5], [1, 0, 1, 0, 1]  # two healthy, three anomalous
    assert true_positive_rate_at(0.0, scores, labels) == pytest.approx(1 / 3)
    assert true_positive_rate_at(0.5, scores, labels) == pytest.approx(2 / 3)
    assert true_positive_rate_at(1.0, scores, labels) == 1.0


def test_true_positive_rate_inside_a_tie_is_shared_out():
    assert true_positive_rate_at(0.25, [0.5] * 4, [1, 1, 0, 0]) == pytest.approx(0.25)


@given(BOTH_CLASSES, st.floats(0, 1))
def test_true_positive_rate_is_at_least_that_of_any_threshold_within_gamma(pairs, gamma):
    s, y = split(pairs)
    reached = true_positive_rate_at(gamma, s, y)
    for threshold in [np.inf, *set(s)]:
        if np.mean(s[~y] >= threshold) <= gamma:
            assert reached >= np.mean(s[y] >= threshold) - 1e-12


def test_calibration_by_eye():
    table = calibration_table([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 0], bins=2)
    np.testing.assert_allclose(table.mean_predicted, [0.1, 0.9])
    np.testing.assert_allclose(table.realised_share, [0.0, 0.5])
    np.testing.assert_array_equal(table.count, [2, 2])
    assert table.largest_gap == pytest.approx(0.4)


def test_calibration_deciles_hold_equal_counts():
    p = np.random.default_rng(0).random(1000)
    table = calibration_table(p, p)
    np.testing.assert_array_equal(table.count, np.full(10, 100))
    np.testing.assert_array_equal(table.realised_share, table.mean_predicted)


def test_calibration_by_width_cuts_the_unit_interval_evenly():
    p = [0.01, 0.02, 0.03, 0.55, 1.0]
    table = calibration_table(p, [0, 0, 0, 1, 1], bins=10, by="width")
    np.testing.assert_array_equal(table.count, [3, 1, 1])
    np.testing.assert_allclose(table.mean_predicted, [0.02, 0.55, 1.0])


def test_calibration_keeps_equal_predictions_together():
    table = calibration_table([0.2] * 9 + [0.8], [0] * 9 + [1])
    np.testing.assert_array_equal(table.count, [9, 1])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sampled_from(["count", "width"]),
)
def test_calibration_counts_every_entry_once_and_keeps_both_means(pairs, bins, by):
    p, y = split(pairs)
    table = calibration_table(p, y, bins, by=by)
    assert table.count.min() > 0
    assert table.count.sum() == p.size
    assert table.mean_predicted @ table.count == pytest.approx(p.sum())
    assert table.realised_share @ table.count == pytest.approx(y.sum())
    assert (np.diff(table.mean_predicted) > -1e-12).all()


def test_honest_probabilities_are_calibrated_and_squared_ones_are_not():
    rng = np.random.default_rng(0)
    p = rng.random(50_000)
    y = rng.random(p.size) < p
    assert calibration_table(p, y).largest_gap < 0.03
    assert calibration_table(p**2, y).largest_gap > 0.15


def test_a_table_is_read_only():
    table = calibration_table([0.1, 0.2], [0, 1])
    assert not any(a.flags.writeable for a in (table.count, table.mean_predicted, table.realised_share))


def test_calibration_refuses_what_it_cannot_use():
    with pytest.raises(DataError, match="probability"):
        calibration_table([1.2], [1])
    with pytest.raises(UsageError, match="2 probabilities and 1 outcomes"):
        calibration_table([0.1, 0.2], [1])
    with pytest.raises(UsageError, match="bins"):
        calibration_table([0.1], [1], bins=0)
    with pytest.raises(UsageError, match="gamma"):
        true_positive_rate_at(1.5, [0.1, 0.2], [0, 1])
