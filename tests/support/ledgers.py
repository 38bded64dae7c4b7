"""Ledgers for tests: on SQLite, and on PostgreSQL where SQL differs (``support.postgres.on_both``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ew_pipeline.ledger import Ledger


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server, started for the first test that needs it."""
    from support.postgres import postgres_server

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
    from support.postgres import empty

    return empty(request.getfixturevalue("postgres"))


@pytest.fixture
def ledger(ledger_url: str, home: Path) -> Iterator[Ledger]:
    """An empty ledger."""
    from ew_pipeline.ledger import Ledger

    with Ledger.open(ledger_url, home=home) as opened:
        yield opened
