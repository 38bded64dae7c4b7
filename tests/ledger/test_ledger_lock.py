"""One run of a week at a time: the other waits, or says who has it; a crash frees it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from support.ledger_processes import Forked
from support.postgres import on_both

from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, LedgerError

W34, W35 = Week(2026, 34), Week(2026, 35)
pytestmark = [pytest.mark.server, on_both]


def hold(url: str, home: Path, taken: Path, release: Path) -> None:
    """Take the lock, say so, and hold it until told to let go."""
    with (
        Ledger.open(url, home=home) as ledger,
        ledger.week_lock(W34, who="bo", wait_seconds=5),
    ):
        taken.touch()
        while not release.exists():
            time.sleep(0.02)


@pytest.fixture
def holder(ledger_url, home, tmp_path):
    """Another process that holds week 34; touch ``release`` to end it."""
    Ledger.open(ledger_url, home=home).close()
    taken, release = tmp_path / "taken", tmp_path / "release"
    forked = Forked(hold, ledger_url, home, taken, release)
    until = time.monotonic() + 60
    while not taken.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    forked.release = release
    yield forked
    release.touch()
    forked.process.join(60)


def test_the_week_is_refused_with_who_has_it(holder, ledger):
    pid = holder.process.pid
    with (
        pytest.raises(
            LedgerError, match=rf"week 2026-W34 is being run by pid {pid} since .* UTC, bo on"
        ) as caught,
        ledger.week_lock(W34),
    ):
        pass
    assert caught.value.transient
    assert "rerun" in caught.value.next_step


def test_another_week_is_free(holder, ledger):
    with ledger.week_lock(W35):
        assert holder.process.is_alive()


def test_waiting_ends_when_the_other_is_done_and_is_told_once(holder, ledger):
    told = []

    def on_wait(words: str) -> None:
        told.append(words)
        holder.release.touch()

    with ledger.week_lock(W34, wait_seconds=60, on_wait=on_wait):
        pass
    assert len(told) == 1
    assert f"pid {holder.process.pid}" in told[0]


def test_waiting_gives_up_in_time(holder, ledger):
    started = time.monotonic()
    with (
        pytest.raises(LedgerError, match=r"gave up after waiting 0.5 s"),
        ledger.week_lock(W34, wait_seconds=0.5),
    ):
        pass
    assert time.monotonic() - started >= 0.5


def test_a_killed_holder_frees_the_week(holder, ledger):
    os.kill(holder.process.pid, signal.SIGKILL)
    with ledger.week_lock(W34, wait_seconds=30):
        pass


def test_the_lock_is_free_again_after_an_error_inside(ledger):
    with pytest.raises(ZeroDivisionError), ledger.week_lock(W34):
        raise ZeroDivisionError
    with ledger.week_lock(W34):
        pass


def test_an_error_of_another_database_inside_is_not_the_ledgers(ledger):
    with pytest.raises(OperationalError), ledger.week_lock(W34):
        raise OperationalError("SELECT 1", None, ValueError("MLflow's database is away"))


def test_two_threads_of_one_process_exclude_each_other_too(ledger):
    with ledger.week_lock(W34), pytest.raises(LedgerError, match="being run by"), ledger.week_lock(W34):
        pass


def test_the_ledger_can_be_used_while_the_lock_is_held(ledger, home):
    from support.factory import make_result

    result = make_result(home=home)
    with ledger.week_lock(W34):
        assert ledger.publish(result, by="ana", report=result.folder / "report.html").created
