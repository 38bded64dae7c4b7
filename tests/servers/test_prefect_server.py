"""Prefect's variables, and a server that is not there."""

from __future__ import annotations

import os

import pytest

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.servers.prefect import Starting, prefect_api, quiet_environment
from ew_pipeline.servers.standing import holding, login_file, prefect_login, record


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
    monkeypatch.setattr("ew_pipeline.servers.prefect.GIVEN_SECONDS", 0.0)
    with pytest.raises(EwError, match=r"127\.0\.0\.1:9/api does not answer") as caught:
        Starting(None, "http://127.0.0.1:9/api", None).wait()
    assert "PREFECT_API_URL" in caught.value.next_step


@pytest.mark.server
def test_a_server_of_our_own_asks_for_a_login_that_only_the_environment_has(tmp_path, monkeypatch):
    started = []

    class Server:
        def __init__(self, command, env, **_):
            started.append((command, env))

        def terminate(self):
            pass

        def wait(self, seconds):
            pass

    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "ew" / "prefect"))
    monkeypatch.setattr("ew_pipeline.servers.prefect.subprocess.Popen", Server)
    with prefect_api(Settings(home=tmp_path / "ew")) as api:
        login = os.environ["PREFECT_API_AUTH_STRING"]
    assert "PREFECT_API_AUTH_STRING" not in os.environ
    ((command, environment),) = started
    assert environment["PREFECT_SERVER_API_AUTH_STRING"] == login
    assert len(login) > 40
    assert login not in " ".join(command)
    own = api.url.removesuffix("/api")
    assert environment["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"].split(",")[0] == own
    assert (tmp_path / "ew").stat().st_mode & 0o777 == 0o700


def test_the_login_of_a_home_is_sent_to_its_own_server_alone(tmp_path, monkeypatch):
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    settings, login = Settings(home=tmp_path), prefect_login(Settings(home=tmp_path))
    addresses = {"http://127.0.0.1:9/api": login, "http://localhost:9/api": login}
    addresses |= {"http://127.0.0.1:8/api": None, "http://evil.example:9/api": None}
    with holding(settings):
        record(settings, {"prefect_api": "http://127.0.0.1:9/api"})
        for address, expected in addresses.items():
            monkeypatch.setenv("PREFECT_API_URL", address)
            with prefect_api(settings):
                assert os.environ.get("PREFECT_API_AUTH_STRING") == expected, address


def test_a_login_that_others_could_read_is_drawn_anew(tmp_path):
    settings = Settings(home=tmp_path)
    first = prefect_login(settings)
    assert prefect_login(settings) == first
    login_file(settings).chmod(0o644)
    assert prefect_login(settings) != first
    assert login_file(settings).stat().st_mode & 0o777 == 0o600
