"""The study of drift on a simulated chain of shops."""

from __future__ import annotations

import json

import typer
from typer.testing import CliRunner

from ew_pipeline.studies.drift.command import drift


def test_the_command_studies_retail_weeks_with_a_level_from_history(tmp_path):
    app = typer.Typer()
    app.command()(drift)
    size = ["--simulations=1", "--stores=20", "--skus=60", "--baseline=9", "--after=2", "--weeks=20"]
    asked = [
        *size,
        "--world=retail",
        "--mode=fast",
        "--scenarios=assortment",
        "--drawn=0",
        "--jobs=0",
        "--json",
    ]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert (answer["world"], answer["fits"]) == ("retail", 11)
    assert answer["chain"]["size"] == 30.0
    assert answer["changes"]["assortment"]["verdicts"] == {"composition change": 1}
