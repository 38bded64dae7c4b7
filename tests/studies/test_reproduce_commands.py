"""`ew reproduce …` end to end on instances small enough for a test."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.studies.ensemble import EnsembleSettings
from ew_pipeline.studies.experiments import regret, robustness
from ew_pipeline.studies.experiments.instance import InstanceTask
from ew_pipeline.studies.experiments.requirements import ROBUSTNESS, TABLE_1
from ew_pipeline.studies.experiments.summary import MethodSummary

TABLE_1_SMALL = ("table1", "--instances", "3", "--size", "20", "--methods", "variational,ignore")


def ew(*args: str, jobs: str = "0"):
    return CliRunner().invoke(app, ["reproduce", *args, "--jobs", jobs], prog_name="ew")


def json_of(*args: str, jobs: str = "0"):
    result = ew(*args, "--json", jobs=jobs)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def untimed(document):
    """The document without the CPU seconds and what is said about them."""
    if isinstance(document, dict):
        if str(document.get("measure", "")).startswith("cpu"):
            return None
        return {key: untimed(value) for key, value in document.items() if not key.startswith("cpu")}
    return [untimed(item) for item in document] if isinstance(document, list) else document


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[dict, Path]:
    """A small study, and the folder of its records."""
    folder = tmp_path_factory.mktemp("finished")
    return json_of(*TABLE_1_SMALL, "--out", str(folder)), folder


def test_table1_prints_json_with_every_figure_of_every_method():
    document = json_of("table1", "--instances", "2", "--size", "20", "--methods", "default,ignore")
    assert (document["experiment"], document["instances"], document["seed"]) == ("table1", 2, 0)
    assert list(document["methods"]) == ["default", "ignore"]
    for summary in document["methods"].values():
        assert set(summary) == set(MethodSummary.__dataclass_fields__)
        assert summary["instances"] == 2
    assert [row["gamma"] for row in document["algorithm2"]] == [0.05, 0.1]
    assert {row["measure"] for row in document["requirements"]} == {r.measure for r in TABLE_1}
    assert sum(row["count"] for row in document["calibration"]) > 0
    assert document["paper"][0]["regret"] == 0.06


def test_table1_prints_tables_for_people_and_progress_on_stderr(finished):
    _, folder = finished
    result = ew(*TABLE_1_SMALL, "--out", str(folder))
    assert result.exit_code == 0, result.stderr
    for words in ("Table 1: 3 instances, n = m = 20", "mean regret", "variational", "Stable PCP", "1099.0"):
        assert words in result.stdout
    assert "elapsed" not in result.stdout
    assert (folder / "table1.png").read_bytes().startswith(b"\x89PNG")


def test_a_study_that_was_stopped_ends_with_the_same_summary(finished, tmp_path):
    whole, folder = finished
    log = shutil.copy(folder / "instances.jsonl", tmp_path / "instances.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    assert len(lines) == 6
    log.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    assert untimed(json_of(*TABLE_1_SMALL, "--out", str(tmp_path))) == untimed(whole)
    assert log.read_bytes().splitlines(keepends=True)[:3] == lines[:3]


def test_a_finished_study_is_only_summarised_again(finished, monkeypatch):
    whole, folder = finished

    def refuse(self):
        raise AssertionError("an instance was drawn")

    monkeypatch.setattr(InstanceTask, "draw", refuse)
    assert json_of(*TABLE_1_SMALL, "--out", str(folder)) == whole


def test_seeds_reproduce_and_differ(finished):
    (first, _), again = finished, json_of(*TABLE_1_SMALL)
    other = json_of(*TABLE_1_SMALL, "--seed", "5")
    assert untimed(first) == untimed(again)
    assert other["methods"]["ignore"]["regret"] != first["methods"]["ignore"]["regret"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("table1", "--methods", "default,magic"), "unknown method: magic"),
        (("robustness", "--cases", "sunny"), "unknown case: sunny"),
        (("regret", "--sizes", "fifty"), "--sizes is 'fifty'"),
        (("chain", "--weeks", "2"), "--weeks is '2'"),
    ],
)
def test_a_wrong_choice_is_a_usage_error_that_lists_the_right_ones(args, words):
    result = ew(*args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Next:" in result.stderr


def test_robustness_prints_requirements_beside_what_was_measured():
    document = json_of(
        "robustness", "--instances", "1", "--cases", "sparse-.05,null-poisson", "--method", "ignore"
    )
    sparse, null = document["cases"]["sparse-.05"], document["cases"]["null-poisson"]
    assert [(r["measure"], r["high"], r["met"]) for r in sparse["requirements"]] == [
        ("above_ignore", -0.03, False),
        ("above_ignore_worst", 0.02, True),
    ]
    assert [(r["measure"], r["high"], r["met"]) for r in null["requirements"]] == [("flagged", 0.003, True)]


def test_robustness_marks_what_fails():
    result = ew("robustness", "--instances", "1", "--cases", "nb-2,zero", "--method", "ignore")
    assert result.exit_code == 0
    assert "FAIL" in result.stdout
    assert "nb-2: cost − Ignore" in result.stdout


def test_every_requirement_belongs_to_a_case_and_every_case_has_one():
    assert {requirement.case for requirement in ROBUSTNESS} == set(robustness.CASES)


def test_the_cases_are_what_they_are_called():
    cases = robustness.CASES
    assert cases["wide-30x300"] == EnsembleSettings(n=30, m=300, observed_share=0.23)
    assert [cases[name].anomaly_rate for name in ("null-poisson", "null-nb-5", "null-nb-20")] == [0.0] * 3
    assert (cases["nb-2"].dispersion_size, cases["nb-5"].dispersion_size) == (2.0, 5.0)
    assert (cases["stores-out"].anomalies, cases["skus-out"].anomalies) == ("store", "sku")


def test_regret_by_size_has_a_slope_and_a_picture(tmp_path: Path):
    document = json_of(
        "regret", "--sizes", "12,24", "--instances", "2", "--method", "ignore", "--out", str(tmp_path)
    )
    assert list(document["sizes"]) == ["12", "24"]
    regrets = [size["regret"] for size in document["sizes"].values()]
    assert document["slope"] == pytest.approx(math.log2(regrets[1] / regrets[0]))
    assert [r["met"] for r in document["requirements"]] == [document["slope"] <= -0.9, None]
    assert (tmp_path / "regret.png").read_bytes().startswith(b"\x89PNG")


def test_large_sizes_get_fewer_instances():
    assert [regret.count_at(n, 10) for n in (50, 200, 400, 800)] == [10, 10, 5, 3]
    assert regret.count_at(800, 2) == 2
