"""What a calibration has learnt, compared: numbers to nine digits, all else exactly."""

from __future__ import annotations

from typing import Any

import pytest


def assert_same_learnt(one: Any, other: Any) -> None:
    """Two ways to one record. Left out is its version, a hash over numbers down to the last bit."""
    first, second = leaves(one), leaves(other)
    numbers = [place for place, value in first.items() if isinstance(value, float)]
    found, wanted = ([each.pop(place) for place in numbers] for each in (first, second))
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12, nan_ok=True)
    assert first == second


def leaves(learnt: Any, place: str = "") -> dict[str, Any]:
    """Values by place, without the version."""
    if not isinstance(learnt, dict | list):
        return {place: learnt}
    items = learnt.items() if isinstance(learnt, dict) else enumerate(learnt)
    return {
        key: leaf
        for name, value in items
        if name != "version"
        for key, leaf in leaves(value, f"{place}/{name}").items()
    }
