"""Real processes: killed in the middle of a publication, and publishing one week at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from sqlalchemy import event
from support.factory import make_result
from support.ledger_processes import Forked
from support.postgres import on_both

from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, Publication, store

W34 = Week(2026, 34)
MOMENTS = ("before anything", "run written", "flags written", "at commit", "after commit")
pytestmark = [pytest.mark.server, on_both]


def publish(url: str, home: Path, seed: int = 0, attempt: int = 0) -> Publication:
    result = make_result(home=home, seed=seed, attempt=attempt)
    with Ledger.open(url, home=home) as ledger:
        return ledger.publish(result, by=f"process {seed}", report=result.folder / "report.html")


def publish_and_die(url: str, home: Path, seed: int, moment: str) -> None:
    """Publish, and be killed by the system at the moment: no handler runs, no transaction is closed."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    result = make_result(home=home, seed=seed)
    with Ledger.open(url, home=home) as ledger:
        if moment == "before anything":
            store.prepare_publication = die
        elif moment == "run written":
            store.insert_flags = die
        elif moment == "flags written":
            insert = store.insert_flags
            store.insert_flags = lambda *arguments: (insert(*arguments), die())
        elif moment == "at commit":
            event.listen(ledger._engine, "commit", die)
        else:
            store.write_anchor = die
        ledger.publish(result, by="the doomed", report=result.folder / "report.html")


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_publishing_leaves_the_old_or_the_new_publication(ledger_url, home, moment):
    old = publish(ledger_url, home, seed=0)
    assert Forked(publish_and_die, ledger_url, home, 1, moment).exit_code == -signal.SIGKILL
    survived = moment == "after commit"
    with Ledger.open(ledger_url, home=home) as ledger:
        assert ledger.verify() == []
        current = ledger.current(W34)
        assert current.published_by == ("the doomed" if survived else "process 0")
        assert len(ledger.flags(current.id)) == current.flags_count == 3
        assert len(ledger.publications(W34)) == len(ledger.runs()) == (2 if survived else 1)
        assert len(ledger.segments(current.run_id)) == 2
        assert ledger.publications(W34)[0] == old
    again = publish(ledger_url, home, seed=1, attempt=1)
    assert (again.created, again.version) == (not survived, 2)
    with Ledger.open(ledger_url, home=home) as ledger:
        assert ledger.verify() == []


@pytest.mark.parametrize("moment", ["flags written", "after commit"])
def test_killed_in_the_very_first_publication(ledger_url, home, moment):
    assert Forked(publish_and_die, ledger_url, home, 1, moment).exit_code == -signal.SIGKILL
    with Ledger.open(ledger_url, home=home) as ledger:
        assert len(ledger.publications()) == (1 if moment == "after commit" else 0)
        assert ledger.verify() == []


def test_several_processes_with_the_same_inputs_publish_once(ledger_url, home):
    for attempt in range(5):
        make_result(home=home, attempt=attempt)
    Ledger.open(ledger_url, home=home).close()
    processes = [Forked(publish, ledger_url, home, 0, attempt) for attempt in range(5)]
    answers = [process.result() for process in processes]
    assert sorted(answer.created for answer in answers) == [False] * 4 + [True]
    assert len({answer.id for answer in answers}) == 1
    with Ledger.open(ledger_url, home=home) as ledger:
        assert len(ledger.publications(W34)) == 1
        assert sorted(run.status for run in ledger.runs()) == ["published"] + ["unchanged"] * 4
        assert ledger.verify() == []


def test_several_processes_with_other_inputs_supersede_one_another_in_order(ledger_url, home):
    processes = [Forked(publish, ledger_url, home, seed) for seed in range(5)]
    answers = sorted((process.result() for process in processes), key=lambda answer: answer.version)
    assert all(answer.created for answer in answers)
    assert [answer.version for answer in answers] == [1, 2, 3, 4, 5]
    assert [answer.supersedes for answer in answers] == [None, 1, 2, 3, 4]
    with Ledger.open(ledger_url, home=home) as ledger:
        assert ledger.publications(W34) == tuple(answers)
        for answer in answers:
            seed = int(answer.published_by.removeprefix("process "))
            flags = make_result(seed=seed).flags
            assert ledger.flags(answer.id)["expected_units"].tolist() == flags["expected_units"].tolist()
        assert ledger.verify() == []


def test_readers_see_one_whole_publication_while_others_publish(ledger_url, home):
    publish(ledger_url, home, seed=0)
    writers = [Forked(publish, ledger_url, home, seed) for seed in range(1, 5)]
    with Ledger.open(ledger_url, home=home) as ledger:
        while any(writer.process.is_alive() for writer in writers):
            current = ledger.current(W34)
            assert len(ledger.flags(current.id)) == current.flags_count
            assert ledger.verify() == []
    assert [writer.result().created for writer in writers] == [True] * 4
