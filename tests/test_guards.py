"""The two guards of the tests: nothing is started without a mark, nothing is dear without a reason."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from support import cpu
from support.started import WATCH, describe


def taken() -> list[str]:
    """What the watch has seen of this test so far; forgotten, so that the test passes."""
    told, WATCH.started = WATCH.started, []
    assert told is not None
    return told


def start_process():
    subprocess.run([sys.executable, "-c", ""], check=True)


def spawn():
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()


def bind():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))


@pytest.mark.parametrize(
    ("start", "words"), [(start_process, "process: "), (spawn, "process: "), (bind, "port bound: ")]
)
def test_what_an_unmarked_test_starts_is_seen_with_its_place(start, words):
    start()
    seen = taken()
    assert seen
    assert all(line.startswith(words) and "test_guards.py" in line for line in seen)


def test_it_fails_with_what_was_started_and_what_to_do():
    bind()
    with pytest.raises(pytest.fail.Exception, match=r"port bound: .*\n.*Mark it as one of flow, server"):
        WATCH.fail()
    taken()


def test_a_thread_of_an_earlier_test_may_go_on():
    go, done = threading.Event(), threading.Event()

    def later():
        go.wait(10)
        bind()
        done.set()

    thread = threading.Thread(target=later)
    thread.start()
    WATCH.begin()  # as the next test does
    go.set()
    assert done.wait(10)
    thread.join()
    assert WATCH.started == []


def test_questions_to_the_machine_and_sockets_without_a_port_are_no_matter():
    assert describe("subprocess.Popen", ("/usr/bin/git", ["git", "status"], None, None)) is None
    with socket.socket(socket.AF_UNIX) as one:
        assert describe("socket.bind", (one, "name")) is None


def item(nodeid="tests/x.py::test", slow=False):
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: slow and name == "slow")


def test_more_than_ten_cpu_seconds_need_a_reason():
    assert cpu.too_dear(9.9, 10.0, item()) is None
    assert "11.0 CPU seconds, more than 10" in cpu.too_dear(11.0, 10.0, item())
    assert cpu.too_dear(11.0, 10.0, item(slow=True)) is None
    assert cpu.too_dear(11.0, 10.0, item("tests/trials/x.py::test")) is None


def test_the_first_marked_test_of_a_process_may_take_more():
    seconds = cpu.Seconds()
    assert [seconds.allowed(marked) for marked in (False, True, True, False)] == [20.0, 30.0, 20.0, 20.0]
