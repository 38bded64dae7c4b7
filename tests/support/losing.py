"""Work whose cluster is lost in the middle: it ends soon, with words. The suite does it once for each kind of
work, tests/trials/test_lost_while_at_work.py at every step and both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.block_week import run
from support.local_cluster import bare_cluster, ends, lost, sleeps

from ew_pipeline.cluster import connection
from ew_pipeline.cluster import connection as cluster_module
from ew_pipeline.cluster import weeks as weeks_module
from ew_pipeline.cluster.connection import ClusterError
from ew_pipeline.cluster.segments import fit_segments_on
from ew_pipeline.cluster.weeks import run_weeks
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.assemble import Prepared
from ew_pipeline.ledger import Ledger
from ew_pipeline.results import WeekRequest

SAID = {"workers": "has had no workers for", "scheduler": "is gone"}


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "WORKERS_SECONDS", 1.0)
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.2)


def lose_a_week_by_blocks(what: str, step: str, partitions: Path, home: Path) -> None:
    with bare_cluster(2) as cluster, lost(cluster, what, step):
        error = ends(lambda: run(home, partitions, cluster.address))
    assert isinstance(error, ClusterError)
    assert SAID[what] in error.message
    assert "type the same command" in error.next_step
    with Ledger.open(Settings(home=home).ledger_url, home=home) as ledger:
        assert [one.status for one in ledger.runs()] == ["failed"]
        with ledger.week_lock(Week(2026, 30), who="the next", wait_seconds=0.0):
            pass  # nobody holds it any more


def lose_a_backfill(what: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weeks_module, "run_on_worker", sleeps)
    weeks = [Week(2026, 7), Week(2026, 8), Week(2026, 9)]
    request = WeekRequest(week=weeks[0], sales=str(home))
    with bare_cluster(2) as cluster, lost(cluster, what, "2026-W0"):
        error = ends(lambda: run_weeks(cluster.address, request, weeks, Settings(home=home), print))
    assert isinstance(error, ClusterError)
    assert SAID[what] in error.message
    assert what == "workers" or "with 3 weeks to do" in error.message
    assert "weeks that are done are not done again" in error.next_step


def lose_segments(what: str, prepared: Prepared, config: RunConfig, home: Path) -> None:
    settings = Settings(home=home)
    with bare_cluster(1) as cluster, lost(cluster, what, "fit_on_worker"):
        error = ends(lambda: fit_segments_on(cluster.address, prepared, config, home, settings))
    assert isinstance(error, ClusterError)
    assert SAID[what] in error.message
