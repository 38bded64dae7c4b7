"""Weeks and segments on a cluster: the same results as here, whatever happens to the workers."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from support.chain import LAST_WEEK, QUICK, run_plainly, sources, write_chain
from support.local_cluster import dies, not_here, one_killed, working_on
from support.losing import look_often, lose_segments
from typer.testing import CliRunner

from ew_pipeline.audit.verify import verify
from ew_pipeline.cli.doctor import examine
from ew_pipeline.cli.main import app
from ew_pipeline.cluster import connection as cluster_module
from ew_pipeline.cluster import weeks as weeks_module
from ew_pipeline.cluster.connection import ClusterError, check_workers, connected
from ew_pipeline.cluster.segments import fit_segments_on
from ew_pipeline.cluster.weeks import run_weeks
from ew_pipeline.core.console import ExitCode
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.assemble import prepare
from ew_pipeline.intake.snapshot import Snapshot
from ew_pipeline.ledger import Ledger
from ew_pipeline.results import WeekRequest
from ew_pipeline.tracking.model import load_model
from ew_pipeline.weekly.backfill import backfill_weeks
from ew_pipeline.weekly.request import make_request

WEEKS = [Week(2026, 7), Week(2026, 8)]
IDS = {"store_id": str, "sku_id": str}
CHANGES = {**QUICK, "segment_by": "region"}
pytestmark = pytest.mark.server
COLUMNS = ["store_id", "sku_id", "units", "expected_units", "anomaly_probability"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_chain(tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="module")
def here(tables, tmp_path_factory):
    """The last week, in regions, run in this process."""
    home = tmp_path_factory.mktemp("here")
    outcome = run_plainly(home, tables, stores=tables["stores"], changes=CHANGES, override_why="a test")
    assert len(outcome.result.segments) > 1
    return home, outcome.result


def request_for(settings, tables, **asked):
    asked = {**sources(tables), "stores": tables["stores"], "changes": CHANGES, **asked}
    return make_request(settings, week=LAST_WEEK, **asked)


def in_the_middle_of(week, home):
    """Says who runs the week, once its run has begun to leave something."""

    def when(client):
        begun = any((home / "runs").glob(f"{week}-*/*"))
        return working_on(client, str(week)) if begun else None

    return when


@pytest.mark.slow("three workers, one killed, and the same weeks here")
def test_a_backfill_survives_a_killed_worker_and_equals_one_made_here(cluster, tables, here, tmp_path):
    home, (before, last) = tmp_path / "home", WEEKS
    settings = Settings(home=home, dask_address=cluster)
    with one_killed(cluster, in_the_middle_of(last, home)) as killed:
        found = backfill_weeks(
            request_for(settings, tables, override_why="a test"), WEEKS, settings, cluster_weeks=run_weeks
        )
    assert len(killed) == 1
    assert [(done.week, done.status) for done in found.weeks] == [(before, "published"), (last, "published")]
    assert len(list((home / "runs").glob(f"{last}-*"))) == 2  # begun twice
    with Client(cluster, set_as_default=False) as client:
        assert not any(client.run(_is_tracking).values())  # nothing of ours is left on a worker

    with Ledger.open(settings.ledger_url, home=home) as ledger:
        assert [one.version for one in ledger.live()] == [1, 1]
        assert verify(ledger, settings).findings == ()
        there = ledger.flags(ledger.current(last).id)
    by_pair = {"by": ["store_id", "sku_id"], "ignore_index": True}
    pd.testing.assert_frame_equal(
        there.astype(IDS).sort_values(**by_pair)[COLUMNS],
        here[1].flags.astype(IDS).sort_values(**by_pair)[COLUMNS],
        check_dtype=False,
        rtol=1e-12,
    )
    with closing(sqlite3.connect(home / "mlflow.db")) as mlflow:
        tracked = mlflow.execute(
            "SELECT w.value, s.value FROM tags w JOIN tags s"
            " ON s.run_uuid = w.run_uuid AND s.key = 'ew.status'"
            " WHERE w.key = 'ew.week' AND w.run_uuid NOT IN"
            " (SELECT run_uuid FROM tags WHERE key = 'mlflow.parentRunId')"
        ).fetchall()
    assert sorted(tracked) == [(str(week), "published") for week in WEEKS]


def _is_tracking():
    from ew_pipeline.cluster import weeks

    return weeks._tracking is not None


def test_segments_fitted_on_lost_workers_are_fitted_again_and_equal_those_fitted_here(
    cluster, here, tmp_path
):
    home, result = here
    snapshot = Snapshot(result.provenance.data_hash, home / "snapshots" / result.provenance.data_hash)
    prepared = prepare(snapshot, result.week, result.config)
    settings = Settings(home=tmp_path)
    with one_killed(cluster, lambda client: working_on(client, "fit_on_worker")) as killed:
        fitted = fit_segments_on(cluster, prepared, result.config, tmp_path / "model", settings)
    assert len(killed) == 1
    for there, known in zip(fitted, result.segments, strict=True):
        assert there.record.theta == known.theta
        np.testing.assert_array_equal(there.fit.posterior_, load_model(known.model).fit.posterior_)


def test_segments_end_with_words_when_the_cluster_is_lost(here, tmp_path, monkeypatch):
    look_often(monkeypatch)
    home, result = here
    snapshot = Snapshot(result.provenance.data_hash, home / "snapshots" / result.provenance.data_hash)
    lose_segments("workers", prepare(snapshot, result.week, result.config), result.config, tmp_path)


def run_with(task, cluster, tmp_path, monkeypatch, allowed_failures=3):
    """Two weeks whose work on a worker is ``task``."""
    monkeypatch.setattr(weeks_module, "run_on_worker", task)
    request = WeekRequest(week=WEEKS[0], sales=str(tmp_path))
    found = []
    with Client(cluster, set_as_default=False) as client:
        client.run_on_scheduler(_allow, allowed_failures)
        try:
            run_weeks(cluster, request, WEEKS, Settings(home=tmp_path), found.append)
        finally:
            client.run_on_scheduler(_allow, 3)
    return found


def _allow(failures, dask_scheduler):
    dask_scheduler.allowed_failures = failures


def test_a_week_that_loses_every_worker_is_named_with_the_last_one(cluster, tmp_path, monkeypatch):
    found = run_with(dies, cluster, tmp_path, monkeypatch, allowed_failures=0)
    assert sorted(done.week for done in found) == WEEKS
    assert {done.status for done in found} == {"failed"}
    assert all("1 worker was lost while at it, the last one at tcp://127.0.0.1" in d.words for d in found)


def test_a_week_that_fails_for_the_machines_sake_is_tried_on_another(cluster, tmp_path, monkeypatch):
    found = run_with(not_here, cluster, tmp_path, monkeypatch)
    assert [done.status for done in found] == ["failed", "failed"]
    for done in found:
        tried = re.fullmatch(r"no space left \(on (tcp:\S+) and on (tcp:\S+)\)", done.words)
        assert tried[1] != tried[2]


class Elsewhere(Settings):
    """A home that is another folder in every process."""

    @property
    def root(self) -> Path:
        return Path("/proc/self/cwd")


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
def test_workers_that_do_not_share_the_home_are_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with connected(cluster) as client, pytest.raises(ClusterError, match="do not share the home"):
        check_workers(client, Elsewhere(), {})
    assert list(tmp_path.iterdir()) == []  # the mark is gone


def test_workers_that_cannot_read_a_source_are_refused(cluster, tmp_path):
    missing = {"sales": str(tmp_path / "sales.parquet"), "costs": "postgresql+psycopg://db/x#table=costs"}
    with connected(cluster) as client, pytest.raises(ClusterError, match="cannot read the sales") as error:
        check_workers(client, Settings(home=tmp_path), missing)
    assert "tcp://127.0.0.1" in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("code_version", "9.9", "would not compute what this machine does: ew-pipeline .* instead of 9.9"),
        ("machine", "another", "the ledger is a SQLite file"),
    ],
)
def test_a_cluster_that_would_not_give_the_same_result_is_refused(
    name, value, said, cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(cluster_module, name, lambda: value)  # here; the workers are what they are
    with connected(cluster) as client, pytest.raises(ClusterError, match=said):
        check_workers(client, Settings(home=tmp_path), {})


def test_servers_may_be_shared_between_machines(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "machine", lambda: "another")
    servers = {"database_url": "postgresql+psycopg://db/ew", "MLFLOW_TRACKING_URI": "http://db:5000"}
    with connected(cluster) as client:
        check_workers(client, Settings(home=tmp_path, **servers), {})


def test_a_scheduler_that_does_not_answer_is_an_error_that_says_where(monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.5)
    with (
        pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        connected("tcp://127.0.0.1:9"),
    ):
        pass


def test_processes_here_and_a_cluster_exclude_each_other(tmp_path, monkeypatch):
    monkeypatch.setenv("EW_HOME", str(tmp_path))
    monkeypatch.setenv("EW_ORCHESTRATE", "false")
    command = "backfill --from 2026-W06 --to 2026-W07 --sales x --parallel 2 --dask tcp://127.0.0.1:9"
    answer = CliRunner().invoke(app, command.split())
    assert answer.exit_code == ExitCode.USAGE
    assert "choose one: --parallel, or --dask" in answer.stderr


def test_the_doctor_asks_the_workers(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.5)
    good = list(examine(Settings(home=tmp_path, dask_address=cluster)))[-1]
    assert (good.name, good.state) == ("Dask", "ok")
    assert "workers share what they need" in good.words
    bad = list(examine(Settings(home=tmp_path, dask_address="tcp://127.0.0.1:9")))[-1]
    assert (bad.name, bad.state) == ("Dask", "fault")
