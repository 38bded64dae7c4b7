"""The studies share their records, and what they found becomes a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.studies.experiments.instance import InstanceTask
from ew_pipeline.studies.experiments.page import SECTIONS

SMALL = ("--size", "10", "--jobs", "0")
METHODS = ("--methods", "default,paper-practical,paper-oracle,drmf,stable-pcp,rmc,ignore")
AUC = ("auc", "--instances", "2", "--roc-instances", "1", *METHODS, *SMALL)
LARGEST_PICTURE = 60_000


def ew(*args: str):
    result = CliRunner().invoke(app, ["reproduce", *args], prog_name="ew")
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> Path:
    """table1, and two studies that meet the same instances."""
    folder = tmp_path_factory.mktemp("studies")
    ew("table1", "--instances", "2", *METHODS, *SMALL, "--out", str(folder))
    ew(*AUC, "--out", str(folder))
    ew("limits", "--instances", "10", "--methods", "paper-oracle", *SMALL, "--out", str(folder))
    return folder


@pytest.fixture(scope="module")
def page(studies) -> str:
    ew("page", "--out", str(studies), "--to", str(studies / "docs" / "experiments.md"))
    return (studies / "docs" / "experiments.md").read_text()


def test_studies_of_the_same_instances_fit_them_once(studies, monkeypatch):
    def refuse(self):
        raise AssertionError("an instance was drawn")

    monkeypatch.setattr(InstanceTask, "draw", refuse)
    methods = ("--methods", "default,stable-pcp", "--out", str(studies))
    table = json.loads(ew("table1", "--instances", "2", *methods, *SMALL, "--json"))
    assert table["methods"]["default"]["instances"] == 2
    scatter = json.loads(ew("auc", "--instances", "2", "--roc-instances", "1", *methods, *SMALL, "--json"))
    gap = table["methods"]["stable-pcp"]["auc_gap"]
    assert scatter["ensemble"]["stable-pcp"]["gap"] == pytest.approx(gap)


def test_auc_names_every_method_and_has_the_ideal_curve_above_them(studies):
    text = ew(*AUC, "--out", str(studies))
    assert "EW outperforms stable-pcp uniformly" in text
    assert re.search(r"^ +ideal +", text, re.MULTILINE)
    assert (studies / "auc.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_has_the_figures_the_printed_ones_the_differences_and_how_it_was_made(studies, page):
    figures = json.loads((studies / "table1.report.json").read_text())["figures"]
    regret = figures["methods"]["default"]["regret"]
    assert f"| default | {regret:.4f} |" in page
    assert f"the default loses {regret:.4f}" in page
    assert "| printed: RMC | 0.90 |" in page
    assert "What differs from the paper:" in page
    assert "with `ew reproduce table1 --instances 2 --seed 0 --size 10 --methods default," in page
    assert re.search(r"Made on \d{4}-\d\d-\d\d by version \d", page)


def test_the_page_says_what_was_not_run(page):
    (line,) = re.findall(r"^Not run for this page: (.*)\.$", page, re.MULTILINE)
    assert line == "`ew reproduce regret`, `ew reproduce robustness`, `ew reproduce table2`"


def test_pictures_lie_beside_the_page_and_are_small(studies, page):
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
    assert pictures == ["experiments-table1.png", "experiments-auc.png", "experiments-limits.png"]
    for name in pictures:
        assert 0 < (studies / "docs" / name).stat().st_size < LARGEST_PICTURE


def test_every_table_of_the_page_has_as_many_cells_in_each_row_as_in_its_head(page):
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(tables) >= 7
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table


def test_a_folder_without_studies_and_a_broken_report_are_refused(tmp_path):
    def refused(*args: str) -> str:
        result = CliRunner().invoke(app, ["reproduce", "page", *args], prog_name="ew")
        assert result.exit_code == 2
        return result.stderr

    assert "holds no study" in refused("--out", str(tmp_path))
    (tmp_path / "table1.report.json").write_text('{"figures": 1}')
    assert "is no report of a study" in refused("--out", str(tmp_path))


def test_the_kept_page_of_the_repository_is_one_that_this_code_makes():
    place = Path(__file__).resolve().parents[2] / "infra" / "docs" / "experiments.md"
    text = place.read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings
    assert headings == [heading for heading, _ in SECTIONS.values() if heading in headings]
    for name in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert (place.parent / name).stat().st_size < LARGEST_PICTURE
