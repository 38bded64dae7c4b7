"""Workers that join later and would not do what this machine does.

The suite has one of them refuse its first week (tests/cluster/test_worker_checks.py).
"""

from __future__ import annotations

import pytest
from support.block_week import WEEK, make_sales, write_files
from support.local_cluster import (
    bare_cluster,
    ends,
    for_another_processor,
    joining,
    with_quick_weeks,
)

from ew_pipeline.cluster import connection
from ew_pipeline.cluster import connection as cluster_module
from ew_pipeline.cluster import weeks as weeks_module
from ew_pipeline.cluster.connection import ClusterError, connected
from ew_pipeline.cluster.partitions import Reading, load_blocks, take_census
from ew_pipeline.cluster.weeks import Refused, run_weeks
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.method.large.row_blocks import column_totals
from ew_pipeline.results import WeekRequest

pytestmark = pytest.mark.server
WEEKS = [Week(2026, 7), Week(2026, 8)]


def test_a_worker_that_joins_later_is_looked_at_with_its_first_block(tmp_path):
    write_files(make_sales(), tmp_path)
    with bare_cluster(1, for_another_processor) as cluster, connected(cluster.address) as client:
        blocks = load_blocks(client, take_census(client, tmp_path, Reading(WEEK)))
        error = ends(lambda: blocks.total(column_totals, []))
    assert isinstance(error, ClusterError)
    assert "has joined since" in error.message
    assert "kernels generic" in error.message


def test_weeks_go_from_workers_that_join_later_to_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.2)
    answers = []

    def gathered(*asked):
        answers.append(connection.gathered(*asked))
        return answers[-1]

    monkeypatch.setattr(weeks_module, "gathered", gathered)
    request, settings, found = WeekRequest(week=WEEKS[0], sales=str(tmp_path)), Settings(home=tmp_path), []
    with (
        bare_cluster(1, with_quick_weeks) as cluster,
        joining(cluster.address, for_another_processor) as join,
    ):

        def note(done):
            found.append(done)
            if len(found) == 1:
                join()
                join()

        assert ends(lambda: run_weeks(cluster.address, request, WEEKS, settings, note)) is None
    assert sorted((done.week, done.status) for done in found) == [(week, "published") for week in WEEKS]
    refusing = [worker for worker, answer in answers if isinstance(answer, Refused)]
    assert refusing
    assert len(refusing) == len(set(refusing))  # no second week for one that refused


def test_a_backfill_left_with_workers_that_refuse_ends_with_words(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "WORKERS_SECONDS", 1.0)
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.2)
    request, settings, found = WeekRequest(week=WEEKS[0], sales=str(tmp_path)), Settings(home=tmp_path), []
    with (
        bare_cluster(1, with_quick_weeks) as cluster,
        joining(cluster.address, for_another_processor) as join,
    ):

        def note(done):
            found.append(done)
            if len(found) == 1:
                join()
                cluster.kill("workers")

        error = ends(lambda: run_weeks(cluster.address, request, WEEKS, settings, note))
    assert isinstance(error, ClusterError)
    assert "but 1 that refuse the work" in error.message
    assert "kernels generic" in error.message
    assert "weeks that are done are not done again" in error.next_step
    assert {done.status for done in found} == {"published"}
