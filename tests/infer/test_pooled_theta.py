"""One theta for the chain beside those of its segments."""

from __future__ import annotations

import pytest

from ew_pipeline.infer.theta import pool_theta
from ew_pipeline.method.theta import Theta


def theta(rate: float, low: float, high: float, *, alpha: float = 0.2, identified: bool = True) -> Theta:
    return Theta(
        alpha,
        rate,
        (alpha / 2, min(1.0, alpha * 2)),
        (low, high),
        False,
        identified,
        "" if identified else "flat",
    )


def test_one_segment_is_its_own_pool():
    only = theta(0.05, 0.03, 0.08)
    assert pool_theta([only]) is only


def test_equal_segments_pool_to_themselves_with_a_narrower_interval():
    pooled = pool_theta([theta(0.05, 0.03, 0.08)] * 4)
    assert pooled.anomaly_rate == pytest.approx(0.05)
    low, high = pooled.anomaly_rate_interval
    assert 0.03 < low < 0.05 < high < 0.08


def test_the_segment_that_knows_more_counts_more():
    pooled = pool_theta([theta(0.05, 0.049, 0.051), theta(0.06, 0.01, 0.30)])
    assert abs(pooled.anomaly_rate - 0.05) < 0.002


def test_segments_that_differ_widen_the_interval():
    alike = pool_theta([theta(0.05, 0.045, 0.055), theta(0.05, 0.045, 0.055)])
    apart = pool_theta([theta(0.02, 0.018, 0.022), theta(0.10, 0.09, 0.11)])
    width = lambda t: t.anomaly_rate_interval[1] - t.anomaly_rate_interval[0]  # noqa: E731
    assert width(apart) > 5 * width(alike)


def test_a_segment_that_is_not_identified_is_left_out_and_said():
    pooled = pool_theta([theta(0.05, 0.03, 0.08), theta(0.4, 0.0, 1.0, identified=False)])
    assert pooled.anomaly_rate == pytest.approx(0.05)
    assert pooled.identified
    assert pooled.reason == "1 of 2 segments are not identified"


def test_without_any_identified_segment_the_pool_is_not_identified():
    pooled = pool_theta([theta(0.4, 0.0, 1.0, identified=False)] * 2)
    assert not pooled.identified
    assert pooled.reason
