"""An oracle computes what a person would by listing all histories, and it is the floor on both chains."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import nbinom

from ew_pipeline.backtest.backtest import backtest
from ew_pipeline.backtest.history import history_of
from ew_pipeline.backtest.metrics import average_precision
from ew_pipeline.backtest.oracles import (
    HEALTHY,
    OUT,
    WRONG,
    Told,
    Weeks,
    oracle,
    tell_chain,
    tell_shelves,
    wrong_probability,
)
from ew_pipeline.backtest.priced import cost_ratio
from ew_pipeline.backtest.simple_policies import Ignore, TrailingRule
from ew_pipeline.backtest.view import TruthLabels
from ew_pipeline.core.errors import UsageError
from ew_pipeline.simulate import ChainSettings, ShelfSettings, Shelves, simulate_chain, simulate_shelves

KEYS = ["store_id", "sku_id", "week"]
TOLD = Told(
    kind=np.array([HEALTHY, WRONG, OUT]),
    start=np.array([0.8, 0.15, 0.05]),
    new=np.array([0.98, 0.01, 0.01]),
    move=np.array([[0.9, 0.06, 0.04], [0.3, 0.65, 0.05], [0.5, 0.1, 0.4]]),
    repaired=np.array([0.7, 0.0, 0.3]),
    left=np.array([[1.0, 0.9], [0.1, 0.4], [0.3, 0.3]]),
    spread=(0.2, 0.3),
)


def weeks_of(units, expected, known_out=None, checked=None) -> Weeks:
    ids = np.array([f"P{k}" for k in range(len(units))])
    labels = tuple(f"2026-W{k + 1:02d}" for k in range(len(units[0])))
    flags = (value if value is None else np.array(value) for value in (known_out, checked))
    return Weeks(ids, ids, labels, np.array(units), np.array(expected), *flags)


def by_hand(units, expected, known_out=None) -> list[float]:
    """P(wrong) of each week by the sum over all histories of states."""
    found = []
    for t in range(len(units)):
        weight = np.zeros(3)
        for path in product(range(3), repeat=t + 1):
            p = TOLD.start[path[0]]
            for k, state in enumerate(path):
                p *= 1.0 if k == 0 else TOLD.move[path[k - 1], state]
                if np.isnan(units[k]):
                    continue
                size = 1 / (0.2 + 0.3 / expected[k])
                means = TOLD.left[state] * expected[k]
                p *= nbinom.pmf(units[k], size, size / (size + means)).mean()
                if known_out is not None and known_out[k] != (state == OUT):
                    p = 0.0
            weight[path[-1]] += p
        found.append(weight[WRONG] / weight.sum())
    return found


def test_the_forward_pass_is_the_sum_over_all_histories():
    units, expected = [4.0, 0.0, 1.0, np.nan, 0.0], [5.0, 4.0, 6.0, 5.0, 3.0]
    out = [False, False, True, False, False]
    for known in (None, out):
        got = wrong_probability(weeks_of([units], [expected], None if known is None else [known]), TOLD)
        np.testing.assert_allclose(got[0], by_hand(units, expected, known), rtol=1e-9)
    assert by_hand(units, expected, out)[2] == 0


def test_a_pair_that_is_launched_later_starts_anew_and_is_unknown_before():
    nan = np.nan
    got = wrong_probability(weeks_of([[nan, nan, 3.0]], [[nan, nan, 3.0]]), TOLD)[0]
    size, likelihood = 1 / 0.3, []
    for left in TOLD.left:
        likelihood.append(nbinom.pmf(3, size, size / (size + left * 3)).mean())
    expected = TOLD.new * likelihood
    np.testing.assert_allclose(got, [0, 0, expected[WRONG] / expected.sum()])


def test_after_a_check_the_past_no_longer_matters():
    checked = [[False, True, False]] * 2
    got = wrong_probability(
        weeks_of([[5.0, 5.0, 0.0], [0.0, 0.0, 0.0]], [[4.0] * 3] * 2, None, checked), TOLD
    )
    assert got[0, 1] < got[1, 1]
    assert got[0, 2] == got[1, 2]
    start = TOLD.repaired @ TOLD.move
    again = wrong_probability(weeks_of([[0.0]], [[4.0]]), replace(TOLD, start=start))
    np.testing.assert_allclose(got[0, 2], again[0, 0])


@pytest.fixture(scope="module")
def shelves():
    return simulate_shelves(ShelfSettings(stores=20, skus=80, weeks=26), 2)


def scored(chain, found, label: str) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    rows = chain.truth.merge(chain.sales, on=KEYS)
    rows = rows[rows["week"].cat.codes >= 10].reset_index(drop=True)
    probability = np.empty(len(rows))
    for week, at in rows.groupby("week", observed=True).groups.items():
        some = rows.loc[at]
        probability[at] = found.of_week(
            str(week), some["store_id"].to_numpy(dtype=np.str_), some["sku_id"].to_numpy(dtype=np.str_)
        )
    return probability, rows[label].to_numpy(dtype=bool), rows


@pytest.mark.parametrize(("on_hand", "most"), [(False, 0.6), (True, 0.55)])
def test_the_oracle_of_shelves_is_calibrated_and_pays(shelves, on_hand, most):
    p, wrong, rows = scored(shelves, oracle(shelves, on_hand=on_hand), "wrong")
    assert cost_ratio(p, wrong) < most
    assert p.sum() == pytest.approx(wrong.sum(), rel=0.15)
    for low, high in ((0.02, 0.2), (0.2, 0.6), (0.6, 0.95)):
        inside = (p > low) & (p <= high)
        assert wrong[inside].mean() == pytest.approx(p[inside].mean(), rel=0.25)
    out = rows["on_hand"].to_numpy() <= 0
    assert out.any()
    assert (p[out] == 0).all() == on_hand


def test_the_record_helps(shelves):
    costs = [
        cost_ratio(*scored(shelves, oracle(shelves, on_hand=seen), "wrong")[:2]) for seen in (False, True)
    ]
    assert costs[1] < costs[0]


def test_knowing_the_prone_skus_ranks_better_where_skus_differ():
    chain = simulate_shelves(ShelfSettings.median_1_5(stores=30, skus=80, weeks=26, sku_onset_ratio=10.0), 2)
    ranked = [
        average_precision(*scored(chain, oracle(chain, on_hand=True, by_sku=told), "wrong")[:2])
        for told in (True, False)
    ]
    assert ranked[0] > 1.05 * ranked[1]
    with pytest.raises(UsageError, match="alike"):
        oracle(simulate_chain(ChainSettings.small(weeks=2), 0), by_sku=True)


def test_the_oracle_of_simulate_chain_is_calibrated_and_pays():
    chain = simulate_chain(ChainSettings(stores=30, skus=120, weeks=26), 3)
    p, wrong, _ = scored(chain, oracle(chain), "phantom")
    assert cost_ratio(p, wrong) < 0.85
    assert p.sum() == pytest.approx(wrong.sum(), rel=0.1)
    with pytest.raises(UsageError, match="no record"):
        oracle(chain, on_hand=True)


def test_in_a_closed_loop_the_oracle_is_told_of_checks_and_its_checks_pay():
    """Ten weeks of checks where a check is worth it at equal costs; beside it the same chain without."""
    chosen = ShelfSettings(stores=10, skus=40, weeks=24)
    loop = Shelves(chosen, 4)
    for week in range(chosen.weeks):
        loop.run_week()
        if week >= 14:
            found = oracle(loop.chain(), on_hand=True, checks=True)
            pairs = found.pairs[found.probability[:, -1] > 0.5].to_frame(index=False, name=KEYS[:2])
            loop.check(pairs)
    chain, alone = loop.chain(), simulate_shelves(chosen, 4)
    last = [one.truth[one.truth["week"].cat.codes >= 18] for one in (chain, alone)]
    assert last[0]["wrong"].mean() < 0.6 * last[1]["wrong"].mean()
    assert (chain.checks["outcome"] == "confirmed").mean() > 0.6
    told, forgets = (
        scored(chain, oracle(chain, on_hand=True, checks=flag), "wrong") for flag in (True, False)
    )
    assert cost_ratio(*told[:2]) < cost_ratio(*forgets[:2])


def test_the_checks_of_simulate_chain_are_evidence():
    chain = simulate_chain(ChainSettings(stores=30, skus=60, weeks=20, random_checks_per_store=10), 3)
    costs = [cost_ratio(*scored(chain, oracle(chain, checks=flag), "phantom")[:2]) for flag in (True, False)]
    assert costs[0] < costs[1]


@pytest.mark.parametrize("on_hand", [False, True])
def test_where_nothing_is_wrong_the_oracle_says_so(on_hand):
    chain = simulate_shelves(ShelfSettings.nothing_wrong(stores=6, skus=20, weeks=10), 0)
    assert oracle(chain, on_hand=on_hand).probability.max() < 1e-6
    none = simulate_chain(ChainSettings.small(weeks=8, phantom_rate=0.0), 0)
    assert oracle(none).probability.max() == 0


@pytest.mark.parametrize("kind", ["chain", "shelves"])
def test_later_weeks_change_nothing_but_what_was_told(kind, shelves):
    if kind == "shelves":
        told, weeks = tell_shelves(shelves, on_hand=True)
    else:
        told, weeks = tell_chain(simulate_chain(ChainSettings.small(weeks=12), 1))
    units = weeks.units.copy()
    units[:, 8:] = units[::-1, 8:]
    other = Weeks(weeks.store_ids, weeks.sku_ids, weeks.weeks, units, weeks.expected, weeks.known_out)
    one, two = wrong_probability(weeks, told), wrong_probability(other, told)
    np.testing.assert_array_equal(one[:, :8], two[:, :8])
    assert not np.array_equal(one[:, 8:], two[:, 8:])


def test_an_oracle_is_a_policy_of_the_backtest(shelves):
    frame = shelves.sales.astype(dict.fromkeys(KEYS, "str"))[[*KEYS, "units"]]
    panel = history_of(frame, None, "explicit", 5, "simulated").panel
    truth = shelves.truth
    rows = panel.rows_of(truth["store_id"].astype(str), truth["sku_id"].astype(str))
    wrong = np.zeros(panel.units.shape, dtype=np.bool_)
    column = truth["week"].cat.codes.to_numpy()
    wrong[rows[rows >= 0], column[rows >= 0]] = truth["wrong"].to_numpy()[rows >= 0]
    labels = TruthLabels(np.ones_like(wrong), wrong)
    policies = (Ignore(), TrailingRule(), oracle(shelves), oracle(shelves, on_hand=True))
    measured = backtest(panel, [20, 22, 24], policies, labels).policies
    assert measured["oracle-on-hand"].cost_ratio <= measured["oracle"].cost_ratio < 0.5
    assert measured["trailing"].cost_ratio > 1.0
    other = simulate_shelves(ShelfSettings(stores=6, skus=20, weeks=26), 0)
    with pytest.raises(UsageError, match="another chain"):
        backtest(panel, [20], (oracle(other),), labels)
