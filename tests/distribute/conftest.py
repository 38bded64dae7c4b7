"""A cluster for each module, of as many workers as its ``WORKERS`` says (2), made whole before each test."""

import pytest
from block_week import make_sales, write_files
from local_cluster import local_cluster, whole


@pytest.fixture(scope="module")
def sales():
    return make_sales()


@pytest.fixture(scope="module")
def partitions(sales, tmp_path_factory):
    return write_files(sales, tmp_path_factory.mktemp("partitions"))


@pytest.fixture(scope="module")
def workers(request):
    return getattr(request.module, "WORKERS", 2)


@pytest.fixture(scope="module")
def running(workers):
    with local_cluster(workers) as cluster:
        yield cluster


@pytest.fixture
def cluster(running, workers):
    return whole(running, workers)
