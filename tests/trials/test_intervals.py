"""How often the intervals of theta cover the truth."""

from __future__ import annotations

import numpy as np
import pytest
from support.mixtures import coverage


@pytest.mark.parametrize(("family", "alpha", "rate"), [("thinning", 0.2, 0.1), ("exponential", 0.4, 0.2)])
def test_intervals_cover_the_truth_nine_times_in_ten(family: str, alpha: float, rate: float) -> None:
    covered, identified = coverage(family, alpha, rate, fits=200)
    assert identified > 180
    assert np.all((covered >= 0.85) & (covered <= 0.95))
