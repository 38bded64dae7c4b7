"""URLs of sources without their passwords, and whole again where the environment has them."""

from __future__ import annotations

import os

import pytest

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.intake.source_passwords import passwords_in_environment, with_passwords, without_password
from ew_pipeline.weekly.request import make_request, publish_command

WHOLE = "postgresql+psycopg://ana:Sekret@db/chain#query=select * from sales"
SHOWN = "postgresql+psycopg://ana:***@db/chain#query=select * from sales"
SECRETS = (
    WHOLE,
    "postgresql://ana@db/chain?password=Sekret&host=/run/db#table=sales",
    "mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BPWD%3DSekret#table=sales",
    "nothing://ana:Sekret@db:port/chain",
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("EW_SALES", "EW_LISTING"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("spec", SECRETS)
def test_a_password_is_hidden_wherever_a_url_has_it_and_found_again(spec, monkeypatch):
    shown = without_password(spec)
    assert "Sekret" not in shown
    assert without_password(shown) == shown
    monkeypatch.setenv("EW_SALES", spec)
    assert with_passwords(sales=shown, listing=None) == {"sales": spec, "listing": None}


@pytest.mark.parametrize(
    "spec", ["sales/", "sqlite:///a b.db#table=sales", "postgresql://ana@db/chain#table=s"]
)
def test_what_has_no_password_stays_as_it_is(spec):
    assert without_password(spec) == spec
    assert with_passwords(sales=spec) == {"sales": spec}


def test_a_password_that_is_not_in_the_environment_names_the_variable(monkeypatch):
    monkeypatch.setenv("EW_SALES", WHOLE.replace("/chain", "/another"))
    with pytest.raises(UsageError, match="password of the sales") as caught:
        with_passwords(sales=SHOWN)
    assert "EW_SALES" in caught.value.next_step
    assert "Sekret" not in str(caught.value)


def test_passwords_are_in_the_environment_for_the_block_only(monkeypatch):
    monkeypatch.setenv("EW_SALES", "before")
    with passwords_in_environment({"sales": WHOLE, "listing": "listing.parquet", "costs": None}) as shown:
        assert shown == {"sales": SHOWN, "listing": "listing.parquet", "costs": None}
        assert with_passwords(**shown)["sales"] == WHOLE
        assert "EW_LISTING" not in os.environ
    assert os.environ["EW_SALES"] == "before"


def test_the_command_that_publishes_a_held_week_shows_no_password(tmp_path):
    request = make_request(Settings(home=tmp_path), week="2026-W34", sales=WHOLE)
    assert request.sales == WHOLE
    command = publish_command(request, tmp_path / "config.json")
    assert "Sekret" not in command
    assert f"--sales '{SHOWN}'" in command


def test_a_request_takes_the_password_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("EW_SALES", WHOLE)
    assert make_request(Settings(home=tmp_path), week="2026-W34", sales=SHOWN).sales == WHOLE
