"""The forward pass: one week is the paper, two weeks are explicit sums, nothing wrong is nothing flagged."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import nbinom
from support.state_chain import PARAMETERS, healthy_chain, small_panel

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.infer.follow import (
    LOSSES,
    SHARES,
    StateParameters,
    before_all,
    follow,
    grid_of,
    infer,
    make_grid,
    sku_rates,
)
from ew_pipeline.infer.kernels import Cells, Found, Law, State, weigh_week
from ew_pipeline.intake.panel import panel_from_codes
from ew_pipeline.method.anomalies import Thinning
from ew_pipeline.method.noise import NegativeBinomial, Poisson, noise_log_pmf
from ew_pipeline.method.paper.posterior import healthy_probability

CELLS = 1000


class Losses:
    """The filter's law of an anomaly as a model of the paper's: a loss drawn from a few."""

    name = "losses"
    alpha_bounds = (0.0, 1.0)

    def __init__(self, weights, size):
        self.weights, self.size = weights, size

    def log_pmf(self, counts, rates, alpha):
        parts = [
            math.log(weight) + noise_log_pmf(counts, np.asarray(rates) * (1.0 - loss), self.size)
            for weight, loss in zip(self.weights, LOSSES, strict=True)
        ]
        return logsumexp(parts, axis=0)

    def mean_factor(self, alpha):
        return alpha


def drawn(seed=5):
    rng = np.random.default_rng(seed)
    mean = np.exp(rng.normal(1.0, 1.2, CELLS))
    return rng.poisson(mean * rng.choice([0.1, 1.0, 2.0], CELLS)).astype(np.float64), mean


def one_week(counts, mean, law, grid, losses):
    """1 - P(wrong) of cells without a past whose level is known."""
    n = counts.size
    code = np.zeros(n, dtype=np.int32)
    cells = Cells(np.arange(n), code, code, counts, np.full(n, law.first))
    known = np.full(n, 1e30, dtype=np.float32)
    state = State(known, known, np.zeros((n, losses), dtype=np.float32))
    found = Found(*(np.empty(n) for _ in Found._fields))
    weigh_week(cells, mean, state, law, grid, False, found)
    return 1.0 - found.wrong


@pytest.mark.parametrize("size", [3.0, 40.0])
def test_without_a_past_the_belief_is_the_papers(size):
    counts, mean = drawn()
    parameters = StateParameters(onset=0.03, stay=0.7, size=size, shock=0.0)
    law = parameters.law()
    f = one_week(counts, mean, law, grid_of(parameters), len(LOSSES))
    anomaly = Losses(parameters.weights, size)
    paper = healthy_probability(counts, mean, 0.2, law.first, NegativeBinomial(size), anomaly)
    assert paper.min() < 0.3
    np.testing.assert_allclose(f, paper, rtol=0, atol=1e-9)


def test_without_a_past_poisson_sales_and_one_loss_are_thinning():
    counts, mean = drawn()
    law = Law(0.03, 0.7, 0.1, 1e-14, 1.0, 0.0, 0.95, 1e14, 1.0)
    f = one_week(counts, mean, law, make_grid((0.8,), np.ones(1)), 1)
    paper = healthy_probability(counts, mean, 0.2, 0.1, Poisson(), Thinning())
    np.testing.assert_allclose(f, paper, rtol=0, atol=1e-9)


def nb(x, mean, size):
    return nbinom.pmf(x, size, size / (size + mean))


def test_two_weeks_by_explicit_sums():
    """Belief and level by the definition, given the expected sales of each week."""
    panel = small_panel([[[9, 1], [4, 5]], [[12, 11], [6, 0]]])
    one = PARAMETERS
    first = infer(panel, before_all(panel), one)
    followed = follow(panel, one, until=0)
    second = infer(panel, followed, one, threshold=0.5)
    e = one.shock

    def spread(size, units):
        return 1.0 / (1.0 / size + 1.0 / units)

    share = one.onset / (1.0 - one.stay)
    np.testing.assert_allclose(first.mean, followed.start, rtol=1e-6)
    for p, (x0, x1) in enumerate(panel.units.tolist()):
        m0, m1 = first.mean[p], second.mean[p]
        size, wide = spread(one.size, one.start), spread(one.wide, one.start)
        shocked = (1.0 - share) * e * nb(x0, m0, wide)
        healthy = (1.0 - share) * (1.0 - e) * nb(x0, m0, size) + shocked
        wrong = [
            share * w * nb(x0, (1.0 - loss) * m0, size) for w, loss in zip(one.weights, LOSSES, strict=True)
        ]
        z = healthy + sum(wrong)
        assert first.wrong[p] == pytest.approx(sum(wrong) / z, rel=1e-6)
        weight = (healthy - 0.5 * shocked) / z * one.size / (one.size + m0)
        units = one.forgetting * one.start + weight * x0
        assert followed.level_units[p] == pytest.approx(units, rel=1e-6)
        exposure = one.forgetting * one.start / m0 + weight
        assert followed.level_exposure[p] == pytest.approx(exposure, rel=1e-6)

        size, wide = spread(one.size, units), spread(one.wide, units)
        stays = [one.stay * w / z for w in wrong]
        free = 1.0 - sum(stays)
        healthy = free * (1 - one.onset) * ((1 - e) * nb(x1, m1, size) + e * nb(x1, m1, wide))
        stayed = [s * nb(x1, (1.0 - loss) * m1, size) for s, loss in zip(stays, LOSSES, strict=True)]
        begun = {
            (u, loss): free * one.onset * w / len(SHARES) * nb(x1, (1.0 - u * loss) * m1, size)
            for u in SHARES
            for w, loss in zip(one.weights, LOSSES, strict=True)
        }
        z = healthy + sum(stayed) + sum(begun.values())
        assert second.wrong[p] == pytest.approx(1.0 - healthy / z, rel=1e-5)
        deep = sum(s for s, loss in zip(stayed, LOSSES, strict=True) if loss >= 0.5)
        deep += sum(s for (u, loss), s in begun.items() if u * loss >= 0.5)
        assert second.deep[p] == pytest.approx(deep / z, rel=1e-5)
        assert second.weeks_wrong[p] == pytest.approx(second.wrong[p] / (1.0 - one.stay))


def test_dead_records_are_found_and_the_level_does_not_follow_them():
    units, rate = healthy_chain(3)
    units[:, 7, 16:] = 0.0  # one SKU in half of the stores, so that its chain still sells
    units[12:, 7, 16:] = np.random.default_rng(1).poisson(rate[12:, 7, 16:])
    panel = small_panel(units)
    followed = follow(panel, PARAMETERS, until=22)
    beliefs = infer(panel, followed, PARAMETERS)
    dead = ((panel.sku == 7) & (panel.store < 12))[beliefs.pairs]
    strong = dead & (rate[:, :, 15].ravel() > 3.0)
    assert strong.sum() >= 5
    assert beliefs.wrong[strong].min() > 0.9
    ratio = beliefs.mean[strong] / rate[:, :, 23].ravel()[strong]
    assert np.median(ratio) == pytest.approx(1.0, abs=0.35)
    assert np.mean(beliefs.wrong[~dead] > 0.5) < 0.01


def test_a_single_bad_week_is_less_than_two():
    units, _ = healthy_chain(4, stores=12, skus=20)
    loud = int(np.argmax(units[:, :, :20].mean(axis=2)))
    i, j = divmod(loud, 20)
    units[i, j, 21:] = 0.0
    panel = small_panel(units)
    shocks = replace(PARAMETERS, shock=0.05, wide=0.5, onset=0.005)
    row = loud
    seen = [infer(panel, follow(panel, shocks, until=t - 1), shocks).wrong[row] for t in (20, 21, 22)]
    assert seen[0] < 0.05 < seen[1] < seen[2]
    calm = replace(shocks, shock=0.0)
    assert infer(panel, follow(panel, calm, until=20), calm).wrong[row] > seen[1]


def test_a_week_without_a_word_keeps_the_state_and_the_level():
    units, _ = healthy_chain(6, stores=6, skus=10)
    units[2, 3, 15:18] = 0.0
    promo = np.zeros((60, 24), dtype=bool)
    promo[23, 18:20] = True  # the same pair is on promotion
    units[2, 3, 18:20] = 500.0
    panel = small_panel(units, promo)
    before = follow(panel, PARAMETERS, until=17)
    after = follow(panel, PARAMETERS, before, 19)
    np.testing.assert_allclose(after.wrong[23], before.wrong[23] * 0.8**2, rtol=1e-5)
    level = [f.level_units[23] / f.level_exposure[23] for f in (before, after)]
    assert level[1] == pytest.approx(level[0], rel=1e-5)
    on_promotion = infer(panel, follow(panel, PARAMETERS, before, 18), PARAMETERS).wrong[23]
    lost = 0.8**2 * before.wrong[23].sum()
    assert on_promotion == pytest.approx(lost + (1 - lost) * PARAMETERS.onset, rel=1e-5)


def test_a_record_that_says_nothing_is_there_is_right():
    units, _ = healthy_chain(7, stores=6, skus=10)
    units[2, 3, 18:] = 0.0
    on_hand = np.full((60, 24), np.nan, dtype=np.float32)
    panel = small_panel(units)
    blind = infer(panel, follow(panel, PARAMETERS, until=22), PARAMETERS)
    on_hand[23, 18:] = 0.0
    told_past = follow(panel, PARAMETERS, until=22, on_hand=on_hand)
    told = infer(panel, told_past, PARAMETERS, on_hand=on_hand)
    assert blind.wrong[23] > 0.1
    assert told.wrong[23] == 0.0
    assert told_past.wrong[23].sum() == 0.0 < told_past.wrong[24].sum()
    assert told.known_out.tolist() == (np.arange(60) == 23).tolist()
    level = told_past.level_units[23] / told_past.level_exposure[23]
    was = follow(panel, PARAMETERS, until=17)
    assert level == pytest.approx(was.level_units[23] / was.level_exposure[23], rel=1e-5)


def test_the_order_of_rows_changes_nothing():
    units, _ = healthy_chain(8, stores=8, skus=12, weeks=8)
    store, sku, week = (axis.ravel() for axis in np.indices(units.shape))
    order = np.random.default_rng(0).permutation(units.size)
    found = []
    for rows in (np.arange(units.size), order):
        panel = panel_from_codes(
            np.char.add("S", store[rows].astype(str)),
            np.char.add("K", sku[rows].astype(str)),
            week[rows],
            units.ravel()[rows].astype(np.float64),
            tuple(str(t) for t in range(8)),
        )
        found.append(infer(panel, follow(panel, PARAMETERS, until=6), PARAMETERS))
    np.testing.assert_array_equal(found[0].wrong, found[1].wrong)
    np.testing.assert_array_equal(found[0].mean, found[1].mean)


def test_going_on_is_the_same_as_going_through():
    units, _ = healthy_chain(9, stores=6, skus=10, weeks=9)
    panel = small_panel(units)
    through = follow(panel, PARAMETERS)
    on = follow(panel, PARAMETERS, follow(panel, PARAMETERS, until=4))
    for one, other in zip(vars(through).values(), vars(on).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(DataError, match="beyond the week"):
        follow(panel, PARAMETERS, through, until=5)
    assert not through.wrong.flags.writeable


def test_a_sku_that_often_goes_wrong_has_a_higher_rate_where_asked():
    units, _ = healthy_chain(10)
    loud = int(units.mean(axis=(0, 2)).argmax())
    for i in range(0, 25, 2):
        units[i, loud, 5 + i // 2 : 9 + i // 2] = 0.0
    panel = small_panel(units)
    rare = replace(PARAMETERS, onset=0.004)
    alike = follow(panel, rare)
    assert (sku_rates(alike, rare) == 1.0).all()
    rates = sku_rates(alike, replace(rare, strength=3.0))
    assert rates.argmax() == loud
    assert rates[loud] > 1.1


@pytest.mark.parametrize("wrong", [{"stay": 1.0}, {"onset": -0.1}, {"size": 0.0}, {"strength": 0.0}])
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(UsageError, match="of the state is"):
        replace(PARAMETERS, **wrong)


def test_theta_follows_from_the_state():
    assert PARAMETERS.share_wrong == pytest.approx(0.02 / 0.22)
    assert PARAMETERS.weights.sum() == pytest.approx(1.0)
    assert 0.0 < PARAMETERS.alpha < 0.3
