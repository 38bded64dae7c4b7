"""The suites a person can read, and what they find in a frame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.schema import TABLES
from ew_pipeline.intake import expectations
from ew_pipeline.intake.contract import validate_table
from ew_pipeline.intake.expectations import Validator

ROOT = Path(__file__).resolve().parents[2]
# Made by the reader before the suite sees the table; each suite says so.
MADE = {"copies", "store_listed", "first_readable", "last_readable", "in_order"}

CHECKS = pd.DataFrame(
    {
        "store_id": ["A", "A", "B"],
        "sku_id": ["1", "2", "1"],
        "week": "2026-W34",
        "outcome": ["confirmed", "healthy", "not_checked"],
        "source": ["flag", "random", None],
    }
)
FLAGS = pd.DataFrame(
    {
        "store_id": ["A", "B"],
        "sku_id": ["1", "1"],
        "week": "2026-W34",
        "segment": "all",
        "units": [0, 1],
        "expected_units": [6.2, 9.0],
        "anomaly_probability": [0.9, 1.0],
        "cost_false_alarm": 1.0,
        "cost_missed": [3.0, 4.0],
        "threshold": [0.75, 0.8],
        "expected_saving": [2.6, 4.0],
        "store_rank": [1, 1],
        "reasons": "zero_sales",
    }
)


@pytest.fixture(scope="module")
def validator() -> Validator:
    return Validator()


@pytest.mark.parametrize("name", TABLES)
def test_a_suite_names_columns_of_the_schema_and_asks_for_the_required_ones(name):
    suite = expectations.load_suite(name)
    asked = {
        line.configuration["kwargs"]["column"] for line in suite.only("expect_column_to_exist").expectations
    }
    assert asked == set(TABLES[name].required)
    about = json.loads((ROOT / "expectations" / f"{name}.json").read_text())["meta"]["about"]
    made = {line.column for line in suite.expectations} - set(TABLES[name].names) - {None}
    assert made <= MADE
    assert all(column in about for column in made)


@pytest.mark.parametrize("name", TABLES)
def test_every_expectation_is_a_sentence_with_a_reason_of_its_own(name):
    lines = expectations.load_suite(name).expectations
    assert all(line.words[-1] == "." and len(line.words.split()) > 3 for line in lines)
    assert len({line.reason for line in lines}) == len(lines)
    assert all("id" not in line.configuration for line in lines)


def test_every_suite_has_a_table():
    assert {path.stem for path in (ROOT / "expectations").glob("*.json")} == set(TABLES)


def test_an_unknown_table_is_refused():
    with pytest.raises(UsageError, match="no table prices in the contract"):
        expectations.load_suite("prices")


def test_the_suites_are_found_in_an_installed_package(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "ew_pipeline"
    (package / "_expectations").mkdir(parents=True)
    (package / "_expectations" / "sales.json").write_bytes(
        (ROOT / "expectations" / "sales.json").read_bytes()
    )
    monkeypatch.setattr(expectations, "PACKAGE", package)
    assert expectations.suites_folder() == package / "_expectations"
    assert expectations.load_suite("sales").name == "sales"


def test_missing_or_spoilt_suites_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(expectations, "PACKAGE", tmp_path / "ew_pipeline")
    with pytest.raises(EwError, match="the suites of the data contract are missing"):
        expectations.load_suite("sales")
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations" / "sales.json").write_text('{"expectations": [{"type": "x"}]}')
    with pytest.raises(EwError, match=r"sales\.json cannot be used"):
        expectations.load_suite("sales")


@pytest.mark.parametrize(("name", "frame"), [("checks", CHECKS), ("flags", FLAGS)], ids=["checks", "flags"])
def test_a_good_table_has_no_fault(name, frame, validator):
    report = validate_table(name, frame, validator=validator)
    assert report.faults == ()
    assert not report.rejected
    assert report.clean.all()
    assert str(report) == f"{len(frame)} rows of {name}: nothing is wrong"


@pytest.mark.parametrize(
    ("column", "values", "reason", "rows", "rejects"),
    [
        ("outcome", ["confirmed", "gone", "gone"], "unknown outcome", [1, 2], False),
        ("outcome", ["confirmed", None, "healthy"], "no outcome", [1], False),
        ("source", ["flag", "random", "guess"], "unknown source", [2], False),
        ("store_id", ["A", None, "B"], "no store id", [1], False),
        ("sku_id", ["1", "1", "1"], "store, SKU and week more than once", [0, 1], True),
    ],
    ids=["outcome", "no outcome", "source", "no store", "twice"],
)
def test_faults_of_checks(column, values, reason, rows, rejects, validator):
    report = validate_table("checks", CHECKS.assign(**{column: values}), validator=validator)
    (fault,) = report.faults
    assert (fault.reason, fault.rows, fault.rejects) == (reason, len(rows), rejects)
    assert report.faulty["position"].tolist() == rows
    assert np.flatnonzero(~report.clean).tolist() == rows
    assert report.rejected == rejects


def test_examples_name_the_keys(validator):
    report = validate_table(
        "checks", CHECKS.assign(outcome="?", store_id=["A", None, "B"]), validator=validator
    )
    by_reason = {fault.reason: fault.examples for fault in report.faults}
    assert by_reason["unknown outcome"] == ("A/1 in 2026-W34", "?/2 in 2026-W34", "B/1 in 2026-W34")
    assert "3 rows of checks: unknown outcome (A/1 in 2026-W34, " in str(report)


def test_an_odd_index_does_not_shift_positions(validator):
    frame = CHECKS.assign(outcome=["confirmed", "healthy", "gone"]).set_index(np.array([7, 7, 3]))
    assert validate_table("checks", frame, validator=validator).faulty["position"].tolist() == [2]


def test_a_missing_column_rejects(validator):
    report = validate_table("checks", CHECKS.drop(columns="outcome"), validator=validator)
    assert [fault.reason for fault in report.faults] == ["no column outcome"]
    assert report.rejected


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("anomaly_probability", 1.01, "anomaly probability outside 0 to 1"),
        ("units", 0.5, "units with a fraction"),
        ("units", -1.0, "units below zero"),
        ("expected_units", np.inf, "expected units below zero or infinite"),
        ("cost_missed", np.nan, "no cost_missed"),
        ("store_rank", 0, "place in the check list below 1"),
    ],
)
def test_a_fault_of_our_own_flags_rejects_them(column, value, reason, validator):
    report = validate_table("flags", FLAGS.assign(**{column: value}), validator=validator)
    assert [fault.reason for fault in report.faults] == [reason]
    assert report.rejected


def test_no_flags_at_all_is_fine(validator):
    assert validate_table("flags", FLAGS[:0], validator=validator).faults == ()


def test_data_docs_say_the_sentences(tmp_path, validator):
    spoilt = CHECKS.assign(outcome=["confirmed", "healthy", "gone"])
    report = validate_table("checks", spoilt, tmp_path / "data_docs", label="2026-W34", validator=validator)
    assert report.data_docs == tmp_path / "data_docs" / "index.html"
    pages = [path.read_text() for path in (tmp_path / "data_docs" / "validations").rglob("*.html")]
    assert any("The outcome is confirmed, healthy or not_checked." in page for page in pages)


def test_a_validator_leaves_no_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Validator()
    assert list(tmp_path.iterdir()) == []


def beside_spark(folder):
    """pyspark 4 without grpc: importing ``pyspark.sql.connect``, as Great Expectations does, exits."""
    client = folder / "pyspark" / "sql" / "connect"
    client.mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").touch()
    (client.parent / "__init__.py").write_text("class DataFrame: ...")
    (client / "__init__.py").write_text("import sys; sys.exit(0)")


@pytest.mark.server
def test_validation_is_silent_and_leaves_nothing_behind_and_passes_over_a_spark_that_ends_it(tmp_path):
    """A Spark that is whole is left as it is."""
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if find_spec("grpc") is None:
        beside_spark(tmp_path / "spark")
        path.insert(0, str(tmp_path / "spark"))
    here = tmp_path / "here"
    here.mkdir()
    program = (
        "from pathlib import Path\n"
        "import pandas as pd\n"
        "from ew_pipeline.intake.contract import validate_table\n"
        "home = Path.cwd().parent\n"
        "frame = pd.DataFrame({'store_id': ['A'], 'sku_id': '1', 'week': '2026-W34', 'outcome': 'gone'})\n"
        "assert validate_table('checks', frame).faults\n"
        "(home / 'alive').touch()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert (answer.stdout, answer.stderr) == ("", "")
    assert (tmp_path / "alive").exists()
    assert list(here.iterdir()) == []


def test_no_cell_is_hashed_on_the_way_to_a_check(monkeypatch):
    hashed = []
    original = pd.util.hash_pandas_object
    monkeypatch.setattr(pd.util, "hash_pandas_object", lambda *a, **k: hashed.append(a) or original(*a, **k))
    Validator().validate(expectations.load_suite("flags").on(set(FLAGS.columns)), FLAGS, "flags")
    assert hashed == []
