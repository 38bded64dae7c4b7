"""Errors say what and what next, are the built-in kind one expects, and survive a process boundary."""

from __future__ import annotations

import pickle

import pytest

from ew_pipeline.core.errors import DataError, EwError, FitError, UsageError, name_some


def test_str_shows_the_message_and_the_next_step():
    assert str(DataError("412 rows are negative.", "fix them.")) == "412 rows are negative.\nNext: fix them."
    assert str(DataError("no rows.")) == "no rows."


@pytest.mark.parametrize(
    ("kind", "builtin", "exit_code"),
    [(DataError, ValueError, 1), (UsageError, ValueError, 2), (FitError, RuntimeError, 3)],
)
def test_each_kind_has_its_builtin_base_and_exit_code(kind, builtin, exit_code):
    assert issubclass(kind, (EwError, builtin))
    assert issubclass(kind, builtin)
    assert kind.exit_code == exit_code


def test_an_error_crosses_a_process_boundary_whole():
    error = pickle.loads(pickle.dumps(FitError("flat.", "pool weeks.")))
    assert (error.message, error.next_step, str(error)) == (
        "flat.",
        "pool weeks.",
        "flat.\nNext: pool weeks.",
    )


def test_five_are_named_and_the_rest_counted():
    assert name_some("abcdefg", 7) == "a, b, c, d, e, … +2"
    assert name_some(["a"], 1) == "a"
