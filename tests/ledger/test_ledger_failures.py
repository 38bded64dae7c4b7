"""When the database cannot be used: a sentence, a next step, and a ledger as it was."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from support.factory import make_result
from support.ledger_processes import Forked
from support.postgres import empty

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, LedgerError
from ew_pipeline.ledger.chain import lock_head
from ew_pipeline.ledger.connect import writing

W34 = Week(2026, 34)
pytestmark = pytest.mark.server
NOWHERE = "postgresql+psycopg://ana:secret@127.0.0.1:1/ledger"


def url_of(home: Path) -> str:
    return f"sqlite:///{home / 'ledger.db'}"


def publish(ledger: Ledger, home: Path, seed: int = 0, **sizes: int):
    result = make_result(home=home, seed=seed, **sizes)
    return ledger.publish(result, by="ana", report=result.folder / "report.html")


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A small disk of its own in memory; only root may make one."""
    folder.mkdir(exist_ok=True)
    made = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("a disk can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_an_absent_server_is_named_without_its_password():
    with pytest.raises(LedgerError, match="cannot be reached") as caught:
        Ledger.open(NOWHERE)
    assert "secret" not in str(caught.value)
    assert "ana:***@127.0.0.1:1/ledger" in caught.value.message
    assert "EW_DATABASE_URL" in caught.value.next_step
    assert caught.value.transient


def test_a_database_that_does_not_exist_is_named(postgres):
    url = empty(postgres).replace("/postgres?", "/nope?")
    with pytest.raises(LedgerError, match='database "nope" does not exist'):
        Ledger.open(url)


def test_a_file_that_is_no_database_is_left_alone(home):
    (home / "ledger.db").write_text("store_id,sku_id\n" * 100)
    with pytest.raises(LedgerError, match=r"(?s)is not a readable ledger .*backup") as caught:
        Ledger.open(url_of(home))
    assert caught.value.exit_code == 3
    assert (home / "ledger.db").read_text().startswith("store_id,sku_id\n")


def test_a_damaged_ledger_is_said_to_be_damaged(home):
    with Ledger.open(url_of(home)) as ledger:
        publish(ledger, home, stores=40, skus=40)
    with closing(sqlite3.connect(home / "ledger.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (home / "ledger.db").open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 60_000)
    with (
        pytest.raises(LedgerError, match=r"(?s)is not a readable ledger .*malformed"),
        Ledger.open(url_of(home)) as ledger,
    ):
        ledger.verify()


def test_a_folder_that_cannot_be_made_is_named(home):
    (home / "file").write_text("")
    with pytest.raises(LedgerError, match=r"(?s)folder of the ledger .*file/deeper/ledger.db cannot be made"):
        Ledger.open(f"sqlite:///{home / 'file' / 'deeper' / 'ledger.db'}")


def test_a_read_only_home_is_named(home):
    with mounted(home / "disk", "-o", "ro") as disk, pytest.raises(LedgerError) as caught:
        Ledger.open(url_of(disk))
    assert "not writable" in caught.value.message or "read-only" in caught.value.message
    assert "EW_HOME" in caught.value.next_step


def test_a_home_that_became_read_only_keeps_its_ledger_readable(home):
    with mounted(home / "disk", "-o", "size=8m") as disk:
        with Ledger.open(url_of(disk)) as ledger:
            first = publish(ledger, disk)
        result = make_result(home=disk, seed=1)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with (
            pytest.raises(LedgerError, match=r"read-only|not writable"),
            Ledger.open(url_of(disk)) as ledger,
        ):
            ledger.publish(result, by="ana", report=result.folder / "report.html")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        with Ledger.open(url_of(disk)) as ledger:
            assert ledger.publications() == (first,)
            assert ledger.verify() == []


def test_a_full_disk_leaves_what_was_published_before(home):
    with mounted(home / "disk", "-o", "size=1500k") as disk, Ledger.open(url_of(disk)) as ledger:
        first = publish(ledger, home)
        with pytest.raises(LedgerError, match=r"(?s)full or failing .*Nothing was written.*free some space"):
            publish(ledger, home, seed=1, stores=6000, skus=2)
        assert ledger.publications() == (first,)
        assert ledger.verify() == []
        assert publish(ledger, home, seed=2).version == 2


def publish_into_a_small_file(url: str, home: Path) -> None:
    with Ledger.open(url, home=home) as ledger:
        result = make_result(home=home, seed=1, stores=6000, skus=4)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
        ledger.publish(result, by="ana", report=result.folder / "report.html")


def test_a_file_that_may_not_grow_leaves_what_was_published_before(home):
    with Ledger.open(url_of(home)) as ledger:
        first = publish(ledger, home)
        with pytest.raises((LedgerError, RuntimeError), match="full or failing"):
            Forked(publish_into_a_small_file, url_of(home), home).result()
        assert ledger.publications() == (first,)
        assert ledger.verify() == []


def test_a_locked_sqlite_ledger_is_waited_for_and_then_named(home):
    with Ledger.open(url_of(home), busy_seconds=0.3) as ledger:
        first = publish(ledger, home)
        with closing(sqlite3.connect(home / "ledger.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerError, match=r"(?s)locked by another process.*fuser") as caught:
                publish(ledger, home, seed=1)
            assert caught.value.transient
            assert ledger.publications() == (first,)  # readers do not wait
        assert publish(ledger, home, seed=1).version == 2


def test_an_exclusively_locked_sqlite_ledger_cannot_be_opened(home):
    Ledger.open(url_of(home)).close()
    with closing(sqlite3.connect(home / "ledger.db")) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="locked by another process"):
            Ledger.open(url_of(home), busy_seconds=0.2)


def test_a_busy_postgresql_ledger_is_waited_for_and_then_named(postgres, home):
    url = empty(postgres)
    with Ledger.open(url, home=home) as other, Ledger.open(url, home=home, busy_seconds=0.3) as ledger:
        first = publish(ledger, home)
        with writing(other._engine) as connection:
            lock_head(connection)
            with pytest.raises(LedgerError, match="another run is writing") as caught:
                publish(ledger, home, seed=1)
            assert caught.value.transient
            assert ledger.publications() == (first,)
        assert publish(ledger, home, seed=1).version == 2


def test_a_user_without_rights_is_told_which_to_ask_for(postgres):
    url = empty(postgres)
    with Ledger.open(url) as ledger, writing(ledger._engine) as connection:
        connection.execute(text("DROP ROLE IF EXISTS reader"))
        connection.execute(text("CREATE ROLE reader LOGIN"))
        connection.execute(text("DROP SCHEMA ew CASCADE"))
    with pytest.raises(LedgerError, match=r"(?s)may not do that .*CREATE SCHEMA ew AUTHORIZATION"):
        Ledger.open(url.replace("//postgres:", "//reader:"))


def test_a_connection_cut_by_the_server_is_transient(postgres, home):
    with Ledger.open(empty(postgres), home=home) as ledger:
        first = publish(ledger, home)
        with pytest.raises(LedgerError) as caught, writing(ledger._engine) as connection:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        assert caught.value.transient
        assert ledger.publications() == (first,)


def test_a_home_that_takes_no_anchor_does_not_undo_a_publication(home):
    with Ledger.open(url_of(home)) as ledger:
        (home / "anchors").write_text("in the way")
        assert publish(ledger, home).created
        assert ledger.current(W34) is not None
        assert ledger.verify() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere; the read-only disk is tested instead")
def test_a_folder_without_leave_to_write_is_named(home):
    home.chmod(0o500)
    with pytest.raises(EwError, match=r"writable|read-only"):
        Ledger.open(url_of(home))
