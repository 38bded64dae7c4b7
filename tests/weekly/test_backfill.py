"""Many weeks: in order, side by side, resumed, and with a bad one among them."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from support.chain import QUICK, Untold, sources, write_chain
from support.clean_processes import clean
from support.week_processes import Dying, finish

from ew_pipeline.audit.verify import verify
from ew_pipeline.cli.backfill import describe, say
from ew_pipeline.core.console import ExitCode
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.weekly import backfill
from ew_pipeline.weekly.backfill import Backfill, backfill_weeks, progress, weeks_between
from ew_pipeline.weekly.journal import fingerprint
from ew_pipeline.weekly.outcome import WeekDone
from ew_pipeline.weekly.request import make_request

FIRST, LAST = Week(2026, 7), Week(2026, 8)
WEEKS = [FIRST, LAST]
THREE = [FIRST.shift(-1), *WEEKS]
pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_chain(tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="module")
def filled(tables, tmp_path_factory):
    """A home with two weeks, made once; tests copy it."""
    home = tmp_path_factory.mktemp("filled") / "home"
    found = run(home, tables)
    assert [done.status for done in found.weeks] == ["published"] * 2
    return home


def request_for(home, tables, **asked):
    # Published whatever the gate says, unless a test wants otherwise.
    asked = {"override_why": "a test", "changes": QUICK, **asked}
    return make_request(Settings(home=home), week=str(FIRST), **{**sources(tables), **asked})


def run(home, tables, weeks=WEEKS, asked=None, **options):
    settings = Settings(home=home, threads=1)
    return backfill_weeks(
        request_for(home, tables, **(asked or {})), weeks, settings, tracking=Untold(), **options
    )


def ledger_of(home):
    return Ledger.open(Settings(home=home).ledger_url, home=home)


def copied(filled, tmp_path):
    shutil.copytree(filled, tmp_path / "home")
    return tmp_path / "home"


def test_weeks_are_published_in_order_each_compared_with_the_one_before(filled):
    with ledger_of(filled) as ledger:
        assert [one.week for one in ledger.publications()] == WEEKS
        assert ledger.verify() == []


def test_what_a_backfill_published_passes_the_audit(filled):
    with ledger_of(filled) as ledger:
        assert verify(ledger, Settings(home=filled)).findings == ()


def test_weeks_that_are_done_are_passed_over_without_reading(filled, tables, tmp_path):
    home = copied(filled, tmp_path)
    runs = len(list((home / "runs").iterdir()))
    seen = []
    found = run(home, tables, on_done=seen.append)
    assert all(done.skipped and done.status == "unchanged" for done in found.weeks)
    assert tuple(seen) == found.weeks
    assert len(list((home / "runs").iterdir())) == runs
    assert sum(done.seconds for done in found.weeks) == 0.0


def test_a_recheck_reads_the_data_and_publishes_nothing_new(filled, tables, tmp_path):
    home = copied(filled, tmp_path)
    found = run(home, tables, weeks=[LAST], recheck=True)
    assert [(done.status, done.skipped) for done in found.weeks] == [("unchanged", False)]
    with ledger_of(home) as ledger:
        assert len(ledger.publications()) == 2


def test_changed_data_supersede_only_the_weeks_they_touch(filled, tables, tmp_path):
    home = copied(filled, tmp_path)
    sales = pd.read_parquet(tables["sales"])
    later = (sales["week"].astype(str) == str(LAST)).to_numpy()
    sales.loc[later, "units"] += 1
    sales.to_parquet(tmp_path / "sales.parquet", index=False)
    found = run(home, {**tables, "sales": str(tmp_path / "sales.parquet")})
    assert [done.status for done in found.weeks] == ["unchanged", "published"]
    with ledger_of(home) as ledger:
        assert [one.version for one in ledger.live()] == [1, 2]


def test_a_rejected_week_does_not_stop_the_others_and_is_named(tables, tmp_path):
    sales = pd.read_parquet(tables["sales"])
    sales = sales[(sales["week"].astype(str) != "2026-W07").to_numpy()]
    sales.to_parquet(tmp_path / "sales.parquet", index=False)
    found = run(tmp_path / "home", {**tables, "sales": str(tmp_path / "sales.parquet")})
    assert [done.status for done in found.weeks] == ["rejected", "published"]
    (bad,) = found.bad
    assert "no row of 2026-W07" in bad.words
    assert found.exit_code == ExitCode.DATA_REJECTED


def test_a_held_week_is_not_computed_again_until_something_changes(tables, tmp_path):
    home = tmp_path / "home"
    strict = {"changes": {**QUICK, "gate": {**QUICK["gate"], "min_pairs": 100_000}}, "override_why": None}
    first = run(home, tables, [LAST], strict)
    assert (first.weeks[0].status, first.exit_code) == ("held", ExitCode.HELD_BACK)
    again = run(home, tables, [LAST], strict)
    assert (again.weeks[0].skipped, again.weeks[0].run_id) == (True, first.weeks[0].run_id)
    allowed = run(home, tables, [LAST], {**strict, "override_why": "it is fine"})
    assert allowed.weeks[0].status == "published"


def _killed(home, tables, week):
    """In a process of its own: a backfill that is killed when ``week`` is about to be published."""
    settings = Settings(home=Path(home), threads=1)

    def steps(now):
        return Dying("publish" if str(now) == week else None, "before")

    backfill_weeks(request_for(Path(home), tables), THREE, settings, tracking=Untold(), make_steps=steps)


def test_killed_in_the_middle_it_goes_on_where_it_was(tables, tmp_path):
    home = tmp_path / "home"
    process = clean.Process(target=_killed, args=(str(home), tables, "2026-W07"))
    process.start()
    assert finish((process, clean.SimpleQueue())).code == -signal.SIGKILL
    with ledger_of(home) as ledger:
        assert [str(one.week) for one in ledger.live()] == ["2026-W06"]
    found = run(home, tables, THREE)
    assert [(done.status, done.skipped) for done in found.weeks] == [
        ("unchanged", True),
        ("published", False),
        ("published", False),
    ]
    with ledger_of(home) as ledger:
        assert [one.version for one in ledger.live()] == [1, 1, 1]
        assert ledger.verify() == []


def _waits_for_work(home, told):
    """In a process of its own: a pool as a backfill has, whose worker tells its number and waits."""
    pool = ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), backfill._begin_worker, (Settings(home=Path(home)),)
    )
    told.put(pool.submit(os.getpid).result())
    signal.pause()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child with its parent on Linux alone")
def test_no_worker_outlives_a_backfill_that_is_killed(tmp_path):
    told = clean.SimpleQueue()
    process = clean.Process(target=_waits_for_work, args=(str(tmp_path), told))
    process.start()
    worker = told.get()
    os.kill(worker, 0)  # it is there
    process.kill()
    process.join()
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]:
            break
        time.sleep(0.1)
    else:
        os.kill(worker, signal.SIGKILL)
        pytest.fail(f"worker {worker} was still there ten seconds after its parent")


def test_a_journal_line_that_was_cut_short_is_passed_over(filled, tables, tmp_path):
    home = copied(filled, tmp_path)
    with (home / "backfill.jsonl").open("a") as file:
        file.write('{"week": "2026-W0')
    assert all(done.skipped for done in run(home, tables).weeks)


def test_the_journal_does_not_hide_a_rollback_or_a_lost_ledger(filled, tables, tmp_path):
    home = copied(filled, tmp_path)
    (home / "ledger.db").unlink()
    for rest in home.glob("ledger.db-*"):
        rest.unlink()
    found = run(home, tables, [LAST])
    assert [(done.status, done.skipped) for done in found.weeks] == [("published", False)]


def test_the_fingerprint_sees_files_configuration_and_week(tables, tmp_path):
    copies = {name: str(shutil.copy(path, tmp_path)) for name, path in sources(tables).items()}
    request = request_for(tmp_path / "home", copies)
    before = fingerprint(request)
    assert fingerprint(replace(request, week=LAST)) != before
    assert (
        fingerprint(replace(request, config=request.config.model_copy(update={"history": False}))) != before
    )
    os.utime(copies["listing"], ns=(1, 1))
    assert fingerprint(request) != before
    assert fingerprint(replace(request, sales="postgresql+psycopg://db/x#table=sales")) is None


def test_weeks_in_the_wrong_order_are_refused():
    with pytest.raises(UsageError, match="is after"):
        weeks_between(LAST, FIRST)


def done(status, week=LAST):
    return WeekDone(week, status, "r", f"{status} for a reason", 1.5, timings={"fit": 1.0})


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["published", "unchanged"], ExitCode.DONE),
        (["published", "held"], ExitCode.HELD_BACK),
        (["held", "rejected"], ExitCode.DATA_REJECTED),
        (["held", "rejected", "failed"], ExitCode.FAILED),
    ],
    ids=["good", "held", "rejected", "failed"],
)
def test_the_exit_code_is_that_of_the_worst_week(statuses, code):
    found = Backfill(tuple(done(status) for status in statuses))
    assert found.exit_code == code
    assert describe(found)["exit_code"] == code


def test_progress_and_tally_go_to_stderr_and_name_the_bad_weeks(capsys):
    from ew_pipeline.core.console import messages

    messages.cache_clear()
    with progress(2) as on_done:
        on_done(done("published", FIRST))
        on_done(done("failed"))
    say(Backfill((done("published", FIRST), done("failed"))))
    messages.cache_clear()
    out, err = capsys.readouterr()
    assert out == ""
    assert "published 2026-W07" in err
    assert err.count("failed for a reason") == 2
    assert "2 weeks: 1 published, 1 failed." in err
