import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.bench.page import BEGIN, END


def steps(observed, seconds):
    one = {"cpu_s": seconds, "wall_s": seconds, "bytes": 1000}
    return {"observed": observed, "stream_gb_per_cpu_s": 10.0, "passes": {"bins": one}, "peak_gb": 1.0}


@pytest.fixture
def kept(tmp_path):
    held = {"what": "fast beside implicit", "required": ">= 8x", "seen": 8.5, "unit": "x", "passed": True}
    missed = {"what": "memory", "required": "<= 8 GB", "seen": 9.1, "unit": " GB", "passed": False}
    fit = {"cpu_s": 2.5, "wall_s": 1.5, "extra_gb": 0.4, "warm_up_cpu_s": 30.0}
    fits = {
        "requirements": [held],
        "machine": {
            "cores": "2",
            "processor": "a processor",
            "memory": "25 GB",
            "code": "0.1",
            "python": "3.11",
            "cmfrec": "3.5",
        },
        "contenders": {"ours: fast": {**fit, "observed_error": 0.08, "unobserved_error": None}},
        "skipped": {"fancyimpute": "too large"},
        "steps": [steps(10_000, 0.1), steps(1_000_000, 10.0)],
    }
    run = {
        "rows": 1000,
        "weeks": 1,
        "wall_s": 9.0,
        "cpu_s": 12.0,
        "peak_gb": 1.0,
        "stages_s": {"publish": 2.0},
    }
    (tmp_path / "fits.json").write_text(json.dumps(fits))
    (tmp_path / "weeks.json").write_text(json.dumps({"requirements": [missed], "runs": [run]}))
    return [str(tmp_path / "fits.json"), str(tmp_path / "weeks.json")]


def test_tables_and_picture_replace_what_is_between_the_marks(tmp_path, kept):
    page, picture = tmp_path / "speed.md", tmp_path / "docs" / "growth.svg"
    picture.parent.mkdir()
    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    asked = ["bench", "page", *kept, "--into", str(page), "--picture", str(picture)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "stale" not in text
    assert "| fast beside implicit | >= 8x | 8.5x | holds |" in text
    assert "| memory | <= 8 GB | 9.1 GB | **fails** |" in text
    assert "| bins | 0.1 | 10 | 1.00 | 1.00 |" in text
    assert "2 cores of a processor" in text
    assert "cmfrec 3.5." in text
    assert "fancyimpute: not run, too large." in text
    assert "| publish | 2.0 |" in text
    assert "(docs/growth.svg)" in text
    assert picture.exists()
    first = text
    CliRunner().invoke(app, asked)
    assert page.read_text() == first


def test_a_page_without_the_marks_is_left_alone(tmp_path, kept):
    page = tmp_path / "speed.md"
    page.write_text("nothing to replace")
    answer = CliRunner().invoke(app, ["bench", "page", *kept, "--into", str(page)], standalone_mode=False)
    assert isinstance(answer.exception, UsageError)
    assert page.read_text() == "nothing to replace"


def test_make_bench_writes_into_a_page_that_has_the_marks():
    root = Path(__file__).resolve().parents[2]
    (page,) = re.findall(r"--into (\S+)", (root / "Makefile").read_text())
    text = (root / page).read_text()
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    assert page == "infra/docs/speed.md"
