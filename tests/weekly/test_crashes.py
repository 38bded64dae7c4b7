"""Killed in the middle, and two runs at once: the ledger holds the old publication or the new, never half.

What is killed has a process of its own; what comes after it runs in this one, which has the libraries loaded.
Killed before and after every step: tests/trials/test_kills.py.
"""

from __future__ import annotations

import signal

import pytest
from support.chain import LAST_WEEK, run_plainly, write_chain
from support.week_processes import finish, run_in_process, start

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger

WEEK = Week.parse(LAST_WEEK)
MOMENTS = (
    ("check the data", "after"),
    ("fit the detector", "after"),
    ("publish", "before"),
    ("publish", "inside"),
)
pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_chain(tmp_path_factory.mktemp("chain"))


def ledger_of(home):
    return Ledger.open(Settings(home=home).ledger_url, home=home)


def test_killed_at_any_step_before_publishing_leaves_nothing_and_the_restart_publishes(tables, tmp_path):
    for step, when in MOMENTS:  # one after the other in one home, as an unlucky week would go
        killed = run_in_process(tmp_path, tables, at=step, when=when)
        assert killed.code == -signal.SIGKILL, (step, when, killed)
        with ledger_of(tmp_path) as ledger:
            assert ledger.current(WEEK) is None, (step, when)
            assert ledger.verify() == []
    assert run_plainly(tmp_path, tables).status == "published"
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.publications(WEEK)) == 1
        assert ledger.verify() == []


def test_killed_right_after_publishing_has_published_and_the_restart_completes_the_files(tables, tmp_path):
    killed = run_in_process(tmp_path, tables, at="publish")
    assert killed.code == -signal.SIGKILL
    report = tmp_path / "reports" / LAST_WEEK / "report.html"
    assert not report.exists()
    with ledger_of(tmp_path) as ledger:
        (publication,) = ledger.publications(WEEK)
    assert run_plainly(tmp_path, tables).status == "unchanged"
    assert report.is_file()
    with ledger_of(tmp_path) as ledger:
        assert ledger.publications(WEEK) == (publication,)
        assert ledger.verify() == []


def test_a_killed_supersede_leaves_the_old_publication_live(tables, tmp_path):
    assert run_plainly(tmp_path, tables).status == "published"
    changes = {"max_checks_per_store": 1}
    assert run_in_process(tmp_path, tables, changes=changes, at="publish", when="before").status == "killed"
    with ledger_of(tmp_path) as ledger:
        assert [one.version for one in ledger.publications(WEEK)] == [1]
    assert run_plainly(tmp_path, tables, changes=changes).status == "published"
    with ledger_of(tmp_path) as ledger:
        assert [one.version for one in ledger.publications(WEEK)] == [1, 2]
        assert ledger.verify() == []


def test_of_two_runs_of_one_week_at_once_one_publishes_and_the_other_finds_it_done(tables, tmp_path):
    both = [start(tmp_path, tables) for _ in range(2)]
    ended = [finish(one) for one in both]
    assert [one.code for one in ended] == [0, 0], ended
    assert sorted(one.status for one in ended) == ["published", "unchanged"]
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.publications(WEEK)) == 1
        assert ledger.verify() == []
