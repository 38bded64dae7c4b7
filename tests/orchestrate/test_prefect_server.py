"""Prefect's variables, and a server that is not there."""

from __future__ import annotations

import pytest

from ew_pipeline.errors import EwError
from ew_pipeline.orchestrate.prefect_server import Starting, prefect_api, quiet_environment
from ew_pipeline.settings import Settings


def test_what_the_user_has_set_stays(tmp_path):
    environment = {"PREFECT_LOGGING_LEVEL": "DEBUG"}
    quiet_environment(Settings(home=tmp_path), environment)
    assert environment["PREFECT_LOGGING_LEVEL"] == "DEBUG"
    assert environment["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert environment["DO_NOT_TRACK"] == "true"


def test_a_configured_server_is_used_and_none_is_started(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    with prefect_api(Settings(home=tmp_path)) as api:
        assert (api.server, api.url) == (None, "http://127.0.0.1:9/api")
    assert not (tmp_path / "prefect").exists()


def test_a_configured_server_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("ew_pipeline.orchestrate.prefect_server.GIVEN_SECONDS", 0.0)
    with pytest.raises(EwError, match=r"127\.0\.0\.1:9/api does not answer") as caught:
        Starting(None, "http://127.0.0.1:9/api", None).wait()
    assert "PREFECT_API_URL" in caught.value.next_step
