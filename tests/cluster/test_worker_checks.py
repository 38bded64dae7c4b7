"""Workers that would not do what this machine does, and addresses where nobody is: said before or at once."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest
from support.chain import LAST_WEEK, QUICK, Untold, sources, write_chain
from support.local_cluster import (
    bare_cluster,
    for_another_processor,
    without_package,
)
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.cluster import connection as cluster_module
from ew_pipeline.cluster.connection import ClusterError, check_workers, connected, fingerprint
from ew_pipeline.cluster.weeks import Refused, run_on_worker
from ew_pipeline.core.console import ExitCode
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.results import WeekRequest
from ew_pipeline.weekly.request import make_request
from ew_pipeline.weekly.run import run_week

pytestmark = pytest.mark.server


def test_a_worker_without_the_package_is_refused_by_name_though_another_has_it(tmp_path):
    with (
        bare_cluster(2, without_package) as cluster,
        connected(cluster.address) as client,
        pytest.raises(ClusterError, match=r"the worker tcp://\S+ could not be asked: .*ew_pipeline"),
    ):
        check_workers(client, Settings(home=tmp_path), {})


def test_a_worker_that_joins_later_refuses_its_first_week(tmp_path):
    request, settings = WeekRequest(week=Week(2026, 7), sales="none"), Settings(home=tmp_path)
    with bare_cluster(1, for_another_processor) as cluster, connected(cluster.address) as client:
        worker, refused = client.submit(run_on_worker, request, settings, fingerprint()).result(60)
    assert isinstance(refused, Refused)
    assert f"the worker {worker} has joined since" in refused.words


WEEKS = [Week(2026, number) for number in range(1, 13)]


def test_dask_is_compared_too(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "version", lambda name: f"0.{len(name)}")
    with connected(cluster) as client, pytest.raises(ClusterError, match=r"dask \S+ instead of 0\.4, dist"):
        check_workers(client, Settings(home=tmp_path), {})


def test_a_ledger_of_sqlite_will_do_where_the_client_alone_publishes(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "machine", lambda: "another")
    with connected(cluster) as client:
        check_workers(client, Settings(home=tmp_path), {}, publishing=False)
        with pytest.raises(ClusterError, match="SQLite"):
            check_workers(client, Settings(home=tmp_path), {})


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tls://127.0.0.1:9", "no certificates"),
        ("tcp://127.0.0.1:port", "no Dask scheduler answers at tcp://127.0.0.1:port"),
        ("127.0.0.1", "missing port"),
        ("http://127.0.0.1:9", "unknown address scheme"),
    ],
)
def test_an_address_that_is_none_is_said_and_leaves_nothing_running(address, said):
    before = threading.active_count()
    with pytest.raises(ClusterError, match=said), connected(address):
        pass
    assert threading.active_count() <= before


def test_the_benchmark_without_dask_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)  # as where it cannot be imported
    answer = CliRunner().invoke(app, ["bench-dask"])
    assert answer.exit_code == ExitCode.USAGE
    assert "ew-pipeline[dask]" in answer.stderr


def test_factors_of_any_size_travel_without_advice(cluster):
    with warnings.catch_warnings(), connected(cluster) as client:
        warnings.simplefilter("error")
        assert client.submit(len, np.arange(3_000_000)).result(60) == 3_000_000


def test_a_cluster_that_one_segment_does_not_need_is_said_not_to_be_asked(tmp_path, capsys):
    tables = write_chain(tmp_path / "chain")
    settings = Settings(home=tmp_path / "home", dask_address="tcp://127.0.0.1:9")
    request = make_request(settings, week=LAST_WEEK, changes=QUICK, **sources(tables))
    run_week(request, settings, Steps(), Untold())
    assert "the cluster at tcp://127.0.0.1:9 is not needed" in capsys.readouterr().err
