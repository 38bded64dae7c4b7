"""Theta refuses to carry numbers or verdicts that mean nothing."""

from __future__ import annotations

import pytest

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.theta import Theta

GOOD = {
    "alpha": 0.2,
    "anomaly_rate": 0.04,
    "alpha_interval": (0.1, 0.3),
    "anomaly_rate_interval": (0.03, 0.05),
    "at_bound": False,
    "identified": True,
    "reason": "",
}


def test_a_good_theta_is_kept_as_given():
    assert Theta(**GOOD).alpha_interval == (0.1, 0.3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"anomaly_rate": 1.1}, "anomaly_rate is 1.1"),
        ({"anomaly_rate": float("nan")}, "anomaly_rate is nan"),
        ({"alpha_interval": (0.3, 0.1)}, "alpha_interval"),
        ({"anomaly_rate_interval": (float("nan"), 0.1)}, "anomaly_rate_interval"),
        ({"identified": False}, "without a reason"),
    ],
)
def test_a_theta_without_meaning_is_refused(change, words):
    with pytest.raises(UsageError, match=words):
        Theta(**{**GOOD, **change})


def test_not_identified_carries_its_reason():
    theta = Theta(**{**GOOD, "identified": False, "reason": "the interval of alpha spans 0.1 to 0.9"})
    assert "spans" in theta.reason
