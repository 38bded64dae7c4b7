"""How steps are called: timed, said, and tried again only when that may help."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import OperationalError

from ew_pipeline.core import steps as module
from ew_pipeline.core.errors import DataError, EwError
from ew_pipeline.core.steps import Steps, is_transient


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(module, "FIRST_WAIT", 0.0)


def failing(times, error, then="done"):
    """A call that fails so many times, and how often it was made."""
    calls = []

    def call():
        calls.append(1)
        if len(calls) <= times:
            raise error
        return then

    return call, calls


def test_a_step_returns_its_result_and_is_timed():
    steps = Steps(quiet=True)
    assert steps("add", lambda: 1 + 1) == 2
    assert list(steps.timings) == ["add"]
    assert steps.timings["add"] >= 0


def test_a_step_that_is_not_io_is_never_tried_again():
    call, calls = failing(1, ConnectionError("gone"))
    with pytest.raises(ConnectionError):
        Steps(quiet=True)("fit", call)
    assert len(calls) == 1


def test_a_passing_failure_of_io_is_tried_again():
    call, calls = failing(2, OperationalError("select", {}, Exception("locked")))
    assert Steps(quiet=True)("publish", call, retry=True) == "done"
    assert len(calls) == 3


def test_io_is_given_up_after_four_tries():
    call, calls = failing(99, TimeoutError("slow"))
    with pytest.raises(TimeoutError):
        Steps(quiet=True)("publish", call, retry=True)
    assert len(calls) == 4


def test_wrong_data_are_not_tried_again():
    call, calls = failing(1, DataError("negative units"))
    with pytest.raises(DataError):
        Steps(quiet=True)("check", call, retry=True)
    assert len(calls) == 1


def test_an_error_of_ours_is_transient_when_its_cause_is():
    wrapped = EwError("the database is busy")
    wrapped.__cause__ = ConnectionError("reset")
    assert is_transient(wrapped)
    assert not is_transient(EwError("the file is broken"))
    assert not is_transient(ValueError("no"))


def test_a_step_is_one_line_on_stderr_with_its_detail(capfd):
    from ew_pipeline.core.console import messages

    messages.cache_clear()
    Steps()("count the pairs", lambda: 7, detail=lambda n: f"{n} pairs")
    captured = capfd.readouterr()
    messages.cache_clear()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("ok      count the pairs")
    assert line.endswith("7 pairs")
