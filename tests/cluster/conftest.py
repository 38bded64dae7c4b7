"""One cluster for all modules, made whole before each test and ended after the last one of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from distributed import LocalCluster
from support.block_week import make_sales, write_files
from support.local_cluster import local_cluster, whole

WORKERS = 3


class Shared:
    """Started when it is first asked for."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._cluster: LocalCluster | None = None

    def get(self) -> LocalCluster:
        if self._cluster is None:
            self._cluster = self._stack.enter_context(local_cluster(WORKERS))
        return self._cluster

    def end(self) -> None:
        self._cluster = None
        self._stack.close()


SHARED = Shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A cluster that nobody asks takes a processor's time all the same."""
    result = yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        SHARED.end()
    return result


@pytest.fixture(scope="session")
def sales():
    return make_sales()


@pytest.fixture(scope="session")
def partitions(sales, tmp_path_factory):
    return write_files(sales, tmp_path_factory.mktemp("partitions"))


@pytest.fixture
def cluster():
    return whole(SHARED.get(), WORKERS)


@pytest.fixture(scope="module")
def cluster_of_the_module():
    return whole(SHARED.get(), WORKERS)
