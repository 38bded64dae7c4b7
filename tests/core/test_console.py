import json
from dataclasses import dataclass

import numpy as np
import pytest

from ew_pipeline.core.console import ExitCode, emit_json, fail, step
from ew_pipeline.core.errors import DataError, EwError, FitError, UsageError


@dataclass(frozen=True)
class Result:
    name: str
    values: np.ndarray
    share: float


def test_every_exit_code_is_documented_with_its_number():
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4]
    for code in ExitCode:
        assert f"{code.value} {code.name}\n" in ExitCode.__doc__


def test_errors_end_with_the_exit_code_of_their_kind():
    assert DataError.exit_code == ExitCode.DATA_REJECTED
    assert UsageError.exit_code == ExitCode.USAGE
    assert FitError.exit_code == EwError.exit_code == ExitCode.FAILED


def test_a_step_is_one_aligned_line_on_stderr(capsys):
    with step("Read the sales") as reading:
        reading.detail = "12 rows"
    with step("Fit"):
        pass
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == ""
    assert first.startswith("ok      Read the sales ")
    assert first.endswith(" s  12 rows")
    assert first.index(" s  12 rows") == second.rindex(" s")


def test_a_failed_step_says_so_and_lets_the_error_through(capsys):
    with pytest.raises(FitError), step("Fit"):
        raise FitError("no answer")
    assert capsys.readouterr().err.startswith("failed  Fit ")


def test_failure_names_the_error_and_the_next_step_unwrapped_and_unformatted(capsys):
    message = "412 rows [red]have[/red] negative units " + "x" * 200
    fail(DataError(message, "fix them and run again"))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"Error: {message}", "Next:  fix them and run again"]


def test_failure_without_a_next_step_is_one_line(capsys):
    fail(EwError("broken"))
    assert capsys.readouterr().err.splitlines() == ["Error: broken"]


def test_json_goes_to_stdout_with_arrays_as_lists_and_nan_as_null(capsys):
    result = Result("[bold]", np.array([1.5, np.nan]), float("inf"))
    emit_json({"result": result, 7: [np.int64(3), True], "long": "y" * 300})
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "result": {"name": "[bold]", "values": [1.5, None], "share": None},
        "7": [3, True],
        "long": "y" * 300,
    }
