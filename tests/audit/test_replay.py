"""`ew audit replay`: a run made again from its snapshot, number by number."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import typer
from support.real_week import WEEK, published_home
from typer.testing import CliRunner

from ew_pipeline.audit import replay as versions
from ew_pipeline.audit.history import PER_PAIR
from ew_pipeline.audit.replay import (
    _config,
    checkout_command,
    compare_numbers,
    compare_pairs,
    compare_texts,
    replay,
    words,
)
from ew_pipeline.cli import audit
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, RunInfo

pytestmark = pytest.mark.flow


@pytest.fixture
def home(tmp_path):
    shutil.copytree(published_home()[0], tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def ledger(home):
    with Ledger.open(f"sqlite:///{home / 'ledger.db'}", home=home) as opened:
        yield opened


@pytest.fixture
def settings(home):
    return Settings(home=home, threads=1)


def run_of(ledger):
    return ledger.publications()[0].run_id


def test_a_published_run_is_equal_to_1e_9_without_mlflow(ledger, settings, home):
    for rest in home.glob("mlflow*"):
        rest.unlink() if rest.is_file() else shutil.rmtree(rest)
    found = replay(ledger, settings, run_of(ledger))
    assert found.equal
    assert found.notes == ()
    assert {one.where for one in found.comparisons} == {"theta", "scores", "flags"}
    compared = {(one.where, one.what) for one in found.comparisons}
    wanted = ["expected_units", "anomaly_probability", "cost_missed", "threshold", "flagged"]
    assert {("scores", name) for name in wanted} | {("theta", "alpha"), ("theta", "anomaly_rate")} <= compared
    assert max(one.largest for one in found.comparisons) <= 1e-9
    assert "made again, number by number" in list(words(found))[-1]


def test_scores_that_were_changed_are_shown_which_how_many_and_how_much(ledger, settings):
    place = ledger.run(run_of(ledger)).folder / "scores.parquet"
    scores = pd.read_parquet(place)
    scores.loc[[3, 7], "anomaly_probability"] += [1e-6, 0.25]
    scores = scores.drop(index=11)
    scores.to_parquet(place, index=False)
    found = replay(ledger, settings, run_of(ledger))
    wrong = {one.what: one for one in found.comparisons if not one.equal}
    assert set(wrong) == {"anomaly_probability", "pairs"}
    assert (wrong["anomaly_probability"].different, wrong["anomaly_probability"].largest) == (
        2,
        pytest.approx(0.25),
    )
    assert f"{scores['store_id'][7]} {scores['sku_id'][7]}" in wrong["anomaly_probability"].example
    assert "replayed only" in wrong["pairs"].example
    assert "not the file that was published" in found.notes[0]
    assert any("2 of" in line and "DIFFERENT" in line for line in words(found))


def test_a_flag_that_was_changed_in_the_ledger_is_shown(ledger, settings, home):
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("UPDATE flag_rows SET cost_missed = 99 WHERE position = 0")
    connection.close()
    wrong = [one for one in replay(ledger, settings, run_of(ledger)).comparisons if not one.equal]
    assert [(one.where, one.what, one.different) for one in wrong] == [("flags", "cost_missed", 1)]


def test_a_pruned_run_is_replayed_against_theta_and_flags(ledger, settings):
    folder = ledger.run(run_of(ledger)).folder
    for pattern in PER_PAIR:
        for path in folder.glob(pattern):
            path.unlink()
    found = replay(ledger, settings, run_of(ledger))
    assert found.equal
    assert {one.where for one in found.comparisons} == {"theta", "flags"}
    assert "not stored any more" in found.notes[0]


def test_without_its_snapshot_a_run_cannot_be_made_again(ledger, settings):
    shutil.rmtree(settings.snapshots)
    with pytest.raises(DataError, match="no snapshot"):
        replay(ledger, settings, run_of(ledger))


def test_a_run_without_a_result_has_nothing_to_compare(ledger, settings, home):
    run = ledger.run(run_of(ledger))
    info = RunInfo("2026-W08-x", Week.parse(WEEK), run.started_at, RunConfig(), home / "runs" / "x")
    ledger.record_run(info, "failed", error="no")
    with pytest.raises(UsageError, match=r"no result to compare with \(failed\)"):
        replay(ledger, settings, "2026-W08-x")


def test_another_version_is_said_first_with_the_way_back(ledger, settings, monkeypatch):
    monkeypatch.setattr(versions, "code_version", lambda: "9.9.9+ffffffffffff")
    monkeypatch.setattr(versions, "environment", lambda: {"python": "3.99"})
    said = []
    monkeypatch.setattr(
        "ew_pipeline.audit.replay.load_snapshot", lambda *_: said.append("computing") or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        replay(ledger, settings, run_of(ledger), say=said.append)
    assert said[-1] == "computing"
    assert "9.9.9+ffffffffffff" in said[1]
    assert any("python" in line and "3.99" in line for line in said)
    assert "ew audit replay" in said[-2]


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("0.1.0+0123456789ab", "git worktree add ../ew-0123456789ab 0123456789ab"),
        ("0.1.0+0123456789ab.dirty", "git worktree add ../ew-0123456789ab 0123456789ab"),
        ("0.1.0", "pip install ew-pipeline==0.1.0"),
    ],
    ids=["commit", "changed commit", "release"],
)
def test_the_way_back_to_a_recorded_version(ledger, version, command):
    run = replace(ledger.run(run_of(ledger)), code_version=version)
    assert command in checkout_command(run, "/home")
    assert versions.uncertain(run) == version.endswith("dirty")


def test_settings_of_another_version_are_refused_with_the_way_back(ledger):
    run = ledger.run(run_of(ledger))
    with pytest.raises(UsageError, match="does not know") as caught:
        _config(replace(run, config={**run.config, "a_new_setting": 1}), "the way")
    assert "the way" in str(caught.value)


def test_the_command_ends_with_0_or_3(ledger, home, monkeypatch):
    monkeypatch.setenv("EW_HOME", str(home))
    monkeypatch.setenv("EW_THREADS", "1")
    app = typer.Typer()
    app.command()(audit.replay)
    answer = CliRunner().invoke(app, [run_of(ledger), "--json"])
    assert (answer.exit_code, json.loads(answer.stdout)["equal"]) == (0, True)
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("UPDATE segments SET alpha = alpha + 0.01")
    connection.close()
    answer = CliRunner().invoke(app, [run_of(ledger)])
    assert answer.exit_code == 3
    assert "DIFFERENT  theta alpha: 2 of 2, largest 0.01" in answer.output


def test_numbers_are_equal_to_1e_9_absolute_below_one_and_relative_above():
    names = list("abcde")
    stored = pd.Series([0.5, 1e6, np.nan, np.nan, 2.0])
    made = pd.Series([0.5 + 1e-10, 1e6 + 1e-4, np.nan, 1.0, 2.0 + 1e-8])
    found = compare_numbers("scores", "x", stored, made, names.__getitem__)
    assert (found.compared, found.different) == (5, 2)  # d: absent on one side; e: 1e-8
    assert found.example.startswith("d: nan stored")


def test_absent_texts_are_alike_however_a_column_says_so():
    stored = pd.Series([pd.NA, True, "x"], dtype="object")
    names = "abc".__getitem__
    assert compare_texts("theta", "t", stored, pd.Series([np.nan, True, "x"]), names).equal
    assert compare_texts("theta", "t", stored, pd.Series([None, False, "x"]), names).different == 1


def test_pairs_of_either_side_alone_are_counted():
    stored = pd.DataFrame({"store_id": ["a", "b"], "sku_id": ["k", "k"], "units": [1, 2]})
    made = pd.DataFrame({"store_id": ["b", "c"], "sku_id": ["k", "k"], "units": [2, 3]})
    pairs, units = compare_pairs("flags", stored, made)
    assert (pairs.different, pairs.example) == (2, "a k: stored only")
    assert (units.compared, units.equal) == (1, True)
