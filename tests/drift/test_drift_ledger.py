"""Drift of a real ledger: what is read, what is written, what a person does with it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from support.drift_world import FIRST, TestWeek, publish, publish_weeks, result_of
from support.postgres import empty, postgres_server
from typer.testing import CliRunner

from ew_pipeline.cli.drift import drift
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import DriftSettings, Settings
from ew_pipeline.drift.alerts import acknowledge, evidence, list_alerts
from ew_pipeline.drift.page import alert_markdown, drift_markdown
from ew_pipeline.drift.run import run_drift
from ew_pipeline.drift.series import read_rows
from ew_pipeline.ledger import Ledger

STABLE, DRIFTED = TestWeek(), TestWeek(anomaly_rate=0.1)
WEEKS = [STABLE] * 12 + [DRIFTED] * 3


@pytest.fixture(scope="module")
def drifted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with 15 published weeks; the anomaly rate jumps in the thirteenth. Copied, never written to."""
    home = tmp_path_factory.mktemp("drifted")
    publish_weeks(Settings(home=home), WEEKS)
    return home


@pytest.fixture
def home(drifted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "home"
    shutil.copytree(drifted, copy)
    for name in ("EW_ALERT_URL", "EW_DRIFT_WEEKS_BETWEEN_ALARMS", "PREFECT_API_URL", "EW_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EW_HOME", str(copy))
    monkeypatch.setenv("EW_ACTOR", "ana")
    return copy


def open_ledger(home: Path) -> Ledger:
    settings = Settings(home=home)
    return Ledger.open(settings.ledger_url, home=settings.root)


def call(*arguments: str):
    app = typer.Typer()
    app.command()(drift)
    return CliRunner().invoke(app, list(arguments))


def test_a_drift_becomes_an_alert_once_with_points_and_a_page(home):
    settings = Settings(home=home)
    report = run_drift(settings)
    assert report.verdict == "anomaly drift"
    (alert,) = report.new
    assert (alert.kind, alert.severity, alert.segment) == ("anomaly_drift", "high", "all")
    assert (alert.since, alert.week) == (FIRST.shift(12), FIRST.shift(13))
    page = report.page.read_text(encoding="utf-8")
    assert "Anomaly drift" in page
    assert page.count("<svg") == 2 + 13  # theta, the control chart, and a line for every series
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")  # self-contained

    again = run_drift(settings)
    assert again.new == ()
    assert [one.id for one in again.alerts] == [alert.id]
    with open_ledger(home) as ledger:
        points = ledger.table("drift_points")
        assert not points.duplicated(["segment", "series", "publication_id"]).any()
        rate = points[points["series"] == "anomaly_rate"]
        assert list(rate["verdict"]) == ["learning"] * 8 + ["stable"] * 4 + [
            "suspect",
            "anomaly drift",
            "settling",
        ]
        assert ledger.verify() == []


def test_a_later_week_adds_only_its_own_points(home):
    settings = Settings(home=home)
    run_drift(settings)
    with open_ledger(home) as ledger:
        before = len(ledger.table("drift_points"))
        publish(ledger, result_of(15, DRIFTED, settings.root))
    run_drift(settings)
    with open_ledger(home) as ledger:
        after = ledger.table("drift_points").iloc[before:]
    assert set(after["week"]) == {str(FIRST.shift(15))}
    assert len(after) == after["series"].nunique() == 13


def test_held_and_shadow_runs_are_not_followed(home):
    with open_ledger(home) as ledger:
        before = read_rows(ledger)
        for place, status in ((15, "held"), (16, "shadow")):
            ledger.record_run(result_of(place, DRIFTED, home), status, by="ana")
        assert read_rows(ledger).equals(before)


def test_a_superseded_week_is_followed_as_it_is_live(home):
    with open_ledger(home) as ledger:
        for place in (12, 13, 14):
            publish(ledger, result_of(place, STABLE, home, seed=1))
    report = run_drift(Settings(home=home))
    assert report.verdict == "stable"
    assert report.alerts == ()


def test_an_alert_stays_when_corrected_weeks_take_its_reason_away(home):
    settings = Settings(home=home)
    run_drift(settings)
    with open_ledger(home) as ledger:
        for place in (12, 13, 14):
            publish(ledger, result_of(place, STABLE, home, seed=1))
    report = run_drift(settings)
    assert report.assessment.events == ()
    assert [alert.open for alert in report.alerts] == [True]


def test_the_assortment_is_compared_with_four_weeks_before_and_kept_when_scores_are_pruned(home):
    with open_ledger(home) as ledger:
        live = ledger.live()
        rows = read_rows(ledger)
    known = rows[rows["segment"] == "all"]["carried_over"]
    assert known.isna().sum() == 4
    assert (known.dropna() == 1.0).all()
    run_drift(Settings(home=home))
    for publication in live:
        publication.scores.unlink()
    with open_ledger(home) as ledger:
        again = read_rows(ledger)
    assert again.equals(rows)


def test_acknowledging_is_recorded_with_who_and_why_and_ends_the_alert(home):
    assert call("--strict").exit_code == 4
    done = call("--acknowledge", "1", "--why", "new tills in region 3", "--strict")
    assert done.exit_code == 0, done.output
    with open_ledger(home) as ledger:
        (row,) = ledger.table("acknowledgements").to_dict("records")
        assert ledger.verify() == []
    assert (row["alert_id"], row["acknowledged_by"], row["note"]) == (1, "ana", "new tills in region 3")
    answer = json.loads(call("--json", "--strict").stdout)
    assert (answer["verdict"], answer["open_alerts"]) == ("stable", [])
    assert answer["alerts"][0]["note"] == "new tills in region 3"


def test_what_cannot_be_acknowledged_is_said(home):
    run_drift(Settings(home=home))
    with open_ledger(home) as ledger:
        with pytest.raises(UsageError, match="no drift alert 9") as unknown:
            acknowledge(ledger, 9, by="ana", why="seen")
        assert "open are 1" in str(unknown.value)
        with pytest.raises(UsageError, match="needs a reason"):
            acknowledge(ledger, 1, by="ana", why="  ")
        acknowledge(ledger, 1, by="ana", why="seen")
        with pytest.raises(UsageError, match=r"was acknowledged by ana at .*: seen"):
            acknowledge(ledger, 1, by="bob", why="seen too")
        assert len(list_alerts(ledger)) == 1


def test_the_command_prints_every_series_and_the_verdict(home):
    answer = call()
    assert answer.exit_code == 0
    for words in ("records wrong (p_A)", "sales left (alpha)", "rank", "flagged share", "expected cost"):
        assert words in answer.output
    assert "all: anomaly drift. anomaly drift in all since 2026-W13" in answer.output
    assert "ew drift --acknowledge 1" in answer.output


def test_the_json_holds_every_series_by_week(home):
    answer = json.loads(call("--json").stdout)
    assert (answer["week"], answer["weeks"], answer["verdict"]) == ("2026-W15", 15, "anomaly drift")
    by_name = {one["series"]: one["points"] for one in answer["series"]}
    assert len(by_name) == 13
    assert all(len(points) == 15 for points in by_name.values())
    last = by_name["anomaly_rate"][-1]
    assert last["low"] < last["value"] < last["high"]
    assert answer["new_alerts"] == [1]


def test_up_to_a_week_the_later_ones_are_not_looked_at(home):
    answer = json.loads(call("--json", "--week", "2026-W12").stdout)
    assert (answer["weeks"], answer["verdict"], answer["alerts"]) == (12, "stable", [])


def test_a_ledger_without_weeks_says_what_to_run(tmp_path):
    with pytest.raises(UsageError, match="no week is published yet"):
        run_drift(Settings(home=tmp_path))


def test_a_short_history_is_said_to_be_learning(tmp_path):
    settings = Settings(home=tmp_path)
    publish_weeks(settings, [STABLE, DRIFTED])
    (one,) = run_drift(settings).verdicts
    assert (one.verdict, one.judged) == ("stable", 0)
    assert one.words.startswith("still learning: 2 of the 8 weeks")


def test_several_segments_have_their_own_charts_and_the_chain_its_theta(tmp_path):
    settings = Settings(home=tmp_path)
    publish_weeks(settings, [STABLE, STABLE], segments=("dairy", "<b>frozen</b>"))
    report = run_drift(settings)
    assert report.assessment.segments == ("pooled", "<b>frozen</b>", "dairy")
    pooled = {c.series.kind.name for c in report.assessment.charts if c.series.segment == "pooled"}
    assert pooled == {"anomaly_rate", "alpha", "stores_reporting"}
    assert "<b>frozen</b>" not in report.page.read_text(encoding="utf-8")


def test_the_evidence_names_the_stores_and_skus_whose_flags_grew(home):
    with open_ledger(home) as ledger:
        grown = result_of(13, DRIFTED, home, seed=2)
        scores = grown.scores.copy()
        hit = scores["store_id"] == "S004"
        scores.loc[hit, "flagged"] = True
        publish(ledger, replace(grown, scores=scores))
        run_drift(Settings(home=home))
        (alert,) = list_alerts(ledger)
        found = evidence(ledger, alert)
    first = found[0]
    assert (first.what, first.id, first.before) == ("store", "S004", 1.0)
    assert first.after > 3.0
    assert "| store S004 | 1.0 |" in alert_markdown(alert, found)


def test_the_markdown_has_a_row_for_every_series(home):
    text = drift_markdown(run_drift(Settings(home=home)))
    assert text.startswith("# Drift, 2026-W15: anomaly drift")
    assert text.count("\n| all |") == 13


def test_a_wrong_alert_url_is_said_before_anything_is_written(home):
    with pytest.raises(UsageError, match="EW_ALERT_URL has"):
        run_drift(Settings(home=home), DriftSettings(EW_ALERT_URL="carrier-pigeon://roof"))
    with open_ledger(home) as ledger:
        assert ledger.table("drift_points").empty


@pytest.mark.server
def test_drift_is_the_same_on_postgresql(home, tmp_path):
    expected = run_drift(Settings(home=home))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with postgres_server() as uri:
        settings = Settings(home=elsewhere, database_url=empty(uri))
        publish_weeks(settings, WEEKS)
        found = run_drift(settings)
        assert [alert.words for alert in found.new] == [alert.words for alert in expected.new]
        assert run_drift(settings).new == ()
        with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
            assert not acknowledge(ledger, found.new[0].id, by="ana", why="seen").open
            assert ledger.verify() == []
