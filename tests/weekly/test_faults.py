"""What can be wrong with the machine: each ends in a message that says what and what next."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager

import pytest
from support.chain import LAST_WEEK, write_chain
from support.week_processes import run_in_process

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger

WEEK = Week.parse(LAST_WEEK)
pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_chain(tmp_path_factory.mktemp("chain"))


@contextmanager
def mounted(place, options):
    """A file system of its own at ``place``: the honest way to a full or read-only disk."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_said_and_the_ledger_stays_whole(tables, tmp_path):
    with mounted(tmp_path / "small", "size=900k") as home:
        ended = run_in_process(home, tables)
        assert ended.code == 3, ended
        assert "No space left" in ended.message
        assert str(home) in ended.message
        assert "Next:" in ended.message
        assert not (home / "reports" / LAST_WEEK).exists()
        for run in (home / "runs").iterdir():  # room again
            subprocess.run(["rm", "-rf", str(run)], check=True)
        subprocess.run(["mount", "-o", "remount,size=200m", str(home)], check=True)
        assert run_in_process(home, tables).status == "published"
        with Ledger.open(Settings(home=home).ledger_url, home=home) as ledger:
            assert ledger.verify() == []


def test_a_read_only_home_is_said(tables, tmp_path):
    with mounted(tmp_path / "fixed", "ro,size=1m") as home:
        ended = run_in_process(home, tables)
        assert ended.code == 3, ended
        assert str(home) in ended.message
        assert "not writable" in ended.message
        assert "EW_HOME" in ended.message


def test_a_database_that_is_not_there_is_said(tables, tmp_path):
    ended = run_in_process(tmp_path, tables, database="postgresql+psycopg://ew@127.0.0.1:1/ew")
    assert ended.code == 3, ended
    assert "127.0.0.1:1" in ended.message
    assert "Next:" in ended.message


def test_a_corrupted_snapshot_is_named_and_nothing_is_published_from_it(tables, tmp_path):
    held = {"gate": {"min_pairs": 100_000}}
    assert run_in_process(tmp_path, tables, changes=held).status == "held"
    (snapshot,) = (tmp_path / "snapshots").iterdir()
    victim = snapshot / "sales.parquet"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.chmod(0o644)
    victim.write_bytes(bytes(data))
    ended = run_in_process(tmp_path, tables)
    assert ended.code in (1, 3), ended
    assert "sales.parquet" in ended.message
    with Ledger.open(Settings(home=tmp_path).ledger_url, home=tmp_path) as ledger:
        assert ledger.current(WEEK) is None


def test_a_missing_sales_file_is_named(tables, tmp_path):
    ended = run_in_process(tmp_path, tables, sources={"sales": str(tmp_path / "nothing.parquet")})
    assert ended.code == 1, ended
    assert "nothing.parquet" in ended.message
