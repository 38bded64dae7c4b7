"""`ew bench ledger`: a real ledger, small; figures are looked at for sense, never for speed."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.postgres import empty, postgres_server
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.core.errors import UsageError
from ew_pipeline.ledger import Ledger
from ew_pipeline.studies.bench.ledger import draw_scores, draw_week, measure, refuse_ledger

SMALL = ["bench", "ledger", "--weeks", "3", "--flags", "40", "--pairs", "2000", "--json"]


@pytest.fixture(scope="module")
def postgres():
    with postgres_server() as uri:
        yield empty(uri)


def asked(*more: str) -> dict:
    answer = CliRunner().invoke(app, [*SMALL, *more])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_everything_that_was_published_comes_back_and_verifies():
    found = asked()
    assert found["publish"]["answer"] == 40
    rows = {name: took["answer"] for name, took in found["questions"].items()}
    assert rows["a week's flags"] == 40
    assert rows["theta of all weeks"] == 3
    assert rows["what was live on a day"] == 2  # of three, on the day of the second
    assert found["problems"] == 0
    assert found["ledger_bytes"] > 3 * 40 * 800  # a flag is some 850 bytes of text and numbers
    assert found["scores_bytes_per_week"] > 2000


def test_a_store_has_its_own_flags_alone(tmp_path):
    found = measure(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path, 2, 6000, 12_000, 0)
    rows = found["questions"]["a store's flags of a week"].answer
    assert rows == pytest.approx(6000 * 5000 / 12_000, rel=0.1)  # 5000 SKUs to a store


@pytest.mark.server
def test_postgresql_is_filled_measured_and_left_empty(postgres):
    found = asked("--database", postgres)
    assert found["questions"]["a week's flags"]["answer"] == 40
    assert found["problems"] == 0
    assert found["ledger_bytes"] > 3 * 40 * 800
    refuse_ledger(postgres)  # nothing is left of it


@pytest.mark.server
def test_a_ledger_that_is_there_is_never_touched(postgres, tmp_path):
    with Ledger.open(postgres, home=tmp_path) as ledger:
        before = ledger.head()
        answer = CliRunner().invoke(app, [*SMALL, "--database", postgres], standalone_mode=False)
        assert isinstance(answer.exception, UsageError)
        assert "already has a schema" in str(answer.exception)
        assert ledger.head() == before


def test_sqlite_files_of_others_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="for PostgreSQL"):
        refuse_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")


def test_more_flags_than_pairs_are_refused():
    with pytest.raises(UsageError, match="11 flags of 10 pairs"):
        draw_scores(10, 11, np.random.default_rng(0))


def test_drawn_weeks_share_the_scores_on_the_disk(tmp_path):
    rng = np.random.default_rng(0)
    scores = draw_scores(100, 5, rng)
    first, second = (draw_week(place, scores, tmp_path, rng) for place in (0, 1))
    assert first.week.shift(1) == second.week
    assert (first.folder / "scores.parquet").samefile(second.folder / "scores.parquet")
    assert len(second.flags) == 5
