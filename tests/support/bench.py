"""`ew bench` on an instance that takes no time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.studies.bench import command


def bench_document(monkeypatch: pytest.MonkeyPatch, *, instances: int, repeats: int) -> dict[str, Any]:
    """What `ew bench --json` prints with one contender, our default at a fixed rank."""
    one = tuple(each for each in command.CONTENDERS if each.name == "ours: default, fixed rank")
    monkeypatch.setattr(command, "CONTENDERS", one)
    size = ["--observed", "3e4", "--rows", "500", "--cols", "300", "--rank", "2", "--growth"]
    turns = ["--instances", str(instances), "--repeats", str(repeats)]
    document: dict[str, Any] = json.loads(
        CliRunner().invoke(app, ["bench", *size, "", *turns, "--json"]).stdout
    )
    return document
