"""The wheel as a retailer has it: what it holds, and that it works without the checkout."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from support.wheel import PACKAGE, ROOT, done, files

pytestmark = pytest.mark.server
STUDIES = PACKAGE / "studies"

# What a wheel loses first, one file of each kind.
NOT_PYTHON = {
    "ew_pipeline/py.typed",
    "ew_pipeline/audit/package_readme.md",
    "ew_pipeline/audit/templates/explain.html.jinja",
    "ew_pipeline/ledger/migrations/script.py.mako",
    "ew_pipeline/outputs/templates/report.html.jinja",
    "ew_pipeline/outputs/templates/script.js",
    "ew_pipeline/outputs/templates/style.css",
    "ew_pipeline/web/templates/weeks.html.jinja",
    "ew_pipeline/_expectations/sales.json",
    "ew_pipeline/_infra/prefect.yaml",
}

PROBE = """
import json, ew_pipeline, flows
from ew_pipeline.cli.studies import has_studies, published_methods
from ew_pipeline.intake.expectations import suites_folder
from ew_pipeline.servers.plan import find_flows
found = find_flows(None)
print(json.dumps({
    "package": ew_pipeline.__file__,
    "flows": flows.__file__,
    "suites": str(suites_folder()),
    "root of the flows": str(found.root),
    "schedule": str(found.file),
    "studies": has_studies(),
    "methods": len(published_methods()),
}))
"""


def test_the_wheel_holds_the_package_without_the_studies_and_nothing_else(wheel):
    wanted = {path.relative_to(ROOT) for path in files(PACKAGE) if not path.is_relative_to(STUDIES)}
    wanted |= {path.relative_to(ROOT) for path in files(ROOT / "flows")}
    wanted |= {Path("ew_pipeline/_expectations", path.name) for path in files(ROOT / "expectations")}
    wanted.add(Path("ew_pipeline/_infra/prefect.yaml"))
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {path.as_posix() for path in wanted}
    assert held >= NOT_PYTHON
    assert any(files(STUDIES))


def test_what_is_imported_is_the_installed_package_and_it_finds_its_files(installed, venv):
    found = json.loads(done(installed("python", "-c", PROBE)).stdout)
    for name in ("package", "flows", "suites", "root of the flows", "schedule"):
        assert Path(found[name]).is_relative_to(venv), name
    assert (found["studies"], found["methods"]) == (False, 0)


def test_the_version_is_printed_without_a_checkout(installed):
    from ew_pipeline import __version__

    assert done(installed("ew", "--version")).stdout == f"ew-pipeline {__version__}\n"


def test_the_doctor_finds_nothing_to_mend(installed):
    answer = json.loads(done(installed("ew", "doctor", "--json")).stdout)
    assert [finding for finding in answer["findings"] if finding["state"] == "fault"] == []
    assert answer["ready"] is True


@pytest.mark.parametrize("words", ["bench", "bench-dask", "convert", "reproduce", "reproduce table1"])
def test_a_study_says_that_it_needs_a_checkout(installed, words):
    # The option is unknown to all: if there are studies, the command ends and measures nothing for minutes.
    answer = installed("ew", *words.split(), "--no-such-option")
    assert answer.returncode == 2
    assert f"`ew {words}" in answer.stderr
    assert "clone the repository" in answer.stderr


def test_studies_are_not_listed_where_there_are_none(installed):
    listed = {line.split()[0] for line in done(installed("ew", "--help")).stdout.splitlines() if line.strip()}
    assert {"demo", "run", "audit", "doctor"} <= listed
    assert not {"bench", "bench-dask", "convert", "reproduce"} & listed


@pytest.mark.slow("two weeks in a process that has imported nothing: 20 s of imports, tracking and fits")
def test_the_demonstration_publishes_a_week_and_its_page(demonstration):
    published = demonstration.printed
    assert published["status"] == "published"
    assert published["verdict"]["found"] > 0
    assert Path(published["report"]).read_text(encoding="utf-8").lstrip().startswith("<!")
