"""What monitoring and audit read: series, runs, promotions, and the tables they fill themselves."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from support.factory import make_result
from support.postgres import on_both

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import RunInfo
from ew_pipeline.ledger.tables import APPENDABLE

W34 = Week(2026, 34)
NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


def publish_weeks(ledger, home, *weeks, **arguments):
    results = [make_result(week, home=home, **arguments) for week in weeks]
    for result in results:
        ledger.publish(result, by="ana", report=result.folder / "report.html")
    return results


@on_both
def test_the_series_holds_theta_by_week_of_what_is_live(ledger, home):
    weeks = ("2025-W52", "2026-W01", "2026-W02", "2026-W04")
    results = publish_weeks(ledger, home, *weeks)
    (again,) = publish_weeks(ledger, home, "2026-W01", seed=5)
    series = ledger.segments_series(Week(2026, 3), 2, segment="all")
    assert series["week"].tolist() == ["2026-W01", "2026-W02"]
    assert series["run_id"].tolist() == [again.run_id, results[2].run_id]
    assert series["alpha"].tolist() == [again.segments[0].theta.alpha, results[2].segments[0].theta.alpha]
    assert ledger.segments_series(Week(2026, 4), 10)["week"].tolist() == [w for w in weeks for _ in range(2)]


def test_pooled_theta_stands_beside_the_segments(ledger, home):
    (result,) = publish_weeks(ledger, home, W34, segments=("food", "toys"))
    series = ledger.segments_series(W34, 1).set_index("segment")
    assert list(series.index) == ["food", "pooled", "toys"]
    assert series.loc["pooled", "anomaly_rate"] == result.pooled.anomaly_rate
    assert series.loc["pooled", "pairs"] == 12
    assert series.loc[["food", "toys"], "pairs_flagged"].sum() == series.loc["pooled", "pairs_flagged"] == 3


@on_both
def test_the_last_published_week_before(ledger, home):
    publish_weeks(ledger, home, "2025-W52", "2026-W02")
    assert ledger.last_published_before(Week(2026, 2)).week == Week(2025, 52)
    assert ledger.last_published_before(Week(2030, 1)).week == Week(2026, 2)
    assert ledger.last_published_before(Week(2025, 52)) is None


def test_a_run_that_ended_early_is_recorded_with_its_error(ledger, home):
    info = RunInfo("2026-W34-x", W34, NOON, RunConfig(), home / "runs" / "2026-W34-x")
    ledger.record_run(info, "rejected", by="cron", error="412 rows have negative units")
    run = ledger.run("2026-W34-x")
    assert (run.status, run.error, run.recorded_by) == ("rejected", "412 rows have negative units", "cron")
    assert (run.data_hash, run.pairs_scored, run.folder) == (None, None, info.folder)
    assert run.started_at == NOON
    assert run.code_version
    assert ledger.verify() == []


def test_a_failed_run_can_still_be_published_under_its_id(ledger, home):
    result = make_result(home=home)
    early = RunInfo(result.run_id, W34, result.started_at, result.config, result.folder)
    ledger.record_run(early, "failed", error="MLflow did not answer")
    ledger.publish(result, by="ana", report=result.folder / "report.html")
    assert [run.status for run in ledger.run_history(result.run_id)] == ["failed", "published"]
    assert ledger.run(result.run_id).error is None


@on_both
def test_runs_newest_first_by_week_status_and_number(ledger, home):
    for attempt in range(3):
        ledger.record_run(make_result(home=home, attempt=attempt), "held")
    ledger.record_run(make_result("2026-W35", home=home), "shadow")
    assert [run.started_at.minute for run in ledger.runs(W34)] == [3, 2, 1]
    assert [run.status for run in ledger.runs(status="shadow")] == ["shadow"]
    assert len(ledger.runs(limit=2)) == 2


@pytest.mark.parametrize("status", ["published", "finished"])
def test_only_publish_makes_a_run_published(ledger, home, status):
    with pytest.raises(UsageError, match="not recorded as"):
        ledger.record_run(make_result(home=home), status)


def test_a_moment_without_a_time_zone_is_refused(ledger, home):
    info = RunInfo("r", W34, dt.datetime(2026, 11, 16), RunConfig(), home)
    with pytest.raises(DataError, match="no time zone"):
        ledger.record_run(info, "failed")


def test_an_unknown_run_is_named_with_some_that_exist(ledger, home):
    (result,) = publish_weeks(ledger, home, W34)
    with pytest.raises(UsageError, match=f"(?s)no run 'nope'.*{result.run_id}"):
        ledger.run("nope")


def test_promotion_makes_a_configuration_the_champion(ledger, home):
    assert ledger.champion() is None
    challenger = make_result(home=home, shadow=True, config=RunConfig(history_weeks=12))
    ledger.record_run(challenger, "shadow")
    ledger.promote(challenger.run_id, by="ana", why="lower cost over 8 weeks")
    champion = ledger.champion()
    assert (champion.config, champion.run_id) == (RunConfig(history_weeks=12), challenger.run_id)
    assert (champion.assigned_by, champion.why) == ("ana", "lower cost over 8 weeks")
    assert champion.config.hash == champion.config_hash
    assert ledger.verify() == []


def test_the_newest_promotion_counts_and_all_are_kept(ledger, home):
    runs = [make_result(home=home, config=RunConfig(history_weeks=weeks)) for weeks in (4, 6)]
    for run in runs:
        ledger.record_run(run, "shadow")
        ledger.promote(run.run_id, by="ana", why="better")
    assert ledger.promote(runs[1].run_id, by="bo", why="once more").assigned_by == "ana"
    assert ledger.champion().config.history_weeks == 6
    assert [role.config.history_weeks for role in ledger.config_roles("champion")] == [4, 6]


def test_a_champion_of_another_version_is_listed_but_not_used(ledger, home):
    (result,) = publish_weeks(ledger, home, W34)
    ledger.promote(result.run_id, by="ana", why="better")
    champion = replace(ledger.champion(), values={"history_weeks": 4, "moon_phase": True})
    with pytest.raises(UsageError, match=r"(?s)configuration of the champion since .*: moon_phase.*promote"):
        _ = champion.config


def test_a_run_without_a_result_is_not_promoted(ledger, home):
    ledger.record_run(RunInfo("r", W34, NOON, RunConfig(), home), "failed", error="no")
    with pytest.raises(UsageError, match=r"no result \(failed\)"):
        ledger.promote("r", by="ana", why="x")


ROWS = {
    "checks": {
        "store_id": "S1",
        "sku_id": "K1",
        "week": W34,
        "outcome": "confirmed",
        "source": "flag",
        "publication_id": 1,
        "checked_at": NOON,
        "recorded_at": NOON,
        "recorded_by": "ana",
    },
    "evaluations": {
        "week": W34,
        "publication_id": 1,
        "basis": "checks",
        "metrics": {"precision": 0.5, "curve": [0.1, 0.2]},
        "evaluated_at": NOON,
        "evaluated_by": "ana",
    },
    "drift_points": {
        "week": W34,
        "segment": "all",
        "series": "alpha",
        "publication_id": np.int64(1),
        "value": np.float64(0.25),
        "low": float("nan"),
        "high": -0.0,
        "verdict": "stable",
        "computed_at": NOON,
    },
    "alerts": {
        "week": W34,
        "segment": "all",
        "kind": "anomaly_drift",
        "severity": "high",
        "words": "p_A rose from 4% to 8%",
        "raised_at": NOON,
    },
    "acknowledgements": {
        "alert_id": 1,
        "acknowledged_by": "bo",
        "acknowledged_at": NOON,
        "note": "new supplier",
    },
    "removals": {
        "run_id": "2026-W34-x",
        "week": W34,
        "files": {"scores.parquet": "0" * 64},
        "bytes": np.int64(1024),
        "why": "older than 52 weeks",
        "removed_at": NOON,
        "removed_by": "ana",
    },
}


def test_there_is_a_row_here_for_every_table_to_append_to():
    assert set(ROWS) == set(APPENDABLE)


@on_both
def test_rows_of_monitoring_are_appended_read_back_and_chained(ledger, home):
    publish_weeks(ledger, home, W34)
    for name, row in ROWS.items():
        assert ledger.append(name, [row, row]) == [1, 2]
        assert ledger.append(name, [row]) == [3]
        assert ledger.table(name)["id"].tolist() == [1, 2, 3]
    point = ledger.table("drift_points", week=W34, series="alpha").iloc[0]
    assert (point["value"], np.isnan(point["low"])) == (0.25, True)
    assert ledger.table("evaluations").iloc[0]["metrics"] == '{"curve":[0.1,0.2],"precision":0.5}'
    assert ledger.table("checks").iloc[0]["recorded_at"] == "2026-11-16T12:00:00.000000+00:00"
    assert ledger.table("checks", week="2026-W35").empty
    assert ledger.verify() == []


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("flags", {}, "not a table to append to"),
        ("alerts", {**ROWS["alerts"], "colour": "red"}, "has no column colour"),
        ("alerts", {"week": W34}, "is without kind, raised_at, segment, severity, words"),
        ("drift_points", {**ROWS["drift_points"], "value": float("inf")}, "finite numbers only"),
    ],
    ids=["table", "unknown column", "absent columns", "infinite"],
)
def test_rows_that_do_not_fit_are_refused(ledger, home, name, row, words):
    publish_weeks(ledger, home, W34)
    with pytest.raises((UsageError, DataError), match=words):
        ledger.append(name, [row])
    assert ledger.verify() == []


def test_an_unknown_table_is_named(ledger):
    with pytest.raises(UsageError, match="no table 'chekcs'"):
        ledger.table("chekcs")
