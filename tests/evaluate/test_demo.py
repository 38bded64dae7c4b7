"""`ew demo`: quick, readable, honest."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from ew_pipeline.algorithm.costs import Costs
from ew_pipeline.algorithm.detector import EntrywiseDetector
from ew_pipeline.cli import app
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.data.simulate import ChainSettings, simulate_chain
from ew_pipeline.evaluate.demo import costs_of, describe


def ew_demo() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "ew_pipeline.cli", "demo"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def small():
    chain = simulate_chain(ChainSettings.small(stores=10, skus=30, weeks=3), 0)
    sales = SalesMatrix.from_long(chain.sales, str(chain.sales["week"].max()))
    return chain, sales, EntrywiseDetector("variational").fit(sales)


def test_the_command_prints_a_result_and_no_traceback_or_warning():
    answer = ew_demo()
    assert answer.returncode == 0, answer.stderr
    for words in ("records that are wrong", "Checks that pay", "P(anomaly)", "Next", "ew reproduce table1"):
        assert words in answer.stdout
    assert "fit the detector" in answer.stderr
    for words in ("Traceback", "Warning", "failed"):
        assert words not in answer.stderr + answer.stdout


def test_json_holds_the_list_and_what_the_simulation_knows():
    answer = CliRunner().invoke(app, ["demo", "--json", "--seed", "2"])
    result = json.loads(answer.stdout)
    assert result["week"] == "2026-W16"
    assert len(result["pairs_to_check"]) == min(10, result["to_check"])
    savings = [pair["saving"] for pair in result["pairs_to_check"]]
    assert savings == sorted(savings, reverse=True)
    assert sum(result["by_store"].values()) == result["to_check"]
    assert result["phantoms_listed"] == sum(pair["phantom"] for pair in result["pairs_to_check"])
    low, high = result["anomaly_rate_interval"]
    assert 0 <= low <= high <= 1


def test_costs_are_those_of_the_sku(small):
    chain, sales, _ = small
    costs = costs_of(chain, sales)
    entry = sales.n_observed // 2
    row = chain.costs[chain.costs["sku_id"] == sales.sku_ids[sales.cols[entry]]]
    assert costs.false_alarm[entry] == row["cost_false_alarm"].item()
    assert costs.missed[entry] == row["cost_missed"].item()


def test_the_list_is_marked_by_the_truth_and_priced_by_hand(small):
    _, sales, fit = small
    flags, phantom = np.zeros((2, sales.n_observed), dtype=bool)
    flags[[3, 5, 8]] = True
    phantom[[5, 9]] = True
    result = describe(sales, fit, Costs(false_alarm=2.0, missed=10.0), flags, phantom)
    assert (result.to_check, result.phantoms, result.phantoms_to_check) == (3, 2, 1)
    assert result.precision == pytest.approx(1 / 3)
    assert result.random_precision == pytest.approx(2 / sales.n_observed)
    assert (result.cost_doing_nothing, result.cost_with_checks) == (20.0, 10.0 + 2 * 2.0)
    assert sum(pair.phantom for pair in result.pairs_to_check) == 1


def test_nothing_to_check_is_a_result(small):
    _, sales, fit = small
    nothing = np.zeros(sales.n_observed, dtype=bool)
    result = describe(sales, fit, Costs(false_alarm=1.0, missed=0.0), nothing, nothing)
    assert (result.to_check, result.precision, result.pairs_to_check) == (0, 0.0, ())
