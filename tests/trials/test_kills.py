"""A week killed before, in and after every step: the ledger holds nothing, or all of it.

The suite kills it at four moments (tests/weekly/test_crashes.py).
"""

from __future__ import annotations

import signal

import pytest
from support.chain import LAST_WEEK, run_plainly, write_chain
from support.week_processes import run_in_process

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger

WEEK = Week.parse(LAST_WEEK)
STEPS = (
    "open the ledger",
    "check the data",
    "assemble the matrix",
    "level from history",
    "fit the detector",
    "price the evidence",
    "decide what to check",
    "track in MLflow",
    "write the report",
    "publish",
)
pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_chain(tmp_path_factory.mktemp("chain"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_beside_a_step_leaves_the_week_whole_or_absent(step, when, tables, tmp_path):
    killed = run_in_process(tmp_path, tables, at=step, when=when, tracked=True)
    assert killed.code == -signal.SIGKILL, killed
    published = (step, when) == ("publish", "after")
    with Ledger.open(Settings(home=tmp_path).ledger_url, home=tmp_path) as ledger:
        assert (ledger.current(WEEK) is not None) == published
        assert ledger.verify() == []
    again = run_plainly(tmp_path, tables, tracked=True)
    assert again.status == ("unchanged" if published else "published")
    assert again.report.is_file()
    with Ledger.open(Settings(home=tmp_path).ledger_url, home=tmp_path) as ledger:
        assert len(ledger.publications(WEEK)) == 1
        assert ledger.verify() == []
