"""Settings come from the environment; the configuration's hash is what flags are traced by."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ew_pipeline.core.settings import RunConfig, Settings

OURS = ("EW_HOME", "EW_DATABASE_URL", "EW_ORCHESTRATE", "EW_ACTOR", "MLFLOW_TRACKING_URI", "PREFECT_API_URL")


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in OURS:
        monkeypatch.delenv(name, raising=False)


def test_the_default_keeps_everything_under_one_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    settings = Settings()
    assert settings.root == tmp_path / ".ew"
    assert settings.ledger_url == f"sqlite:///{tmp_path}/.ew/ledger.db"
    assert settings.tracking_uri == f"sqlite:///{tmp_path}/.ew/mlflow.db"
    assert settings.snapshots == tmp_path / ".ew" / "snapshots"
    assert not (tmp_path / ".ew").exists()  # reading settings makes nothing


def test_production_differs_by_environment_only(monkeypatch, tmp_path):
    monkeypatch.setenv("EW_HOME", str(tmp_path / "shared"))
    monkeypatch.setenv("EW_DATABASE_URL", "postgresql+psycopg://db/ew")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    settings = Settings()
    assert settings.root == tmp_path / "shared"
    assert settings.ledger_url == "postgresql+psycopg://db/ew"
    assert settings.tracking_uri == "http://127.0.0.1:5000"
    assert settings.prefect_api_url == "http://127.0.0.1:4200/api"


def test_every_setting_says_what_it_is_for():
    assert all(field.description for field in Settings.model_fields.values())


def test_the_hash_changes_with_any_setting_that_changes_flags_and_with_nothing_else():
    base = RunConfig()
    assert base.hash == RunConfig().hash
    assert base.hash != RunConfig(max_checks_per_store=5).hash
    assert base.hash != RunConfig(detector={"random_state": 1}).hash


def test_an_unknown_or_impossible_setting_is_refused():
    with pytest.raises(ValidationError, match="max_check_per_store"):
        RunConfig(max_check_per_store=5)
    with pytest.raises(ValidationError):
        RunConfig(gate={"max_flagged_share": 1.5})
