"""The import rules: the method stays pure, heavy libraries wait for their use, and importing does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.server
ROOT = Path(__file__).resolve().parent.parent

NOT_IN_THE_METHOD = {
    "dask",
    "distributed",
    "great_expectations",
    "matplotlib",
    "mlflow",
    "pandas",
    "prefect",
    "rich",
    "typer",
}

SERVICES = {"great_expectations", "mlflow", "prefect"}  # seconds each; a room loads them when it uses them

# Asked in this order of one fresh interpreter: each question imports more than the one before.
QUESTIONS = """
import contextlib, importlib, io, json, multiprocessing.process, pkgutil, sys, threading

PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
started = []

def watch(event, arguments):
    if event in PROCESSES:
        started.append(f"{event} {arguments[:2]}")

def told(start):
    def told_start(self):
        started.append(repr(self))
        start(self)
    return told_start

sys.addaudithook(watch)
threading.Thread.start = told(threading.Thread.start)
multiprocessing.process.BaseProcess.start = told(multiprocessing.process.BaseProcess.start)

def libraries():
    return sorted({name.partition(".")[0] for name in sys.modules})

def import_all(name, without=()):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__") and not module.name.startswith(without):
            importlib.import_module(module.name)

answers = {}
printed = io.StringIO()
with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
    import ew_pipeline
    answers["package"] = libraries()
    import_all("ew_pipeline.method")
    answers["method"] = libraries()
    from ew_pipeline import *
    answers["exported"] = ew_pipeline.__all__
    import_all("ew_pipeline", ("ew_pipeline.intake.gx_whole_numbers", "ew_pipeline.studies"))
    answers["rooms"] = libraries()
    answers["modules"] = sorted(name for name in sys.modules if name.startswith("ew_pipeline."))
    import_all("ew_pipeline")
answers["started"] = started
answers["printed"] = printed.getvalue()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> dict[str, Any]:
    """What an interpreter answers that starts in an empty working folder, which is also its home."""
    home = tmp_path_factory.mktemp("home")
    environment = {key: os.environ[key] for key in ("PATH", "NUMBA_CACHE_DIR") if key in os.environ}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", QUESTIONS],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    # What is written past Python's streams, by a library in C, comes before the answers.
    *before, answers = answer.stdout.splitlines()
    found: dict[str, Any] = json.loads(answers)
    found["printed"] += answer.stderr + "".join(before)
    found["files"] = [str(path.relative_to(home)) for path in home.rglob("*")]
    return found


def test_the_method_imports_only_numeric_libraries(fresh):
    assert not NOT_IN_THE_METHOD & set(fresh["method"])


def test_no_room_loads_a_service_before_it_is_used(fresh):
    """Left out: `gx_whole_numbers`, which is of Great Expectations, and `flows/`, which is of Prefect."""
    modules = set(fresh["modules"])
    assert {f"ew_pipeline.{name}" for name in ("cli.up", "method.factors", "tracking.worker")} <= modules
    assert "ew_pipeline.studies.ensemble" not in modules  # a study may load what it likes
    assert not SERVICES & set(fresh["rooms"])


def test_importing_every_module_starts_no_process_and_no_thread(fresh):
    assert fresh["started"] == []


def test_importing_every_module_prints_nothing_and_leaves_no_files(fresh):
    assert fresh["printed"] == ""
    assert fresh["files"] == []


def test_importing_the_package_loads_no_library(fresh):
    assert not {"numba", "numpy", "pandas", "scipy"} & set(fresh["package"])


def test_every_exported_name_can_be_imported(fresh):
    assert fresh["exported"]


def test_an_unknown_name_is_an_attribute_error():
    import ew_pipeline

    with pytest.raises(AttributeError, match="no attribute 'SalesMatrices'"):
        _ = ew_pipeline.SalesMatrices
