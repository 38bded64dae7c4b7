"""Pricing in closed form, and the study of what history adds on chains small enough for a test."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.experiments.chain import (
    BOTH_RANK_1,
    CROSS,
    IGNORE,
    RULE,
    TUNED_RULE,
    ChainTask,
    build,
    flagged_share,
    price_flags,
    price_probability,
    run_week,
    truth_of,
    verdicts_of,
)

TASK = ChainTask(8, 30, 8.0, "negative_binomial", "variational", week=8, seed=0, instance=0)


@pytest.mark.parametrize("p", [1e-15, 0.03, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("anomalous", [True, False])
def test_the_closed_form_is_the_mean_over_uniform_costs(p, anomalous):
    c0, c1 = np.random.default_rng(0).uniform(0, 10, size=(2, 200_000))
    flags = p * c1 >= (1 - p) * c0
    cost = np.where(flags, 0.0 if anomalous else c0, c1 if anomalous else 0.0)
    assert price_probability(np.array([p]), np.array([anomalous])) == pytest.approx(cost.mean(), abs=0.03)
    assert flagged_share(np.array([p])) == pytest.approx(flags.mean(), abs=0.005)


def test_an_error_costs_the_mean_cost():
    flags, truth = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert price_flags(flags, truth) == 2.5


def test_knowing_nothing_costs_no_more_than_ignoring_and_knowing_all_costs_nothing():
    truth = np.arange(100) < 4
    ignored = price_flags(np.zeros(100, dtype=bool), truth)
    assert price_probability(np.full(100, 0.04), truth) < ignored
    assert price_probability(truth.astype(float), truth) == pytest.approx(0.0, abs=1e-9)
    assert price_probability(np.zeros(100), truth) == pytest.approx(ignored)


def test_the_truth_is_that_of_the_observed_pairs():
    chain = TASK.chain()
    week = str(chain.sales["week"].max())
    sales = SalesMatrix.from_long(chain.sales, week)
    phantom, expected = truth_of(chain, sales)
    row = chain.truth[(chain.truth["week"] == week) & (chain.truth["store_id"] == sales.store_ids[2])]
    sku = sales.sku_ids[sales.cols[sales.rows == 2][0]]
    (one,) = row[row["sku_id"] == sku].itertuples()
    first = int(np.flatnonzero(sales.rows == 2)[0])
    assert (phantom[first], expected[first]) == (one.phantom, pytest.approx(one.expected_units))


@pytest.fixture(scope="module")
def row():
    return json.loads(json.dumps(run_week(TASK)))


def test_one_week_prices_every_policy_on_the_same_truth(row):
    assert row["policies"][IGNORE]["cost"] == pytest.approx(5 * row["phantom_share"])
    assert row["policies"][TUNED_RULE]["cost"] <= row["policies"][RULE]["cost"]
    for name in (CROSS, BOTH_RANK_1):
        assert 0.0 <= row["policies"][name]["auc"] <= 1.0
    assert row["policies"][BOTH_RANK_1]["rank"] == 1


def test_the_same_week_gives_the_same_record(row):
    again = json.loads(json.dumps(run_week(TASK)))
    for policies in (row["policies"], again["policies"]):
        for policy in policies.values():
            policy["cpu_seconds"] = 0.0
    assert again == row


def test_a_week_without_enough_past_is_refused():
    with pytest.raises(UsageError, match="too short a past"):
        run_week(ChainTask(8, 30, 8.0, "auto", "auto", week=2, seed=0, instance=0))


def by_hand(cost: dict[str, float]):
    policy = {"flagged": 0.1, "auc": 0.8, "average_precision": 0.5, "rank": 1, "noise": "poisson"}
    return {
        "pairs": 10,
        "phantom_share": 0.1,
        "policies": {name: {**policy, "cost": c, "cpu_seconds": 1.0} for name, c in cost.items()},
    }


def test_costs_are_relative_to_ignoring_and_compared_week_by_week():
    costs = {IGNORE: 0.5, RULE: 1.0, TUNED_RULE: 0.45, CROSS: 0.45, BOTH_RANK_1: 0.4}
    doubled = {name: 2 * cost for name, cost in costs.items()}
    summaries = build([by_hand(costs), by_hand(doubled)])
    assert summaries[BOTH_RANK_1].cost_ratio == pytest.approx(0.8)
    assert summaries[CROSS].against_both == pytest.approx(0.1)
    assert summaries[CROSS].against_both_se == pytest.approx(0.0)
    assert [v.met for v in verdicts_of(summaries)] == [True, True, True, True]
    worse = build([by_hand({**costs, CROSS: 0.3})])
    assert [v.met for v in verdicts_of(worse)] == [False, True, True, True]


def test_the_command_prints_all_policies_and_resumes(tmp_path):
    args = ["reproduce", "chain", "--instances", "1", "--weeks", "8", "--stores", "8", "--skus", "30"]
    args += ["--mode", "variational", "--jobs", "0", "--out", str(tmp_path)]
    table = CliRunner().invoke(app, args)
    assert table.exit_code == 0, table.stderr
    assert "trailing rule" in table.stdout
    again = CliRunner().invoke(app, [*args, "--json"])
    document = json.loads(again.stdout)
    assert list(document["policies"])[:2] == [IGNORE, RULE]
    assert len((tmp_path / "chain.jsonl").read_text().splitlines()) == 1
