"""A cluster that is lost in the middle: soon an error with words and not a wait without end."""

from __future__ import annotations

import re
import time

import numpy as np
import pandas as pd
import pytest
from support.block_week import run, scores_of
from support.local_cluster import (
    bare_cluster,
    dies,
    ends,
    lost,
    one_killed,
    sleeps,
    working_on,
)
from support.losing import look_often, lose_a_backfill, lose_a_week_by_blocks

from ew_pipeline.cluster import connection
from ew_pipeline.cluster import connection as cluster_module
from ew_pipeline.cluster import weeks as weeks_module
from ew_pipeline.cluster.connection import ClusterError, connected, ended, gathered
from ew_pipeline.cluster.weeks import run_weeks
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.results import WeekRequest

pytestmark = pytest.mark.server


@pytest.fixture
def impatient(monkeypatch):
    look_often(monkeypatch)


def test_a_week_by_blocks_ends_with_words_when_its_workers_are_lost(partitions, tmp_path, impatient):
    lose_a_week_by_blocks("workers", "block-sweep_block", partitions, tmp_path)


def test_a_backfill_ends_with_words_when_the_cluster_is_lost(tmp_path, impatient, monkeypatch):
    lose_a_backfill("scheduler", tmp_path, monkeypatch)


def test_a_backfill_ends_with_words_when_the_scheduler_hangs(tmp_path, impatient, monkeypatch):
    for module, name in (
        (cluster_module, "ANSWER_SECONDS"),
        (cluster_module, "ASKED_AGAIN_SECONDS"),
        (weeks_module, "LEAVE_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 1.0)
    monkeypatch.setattr(weeks_module, "run_on_worker", sleeps)
    weeks = [Week(2026, 7), Week(2026, 8)]
    request = WeekRequest(week=weeks[0], sales=str(tmp_path))
    with bare_cluster(1) as cluster, lost(cluster, "answers", "2026-W0"):
        error = ends(lambda: run_weeks(cluster.address, request, weeks, Settings(home=tmp_path), print))
    assert isinstance(error, ClusterError)
    assert "is gone, with 2 weeks to do" in error.message


def test_words_about_a_scheduler_that_hangs_come_within_the_two_minutes_that_are_promised():
    asked = cluster_module.ANSWER_SECONDS + cluster_module.ASKED_AGAIN_SECONDS
    left = weeks_module.LEAVE_SECONDS + 2 * cluster_module.CONNECT_SECONDS  # Dask's limit to closing a client
    assert connection.LOOK_SECONDS + asked + left <= 120.0


def test_a_result_whose_only_worker_dies_before_it_is_fetched_is_not_waited_for(impatient):
    with bare_cluster(1) as cluster, connected(cluster.address) as client:
        made = client.submit(np.ones, 10)
        assert ended(client, [made]) == {made}
        cluster.kill("workers")
        error = ends(lambda: gathered(client, made))
    assert isinstance(error, ClusterError)


def test_waiting_goes_on_while_there_are_workers(impatient):
    with bare_cluster(1) as cluster, connected(cluster.address) as client:
        slow = client.submit(pd.Series, [7])
        assert gathered(client, client.submit(_later, slow)).tolist() == [7]


def _later(value):
    time.sleep(1.5)  # longer than several looks, and than a cluster may be without workers
    return value


def test_an_error_of_the_work_is_not_taken_for_one_of_the_cluster(impatient):
    with bare_cluster(1) as cluster, pytest.raises(FileNotFoundError), connected(cluster.address) as client:
        gathered(client, client.submit(open, "/nowhere"))


def test_work_that_kills_its_workers_is_said_to(impatient):
    with bare_cluster(2) as cluster:
        error = ends(lambda: _die_at(cluster.address))
    assert isinstance(error, ClusterError)
    assert re.match("the task dies.* was not done: 1 worker was lost while at it", error.message)


def _die_at(address):
    with connected(address) as client:
        client.run_on_scheduler(_no_failures)
        gathered(client, client.submit(dies))


def _no_failures(dask_scheduler):
    dask_scheduler.allowed_failures = 0


@pytest.fixture(scope="module")
def undisturbed(cluster_of_the_module, partitions, tmp_path_factory):
    home = tmp_path_factory.mktemp("undisturbed")
    return scores_of(run(home, partitions, cluster_of_the_module))


@pytest.mark.parametrize("step", ["read_block", "block-decide_block"])
def test_one_lost_worker_changes_nothing(step, cluster, undisturbed, partitions, tmp_path):
    with one_killed(cluster, lambda client: working_on(client, step)) as killed:
        found = scores_of(run(tmp_path, partitions, cluster))
    assert len(killed) == 1
    pd.testing.assert_frame_equal(found, undisturbed, check_exact=True)
