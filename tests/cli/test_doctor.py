"""`ew doctor`: what is there, what is missing, and no secrets."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ew_pipeline.cli.doctor import examine
from ew_pipeline.cli.main import app
from ew_pipeline.core.settings import Settings

VARIABLES = ("EW_DATABASE_URL", "EW_SALES", "EW_ORCHESTRATE", "MLFLOW_TRACKING_URI", "PREFECT_API_URL")


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EW_HOME", str(tmp_path))


def found():
    return {finding.name: finding for finding in examine(Settings())}


def test_an_empty_home_is_ready_and_every_part_is_named():
    findings = found()
    assert {"version", "home", "contract", "ledger", "MLflow", "Prefect", "sources"} <= set(findings)
    assert all(finding.state != "fault" for finding in findings.values())
    assert "made by the first run" in findings["ledger"].words
    assert "104 published weeks" in findings["retention"].words


def test_a_home_that_cannot_be_written_is_a_fault_with_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EW_HOME", str(tmp_path / "file" / "home"))
    home = found()["home"]
    assert home.state == "fault"
    assert "EW_HOME" in home.next_step


def test_servers_that_do_not_answer_are_faults(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    findings = found()
    assert (findings["MLflow"].state, findings["Prefect"].state) == ("fault", "fault")


def test_a_database_that_is_not_there_is_a_fault_and_its_password_is_not_shown(monkeypatch):
    monkeypatch.setenv("EW_DATABASE_URL", "postgresql+psycopg://ew:hush@127.0.0.1:9/ew")
    ledger = found()["ledger"]
    assert ledger.state == "fault"
    assert "hush" not in ledger.words + ledger.next_step


def test_a_source_that_is_gone_is_a_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("EW_SALES", str(tmp_path / "gone.parquet"))
    assert found()["sources"].state == "fault"


def test_the_exit_code_says_whether_a_run_would_start(monkeypatch):
    ready = CliRunner().invoke(app, ["doctor", "--json"])
    assert ready.exit_code == 0
    assert json.loads(ready.stdout)["ready"] is True
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    broken = CliRunner().invoke(app, ["doctor"])
    assert broken.exit_code == 3
    assert "MLFLOW_TRACKING_URI" in broken.stdout
