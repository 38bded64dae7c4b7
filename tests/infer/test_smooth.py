"""Looking back: against a sum over all paths, and against itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import nbinom
from support.state_chain import PARAMETERS, healthy_chain, small_panel

from ew_pipeline.infer.follow import LOSSES, SHARES, StateParameters, follow
from ew_pipeline.infer.smooth import smooth

KNOWN = StateParameters(onset=0.05, stay=0.7, shock=0.1, size=4.0, wide=0.8, start=1e12, forgetting=0.99)


def nb(x, mean, size):
    return nbinom.pmf(x, size, size / (size + mean))


def test_by_a_sum_over_all_paths():
    """With levels that are known no week moves them, so every path can be written down."""
    units = np.array([[[5, 1, 2], [7, 6, 8]], [[3, 4, 5], [8, 0, 9]]])
    panel = small_panel(units)
    followed = follow(panel, KNOWN)
    found = smooth(panel, followed, KNOWN, np.array([0, 3]))
    kinds = ["healthy", *range(len(LOSSES))]
    for place, row in enumerate((0, 3)):
        i, j = panel.store[row], panel.sku[row]
        mean = followed.start[row] * followed.sku_factor[:, j] * followed.store_factor[:, i]
        weight = {}
        for path in itertools.product(kinds, repeat=3):
            weight[path] = path_weight(path, units[i, j], mean)
        total = sum(weight.values())
        for t in range(3):
            wrong = sum(w for path, w in weight.items() if path[t] != "healthy")
            assert found.wrong[place, t] == pytest.approx(wrong / total, rel=1e-4)
        # A record may be repaired and go wrong again within a week: `since` counts unbroken runs alone.
        assert found.since[place].sum() == pytest.approx(found.wrong[place, -1], rel=1e-5)


def path_weight(path, units, mean):
    """P(path, sales), with the chance that a wrong record was repaired and went wrong again in between."""
    one, total = KNOWN, 1.0
    for t, state in enumerate(path):
        x, m = units[t], mean[t]
        onset = one.onset if t else one.onset / (1.0 - one.stay)
        before = path[t - 1] if t else "healthy"
        free = 1.0 if before == "healthy" else 1.0 - one.stay
        if state == "healthy":
            sales = (1 - one.shock) * nb(x, m, one.size) + one.shock * nb(x, m, one.wide)
            total *= free * (1.0 - onset) * sales
        else:
            shares = SHARES if t else (1.0,)
            lost = LOSSES[state]
            begun = np.mean([nb(x, (1.0 - u * lost) * m, one.size) for u in shares])
            stays = one.stay * nb(x, (1.0 - lost) * m, one.size) if before == state else 0.0
            total *= stays + free * onset * one.weights[state] * begun
    return total


def test_the_newest_week_is_that_of_the_pass_and_since_sums_to_it():
    units, _ = healthy_chain(11, stores=8, skus=10, weeks=14)
    units[3, 4, 10:] = 0.0
    units[1, 2, 5] = np.nan
    panel = small_panel(units)
    followed = follow(panel, PARAMETERS)
    rows = np.arange(panel.n_pairs)
    found = smooth(panel, followed, PARAMETERS, rows)
    newest = followed.wrong.sum(axis=1)
    np.testing.assert_allclose(found.wrong[:, -1], newest, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.since.sum(axis=1), newest, rtol=1e-3, atol=1e-6)
    assert found.wrong.min() >= 0.0
    assert found.wrong.max() <= 1.0 + 1e-9


def test_it_says_since_when_a_shelf_has_sold_nothing():
    units, rate = healthy_chain(12, stores=10, skus=12)
    loud = int(np.argmax(rate[:, :, 0]))
    i, j = divmod(loud, 12)
    units[i, j, 19:] = 0.0
    panel = small_panel(units)
    found = smooth(panel, follow(panel, PARAMETERS), PARAMETERS, np.array([loud]))
    assert found.week[0] == 19
    assert found.wrong[0, 19:].min() > 0.9
    assert found.wrong[0, :18].max() < 0.2
