"""`ew flags`, `ew report`, `ew promote`, `ew rollback` on a ledger with two publications of a week."""

from __future__ import annotations

import io
import json

import pandas as pd
import pytest
from support.factory import make_result
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger

WEEK = "2026-W34"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EW_HOME", str(tmp_path))
    monkeypatch.setenv("EW_ACTOR", "ana")
    monkeypatch.delenv("EW_DATABASE_URL", raising=False)
    return tmp_path


@pytest.fixture
def results(home):
    """Two results of one week, both published: the second is live."""
    both = [make_result(WEEK, seed=seed, home=home) for seed in (0, 1)]
    with Ledger.open(f"sqlite:///{home / 'ledger.db'}", home=home) as ledger:
        for result in both:
            ledger.publish(result, by="ana", report=result.folder / "report.html")
    return both


def ew(*words):
    return CliRunner().invoke(app, list(words))


def test_flags_are_those_of_the_live_publication(results):
    answer = ew("flags", "--week", WEEK)
    assert answer.exit_code == 0, answer.output
    frame = pd.read_csv(io.StringIO(answer.stdout))
    assert len(frame) == len(results[1].flags)
    assert frame["units"].tolist() == results[1].flags["units"].tolist()


def test_flags_of_one_store_as_json(results):
    store = str(results[1].flags["store_id"].iloc[0])
    answer = ew("flags", "--week", WEEK, "--store", store, "--json")
    flags = json.loads(answer.stdout)
    rows = flags if isinstance(flags, list) else flags["flags"]
    assert rows
    assert {row["store_id"] for row in rows} == {store}


def test_flags_into_a_file(results, home):
    answer = ew("flags", "--week", WEEK, "--format", "parquet", "-o", str(home / "flags.parquet"))
    assert answer.exit_code == 0, answer.output
    assert len(pd.read_parquet(home / "flags.parquet")) == len(results[1].flags)


def test_report_puts_the_live_files_in_place(results, home):
    answer = ew("report", "--week", WEEK, "--json")
    assert answer.exit_code == 0, answer.output
    page = home / "reports" / WEEK / "report.html"
    assert json.loads(answer.stdout)["report"] == str(page)
    assert page.read_bytes() == (results[1].folder / "report.html").read_bytes()


def test_rollback_makes_the_first_live_again_in_ledger_and_files(results, home):
    ew("report", "--week", WEEK)
    answer = ew("rollback", "--week", WEEK, "--why", "wrong costs", "--json")
    assert json.loads(answer.stdout)["run_id"] == results[0].run_id
    assert results[0].run_id in (home / "reports" / WEEK / "publication.txt").read_text()
    with Ledger.open(f"sqlite:///{home / 'ledger.db'}", home=home) as ledger:
        live = ledger.current(Week.parse(WEEK))
        assert (live.kind, live.published_by, live.reason) == ("rollback", "ana", "wrong costs")


def test_promote_makes_the_configuration_the_champion(results, home):
    answer = ew("promote", results[0].run_id, "--why", "fewer walks")
    assert answer.exit_code == 0, answer.output
    with Ledger.open(f"sqlite:///{home / 'ledger.db'}", home=home) as ledger:
        assert ledger.champion().run_id == results[0].run_id


def test_a_week_that_is_not_published_is_said_with_the_last_one_that_is(results):
    answer = ew("flags", "--week", "2026-W33")
    assert answer.exit_code == 2
    assert "2026-W33 is not published; the last published week is 2026-W34" in answer.stderr


def test_an_empty_ledger_says_what_to_run(home):
    answer = ew("report", "--week", WEEK)
    assert answer.exit_code == 2
    assert "ew run --week 2026-W34" in answer.stderr
