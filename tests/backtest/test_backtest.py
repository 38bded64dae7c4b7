"""The backtest: only what was known, on any shape, and a plain verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.chain_of_weeks import as_frame, shuffled_after, simulated

from ew_pipeline.backtest.backtest import backtest, verdict
from ew_pipeline.backtest.policies import Calibrated, History, Score
from ew_pipeline.backtest.recalibrate import score_week
from ew_pipeline.backtest.simple_policies import Ignore, TrailingRule
from ew_pipeline.backtest.view import PastView, RuleLabels, TruthLabels
from ew_pipeline.cli.evaluate import evaluate
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.intake.panel import Panel
from ew_pipeline.intake.sources import open_source
from ew_pipeline.method.sales_matrix import SalesMatrix

CALIBRATED = "calibrated-history"


@pytest.fixture(scope="module")
def chain() -> tuple[Panel, np.ndarray]:
    return simulated(weeks=24)


@pytest.fixture(scope="module")
def result(chain):
    policies = [Ignore(), TrailingRule(), TrailingRule(moved=True), History(), Calibrated(CALIBRATED)]
    return backtest(chain[0], range(24), policies, RuleLabels("pair"))


def test_weeks_without_labels_are_skipped_and_named(result, chain):
    weeks = chain[0].weeks
    assert result.weeks == weeks[5:19]  # five weeks before, five after
    assert set(result.skipped) == {*weeks[:5], *weeks[19:]}


def test_history_beats_doing_nothing_and_the_trailing_rules(result):
    cost = {name: m.cost_ratio for name, m in result.policies.items()}
    assert cost["ignore"] == pytest.approx(1.0)
    assert cost["history"] < min(cost["trailing"], cost["trailing-sku"], 1.0)
    assert cost[CALIBRATED] < min(cost["trailing"], cost["trailing-sku"], 1.0)
    assert verdict(result, CALIBRATED).use


def test_every_calibration_says_what_it_learnt_from(result):
    records = result.calibrations[CALIBRATED]
    assert len(records) == len(result.weeks)
    assert "no past week has labels" in records[0].reason
    assert max(len(record.weeks) for record in records) >= 7
    for week, record in zip(result.weeks, records, strict=True):
        assert all(learnt < week for learnt in record.weeks)


def test_a_useless_policy_is_not_recommended(chain):
    class Always:
        name = "always"

        def score(self, view):
            return Score(np.ones(view.pairs.size))

    done = backtest(chain[0], [12], [Ignore(), TrailingRule(), Always()], RuleLabels("text"))
    judged = verdict(done, "always")
    assert not judged.use
    assert "do not use it" in judged.reason
    assert not verdict(done, "ignore").use


def test_past_audits_teach_more_than_none(chain):
    panel, wrong = chain
    labels = TruthLabels(np.ones_like(wrong), wrong)
    done = backtest(panel, range(12, 18), [History(), Calibrated(CALIBRATED)], labels)
    assert done.policies[CALIBRATED].cost_ratio < done.policies["history"].cost_ratio < 1.0


def test_no_label_at_all_is_an_error_that_says_what_to_do(chain):
    with pytest.raises(DataError, match="none of the 2 weeks has labels"):
        backtest(chain[0], [22, 23], [Ignore()], RuleLabels("text"))
    with pytest.raises(UsageError, match="each name once"):
        backtest(chain[0], [12], [Ignore(), Ignore()], RuleLabels("text"))


def test_recalibrated_probabilities_are_in_the_order_of_the_week(chain):
    panel = chain[0]
    frame = as_frame(panel).sample(frac=1.0, random_state=0)
    week = panel.weeks[18]
    sales = SalesMatrix.from_long(frame, week)
    done = score_week(panel, week)
    expected = Calibrated(CALIBRATED).score(PastView(panel, 18, RuleLabels("pair")))
    probability = done.in_order_of(sales, done.probability)
    np.testing.assert_allclose(probability, expected.probability, rtol=1e-6)
    assert done.calibration == expected.calibration
    assert done.calibration.rule == "pair"


def test_the_weekly_probability_does_not_see_later_weeks(chain):
    panel = chain[0]
    week = panel.weeks[15]
    one, two = score_week(panel, week), score_week(shuffled_after(panel, 15), week)
    np.testing.assert_array_equal(one.probability, two.probability)
    assert one.calibration.to_json() == two.calibration.to_json()


def test_a_history_without_the_pairs_of_the_week_is_refused(chain):
    panel = chain[0]
    sales = SalesMatrix.from_long(as_frame(panel), panel.weeks[10])
    scored = score_week(panel.take(panel.store_ids[panel.store] != "S03"), panel.weeks[10])
    with pytest.raises(DataError, match="are not in the history"):
        scored.in_order_of(sales, scored.probability)


SHAPES = {
    "few weeks": lambda f: f[f["week"] <= sorted(f["week"].unique())[11]],
    "one store": lambda f: f[f["store_id"] == "S00"],
    "one SKU": lambda f: f[f["sku_id"] == "K00"],
    "no zeros, sparse": lambda f: f[f["units"] > 0].sample(frac=0.3, random_state=0),
    "a short last week": lambda f: f.assign(
        units=np.where(f["week"] == f["week"].max(), f["units"] // 7, f["units"])
    ),
    "hardly any sales": lambda f: f.assign(units=(f["units"] > 12).astype(int)),
    "a missing week": lambda f: f[f["week"] != sorted(f["week"].unique())[9]],
}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_any_shape_is_evaluated_by_the_command(shape, chain, tmp_path, capsys):
    frame = SHAPES[shape](as_frame(chain[0]))
    document = command(frame, tmp_path, capsys, policy=["history"])
    assert document["default"] == CALIBRATED
    policies = document["policies"]
    assert set(policies) == {"ignore", "trailing", "trailing-sku", "history", CALIBRATED}
    assert policies["ignore"]["cost_ratio"] == pytest.approx(1.0)
    assert len(document["weeks"]) >= 2


def test_the_document_of_the_command(chain, tmp_path, capsys):
    frame = as_frame(chain[0])
    truth = frame[["store_id", "sku_id", "week"]].assign(
        label=chain[1][np.nonzero(chain[0].observed)].astype(int)
    )
    truth.to_parquet(tmp_path / "truth.parquet")
    frame["store_of"] = np.where(frame["store_id"] < "S06", "north", "south")
    weeks = chain[0].weeks
    document = command(
        frame,
        tmp_path,
        capsys,
        truth=str(tmp_path / "truth.parquet"),
        first=weeks[8],
        last=weeks[11],
        calibrate=False,
        history=False,
        costs="notebook",
        segment_by="store_of",
    )
    assert document["default"] == "cross-section"
    assert document["weeks"] == list(weeks[8:12])
    assert set(document) >= {"default", "policies", "weeks", "verdict", "anomalies", "pairs", "label"}
    for measures in document["policies"].values():
        assert {"cost_ratio", "auc", "average_precision", "cost_ratio_interval", "bands"} <= set(measures)
    assert (document["costs"], document["segment_by"]) == ("notebook", "store_of")
    own = document["policies"]["cross-section"]
    assert own["cost_ratio"] == own["cost_ratio_exact"]["notebook"] != own["cost_ratio_exact"]["text"]
    assert [segment["name"] for segment in own["segments"]] == ["north", "south"]
    assert sum(segment["pairs"] for segment in own["segments"]) == document["pairs"]
    page = Path(document["page"]).read_text(encoding="utf-8")
    assert all(f">{title}</h3>" in page for title in TITLES)
    assert {"drmf", "stable-pcp", "rmc", "paper", "paper-practical", "constant"} <= set(document["policies"])


def test_the_table_of_the_command_names_the_default_and_the_verdict(chain, tmp_path, capsys, monkeypatch):
    as_frame(chain[0]).to_csv(tmp_path / "sales.csv", index=False)
    weeks = chain[0].weeks
    monkeypatch.setenv("EW_HOME", str(tmp_path / "home"))
    evaluate(sales=str(tmp_path / "sales.csv"), first=weeks[9], last=weeks[10], policy=["history"])
    printed = capsys.readouterr()
    (page,) = (tmp_path / "home" / "evaluations").glob("backtest-sales-*/evaluation.html")
    assert f"Page: {page}" in printed.err
    assert "calibrated-history *" in printed.out
    assert "of doing nothing" in printed.out
    assert weeks[9] in printed.err


def test_no_page_of_a_backtest_shows_the_password_of_its_sales(chain, tmp_path, monkeypatch):
    as_frame(chain[0]).to_parquet(tmp_path / "sales.parquet")
    weeks, opened = chain[0].weeks, open_source
    monkeypatch.setenv("EW_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        "ew_pipeline.backtest.history.open_source",
        lambda _, connection: opened(str(tmp_path / "sales.parquet"), connection),
    )
    evaluate(sales="postgresql://ana:Sekret@db#table=s", first=weeks[9], last=weeks[9], policy=["trailing"])
    (page,) = (tmp_path / "home" / "evaluations").glob("backtest-*/evaluation.html")
    assert "Sekret" not in f"{page} {page.read_text(encoding='utf-8')}"
    assert "ana:***@db" in page.read_text(encoding="utf-8")


def test_wrong_calls_say_what_to_type(chain, tmp_path):
    as_frame(chain[0]).to_parquet(tmp_path / "sales.parquet")
    path = str(tmp_path / "sales.parquet")
    with pytest.raises(UsageError, match="there is no policy foo"):
        evaluate(sales=path, policy=["foo"])
    with pytest.raises(UsageError, match="there is no label"):
        evaluate(sales=path, label="foo")
    with pytest.raises(UsageError, match="there are no costs"):
        evaluate(sales=path, costs="foo")
    with pytest.raises(UsageError, match="--checks needs no week"):
        evaluate(sales=path, checks=True)
    with pytest.raises(UsageError, match="go with --sales or --checks"):
        evaluate(first="2026-W01")
    with pytest.raises(UsageError, match="--week is one week"):
        evaluate(week="2026-W01", last="2026-W03")
    with pytest.raises(UsageError, match="lies after"):
        evaluate(sales=path, first=chain[0].weeks[5], last=chain[0].weeks[4])
    with pytest.raises(UsageError, match="no week of the sales lies between"):
        evaluate(sales=path, first="2031-W01", last="2031-W09")


TITLES = (
    "Cost of every policy",
    "Cost by week",
    "By what the pair used to sell",
    "By segment",
    "Calibration",
    "Lift over random",
)


def command(frame: pd.DataFrame, folder: Path, capsys: Any, **options: Any) -> Any:
    frame.to_parquet(folder / "sales.parquet")
    evaluate(sales=str(folder / "sales.parquet"), json=True, **{"out": folder / "page", **options})
    return json.loads(capsys.readouterr().out)
