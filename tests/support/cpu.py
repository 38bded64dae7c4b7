"""CPU seconds: of each test, of the whole run, and a limit for one test.

CPU and not wall time, because wall time depends on the neighbours. Processes that a test starts are counted
with it, those that go on after it as far as they have got.
"""

from __future__ import annotations

import os
import resource
from collections import Counter

import psutil
import pytest
from support.started import MARKS

LIMIT = 20.0  # twice what a test should need: a loaded machine takes more CPU for the same work
FIRST = 10.0  # more, for the first in a process that imports Prefect, MLflow and so on, or runs a week
TELL = 10


def own() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def of_the_living() -> float:
    """Of the children that go on, theirs included."""
    seconds = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            seconds += sum(child.cpu_times()[:4])  # user and system, its own and of its ended children
        except psutil.Error:
            continue
    return seconds


class Seconds:
    """What this process has counted: a worker of xdist, or the one process of a run without."""

    def __init__(self) -> None:
        self.shared = 0.0  # by fixtures of more than one test, within the test at hand
        self.first = True

    def allowed(self, marked: bool) -> float:
        first, self.first = self.first and marked, self.first and not marked
        return LIMIT + FIRST * first


SECONDS = Seconds()
dearest: Counter[str] = Counter()
of_workers: list[float] = []
in_advance: list[float] = []  # kernels that were compiled before the tests, by children


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if fixturedef.scope == "function":
        return (yield)
    before, inner = own(), SECONDS.shared
    try:
        return (yield)
    finally:
        SECONDS.shared = inner + own() - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    SECONDS.shared = 0.0
    marked = any(item.get_closest_marker(mark) for mark in MARKS)
    item.stash[KEY] = (own(), of_the_living() if marked else 0.0, marked)
    return (yield)


KEY = pytest.StashKey[tuple[float, float, bool]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    result = yield
    before, living, marked = item.stash[KEY]
    # A child that ends in between is counted among the living before and the dead after: no less than 0.
    used = max(own() - before + (of_the_living() - living if marked else 0.0), 0.0)
    item.user_properties.append(("cpu", used))
    fault = too_dear(used - SECONDS.shared, SECONDS.allowed(marked), item)
    if fault is not None:
        pytest.fail(fault, pytrace=False)
    return result


def too_dear(seconds: float, allowed: float, item: pytest.Item) -> str | None:
    """What is wrong with a test that took so long, fixtures of several tests left out."""
    if seconds <= allowed or item.get_closest_marker("slow") or "/trials/" in item.nodeid:
        return None
    return (
        f"{seconds:.1f} CPU seconds, more than {allowed:.0f}. Make it smaller, move it to tests/trials, "
        'or mark it slow("why it is worth that").'
    )


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        dearest[report.nodeid] += dict(report.user_properties).get("cpu", 0.0)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu"] = own() + of_the_living()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    of_workers.append(getattr(node, "workeroutput", {}).get("cpu", 0.0))


def pytest_terminal_summary(terminalreporter):
    itself = resource.getrusage(resource.RUSAGE_SELF)
    alone = own() + of_the_living()
    with_workers = itself.ru_utime + itself.ru_stime + sum(of_workers) + sum(in_advance)
    total = with_workers if of_workers else alone
    terminalreporter.section("CPU seconds")
    terminalreporter.line(f"{total:.0f} in all, {sum(in_advance):.0f} of them for kernels compiled before")
    for name, seconds in dearest.most_common(TELL if not os.environ.get("EW_TESTS_ALL_CPU") else None):
        terminalreporter.line(f"{seconds:6.1f}  {name}")
