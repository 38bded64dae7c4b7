"""Ledgers for tests: on SQLite, and on PostgreSQL where SQL differs (``publish.postgres.on_both``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from publish.postgres import empty, postgres_server

from ew_pipeline.ledger import Ledger


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server, started for the first test that needs it."""
    with postgres_server() as uri:
        yield uri


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def ledger_url(request: pytest.FixtureRequest, home: Path) -> str:
    """The URL of a ledger that does not exist yet."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{home / 'ledger.db'}"
    return empty(request.getfixturevalue("postgres"))


@pytest.fixture
def ledger(ledger_url: str, home: Path) -> Iterator[Ledger]:
    """An empty ledger."""
    with Ledger.open(ledger_url, home=home) as opened:
        yield opened
