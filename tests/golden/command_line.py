"""`ew` in this process: what is imported and compiled is paid for once.

It is found by the name under which it is installed, so no module of the package is named here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import orjson

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
OURS = ("EW_", "MLFLOW_", "PREFECT_")


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it said."""

    exit_code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return orjson.loads(self.out)


@contextlib.contextmanager
def home_at(home: Path, tracked: bool = False) -> Iterator[None]:
    """``EW_HOME``, one thread, no Prefect, MLflow only if ``tracked``; nothing else of the surroundings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    ours = {"EW_HOME": str(home), "EW_THREADS": "1", "EW_ORCHESTRATE": "false", "EW_ACTOR": "retailer"}
    if not tracked:  # MLflow is a view: a week is published without it
        ours |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    with mock.patch.dict(os.environ, {**own, **ours}, clear=True):
        yield


def ew(*arguments: str | Path, expect: int = 0) -> Answer:
    """Call it as a person would; ``expect`` is the exit code."""
    words = ["ew", *map(str, arguments)]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            _command()()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    answer = Answer(code, out.buffer.getvalue(), err.getvalue())
    assert code == expect, f"{' '.join(words)} ended with {code}:\n{answer.err}"
    return answer


def _command() -> Any:
    scripts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts["ew"].partition(":")
    return getattr(importlib.import_module(module), function)
