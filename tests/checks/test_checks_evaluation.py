"""Figures from store checks: by hand on a few, and against the truth on many."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import typer
from support.factory import COST_FALSE_ALARM, COST_MISSED, THRESHOLD, make_result
from typer.testing import CliRunner

from ew_pipeline.checks.evaluate import evaluate_checks
from ew_pipeline.checks.record import read_checks, record_checks
from ew_pipeline.cli.evaluate import evaluate
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import DRAWN, random_slice
from ew_pipeline.ledger import Ledger

W34 = Week(2026, 34)


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", home=tmp_path) as opened:
        yield opened


def publish(ledger, scores, week=W34, **arguments):
    result = make_result(week, home=ledger.home, scores=scores, **arguments)
    return ledger.publish(result, by="ana", report=result.folder / "report.html")


def scores_of(probability, stores):
    n = len(probability)
    probability = np.asarray(probability, dtype=float)
    return pd.DataFrame(
        {
            "store_id": [f"S{number % stores:03d}" for number in range(n)],
            "sku_id": [f"K{number // stores:05d}" for number in range(n)],
            "segment": "all",
            "units": 0,
            "expected_units": 5.0,
            "anomaly_probability": probability,
            "cost_false_alarm": COST_FALSE_ALARM,
            "cost_missed": COST_MISSED,
            "threshold": THRESHOLD,
            "expected_saving": probability * COST_MISSED - (1 - probability) * COST_FALSE_ALARM,
            "store_rank": 1,
            "reasons": "",
            "level": 5.0,
            "flagged": 1 - probability <= THRESHOLD,
        }
    )


def record(ledger, tmp_path, scores, outcome, source, week=W34):
    frame = scores[["store_id", "sku_id"]].assign(week=str(week), outcome=outcome, source=source)
    frame.to_parquet(tmp_path / "checks.parquet")
    return record_checks(ledger, read_checks(str(tmp_path / "checks.parquet")), by="ana")


def test_the_figures_of_a_few_checks_by_hand(ledger, tmp_path):
    # 4 flags, of which 2 were checked: 1 right. 20 others, of which 5 were drawn and checked: 1 wrong.
    scores = scores_of([0.9] * 4 + [0.1] * 20, stores=2)
    publish(ledger, scores)
    record(ledger, tmp_path, scores[:2], ["confirmed", "healthy"], "flag")
    record(ledger, tmp_path, scores[4:9], ["confirmed", *["healthy"] * 4], "random")
    found = evaluate_checks(ledger, W34, W34)
    assert (found.flags, found.pairs, found.flags_checked, found.random_checked) == (4, 24, 2, 5)
    assert found.precision.value == pytest.approx(0.5)
    # 2 wrong records among the flags, 20 x 1/5 = 4 among the rest
    assert found.recall.value == pytest.approx(2 / 6)
    assert found.anomaly_rate.value == pytest.approx(6 / 24)
    assert found.lift.value == pytest.approx(2.0)
    assert found.saving.value == pytest.approx(2 * COST_MISSED - 2 * COST_FALSE_ALARM)
    assert found.cost.value == pytest.approx(2 * COST_FALSE_ALARM + 4 * COST_MISSED)
    assert found.cost_ignoring.value == pytest.approx(6 * COST_MISSED)
    assert [(one.low, one.checks, one.confirmed) for one in found.calibration] == [
        (0.1, 5, pytest.approx(0.2)),
        (0.9, 2, pytest.approx(0.5)),
    ]
    # 20 pairs off by 0.1 and 4 by 0.4
    assert found.calibration_error == pytest.approx((20 * 0.1 + 4 * 0.4) / 24)


def test_without_random_checks_recall_is_unknown_and_said_so(ledger, tmp_path):
    scores = scores_of([0.9] * 4 + [0.1] * 20, stores=2)
    publish(ledger, scores)
    record(ledger, tmp_path, scores[:4], "confirmed", "flag")
    found = evaluate_checks(ledger, W34, W34)
    assert found.precision.value == 1.0
    assert all(math.isnan(getattr(found, name).value) for name in ("recall", "lift", "anomaly_rate", "cost"))
    assert found.saving.value == pytest.approx(4 * COST_MISSED)
    assert "no random checks" in found.why[0]


def test_not_checked_and_unlinked_checks_do_not_count(ledger, tmp_path):
    scores = scores_of([0.9] * 4 + [0.1] * 20, stores=2)
    publish(ledger, scores)
    record(ledger, tmp_path, scores[:3], ["confirmed", "healthy", "not_checked"], "flag")
    record(ledger, tmp_path, scores[10:12], "confirmed", "flag")  # never flagged by us
    found = evaluate_checks(ledger, W34, W34)
    assert (found.flags_checked, found.not_checked, found.unlinked) == (2, 1, 2)
    assert found.precision.value == pytest.approx(0.5)


def test_weeks_without_checks_are_named(ledger):
    with pytest.raises(UsageError, match="no checks of 2026-W34"):
        evaluate_checks(ledger, W34, W34)


def simulate_checks(ledger, tmp_path, seed, weeks=3, stores=40, pairs=8000, share=0.03):
    """Calibrated probabilities, all flags and a random share checked, some stores lazy."""
    generator = np.random.default_rng(seed)
    true = {"wrong": 0, "found": 0, "flags": 0, "pairs": 0}
    for offset in range(weeks):
        week = W34.shift(offset)
        probability = generator.beta(0.15, 2.0, pairs)
        wrong = generator.random(pairs) < probability
        scores = scores_of(probability, stores)
        scores[DRAWN] = random_slice(scores, week, share, seed=1)
        flagged = scores["flagged"].to_numpy()
        publish(ledger, scores, week, seed=seed)
        true["wrong"] += int(wrong.sum())
        true["found"] += int((wrong & flagged).sum())
        true["flags"] += int(flagged.sum())
        true["pairs"] += pairs
        chosen = flagged | scores[DRAWN].to_numpy()
        outcome = np.where(wrong, "confirmed", "healthy")
        skipped = generator.random(pairs) < 0.2
        outcome = np.where(skipped, "not_checked", outcome)
        source = np.where(flagged, "flag", "random")
        done = record(ledger, tmp_path, scores[chosen], outcome[chosen], source[chosen], week)
        assert (done.refused, done.unlinked) == ([], 0)
    return true


def test_recall_is_estimated_without_selection_bias_and_calibration_holds(ledger, tmp_path):
    true = simulate_checks(ledger, tmp_path, seed=3)
    found = evaluate_checks(ledger, W34, W34.shift(2))
    recall = true["found"] / true["wrong"]
    assert found.weeks == 3
    assert found.recall.low <= recall <= found.recall.high
    assert found.recall.high - found.recall.low < 0.3
    assert found.precision.value == pytest.approx(true["found"] / true["flags"], abs=0.02)
    assert found.anomaly_rate.value == pytest.approx(true["wrong"] / true["pairs"], rel=0.15)
    assert found.lift.value > 5
    assert found.calibration_error < 0.03
    # What would be believed from checks of flags alone is far off: every wrong record found.
    assert recall < 0.7


def test_the_intervals_come_from_stores_not_from_checks(ledger, tmp_path):
    """One store that is right and one that is wrong: hundreds of checks, but two opinions."""
    scores = scores_of([0.9] * 400, stores=2)
    publish(ledger, scores)
    outcome = np.where(scores["store_id"] == "S000", "confirmed", "healthy")
    record(ledger, tmp_path, scores, outcome, "flag")
    found = evaluate_checks(ledger, W34, W34)
    assert (found.precision.low, found.precision.value, found.precision.high) == (0.0, 0.5, 1.0)
    assert "2 stores only" in " ".join(found.why)


def test_the_command_prints_figures_or_json(ledger, tmp_path, monkeypatch):
    scores = scores_of([0.9] * 4 + [0.1] * 20, stores=2)
    publish(ledger, scores)
    record(ledger, tmp_path, scores[:4], "confirmed", "flag")
    monkeypatch.setenv("EW_HOME", str(tmp_path))
    app = typer.Typer()
    app.command()(evaluate)
    week = ["--checks", "--from", "2026-W34", "--to", "2026-W34"]
    text = CliRunner().invoke(app, week).output
    assert CliRunner().invoke(app, ["--checks"]).output == text  # all weeks that have checks
    assert "4 of 4 flags checked (4 confirmed)" in text
    assert "unknown" in text
    told = json.loads(CliRunner().invoke(app, [*week, "--json"]).stdout)
    assert (told["precision"]["value"], told["recall"]["value"]) == (1.0, None)
