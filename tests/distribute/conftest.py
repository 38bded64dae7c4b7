"""One cluster of three workers for all modules, made whole before each test."""

import pytest
from block_week import make_sales, write_files
from local_cluster import local_cluster, whole

WORKERS = 3


@pytest.fixture(scope="session")
def sales():
    return make_sales()


@pytest.fixture(scope="session")
def partitions(sales, tmp_path_factory):
    return write_files(sales, tmp_path_factory.mktemp("partitions"))


@pytest.fixture(scope="session")
def running():
    with local_cluster(WORKERS) as cluster:
        yield cluster


@pytest.fixture
def cluster(running):
    return whole(running, WORKERS)
