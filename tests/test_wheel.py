"""The wheel, built from this checkout and installed into a venv of its own, as a retailer has it.

The venv takes the requirements from the Python of the tests. Compiled kernels are copied from the checkout:
the installed sources get the times of those they were made of, by which numba knows its files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages

import pytest

pytestmark = pytest.mark.server
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ew_pipeline"
STUDIES = PACKAGE / "studies"
SCRATCH = {"__pycache__", ".mypy_cache", ".ruff_cache"}

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

Installed = Callable[..., "subprocess.CompletedProcess[str]"]


def files(folder: Path) -> Iterator[Path]:
    """All files that are not left there by a tool."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not SCRATCH & set(path.parts):
            yield path


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def done(answer: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert answer.returncode == 0, f"{answer.args} ended with {answer.returncode}:\n{answer.stderr}"
    return answer


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done(run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory) -> Path:
    """The wheel in a venv that reads the requirements where the tests do, but not the editable checkout: of a
    folder that a .pth file names, Python reads no .pth files."""
    folder = tmp_path_factory.mktemp("venv")
    pip_here = find_spec("pip") is not None  # not in a venv that uv has made
    done(run(sys.executable, "-m", "venv", *["--without-pip"] * pip_here, folder))
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python] if pip_here else [python, "-m", "pip"]
    done(run(*pip, "install", "--no-deps", "--no-index", "--no-compile", "--quiet", wheel))
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "requirements.pth").write_text("\n".join(getsitepackages()) + "\n")
    with_kernels(own / "ew_pipeline")
    return folder


def with_kernels(installed: Path) -> None:
    """Copy what numba has compiled for the checkout, so that no kernel is compiled again."""
    for source in files(installed):
        origin = PACKAGE / source.relative_to(installed)
        if source.suffix == ".py" and origin.is_file():
            times = origin.stat()
            os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
            for kept in compiled_in(origin.parent).glob(f"{origin.stem}.*.nb[ic]"):
                place = source.parent / "__pycache__"
                place.mkdir(exist_ok=True)
                shutil.copy2(kept, place)


def compiled_in(folder: Path) -> Path:
    """Where numba keeps what it compiles of the modules in this folder."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        return folder / "__pycache__"
    from numba.core.caching import UserProvidedCacheLocator

    below = UserProvidedCacheLocator.get_suitable_cache_subpath(str(folder / "any.py"))
    return Path(os.environ["NUMBA_CACHE_DIR"], below)


@pytest.fixture(scope="module")
def installed(venv, tmp_path_factory) -> Installed:
    """Run a program of the venv, as somebody who has nothing else: an empty folder, a home not yet there."""
    away = tmp_path_factory.mktemp("away")
    environment = {"PATH": os.environ["PATH"], "HOME": str(away), "EW_HOME": str(away / "home")}
    # Prefect's server alone takes as long as all that is asked here; tests of the flows start it.
    environment |= {"EW_ORCHESTRATE": "false", "EW_THREADS": "1", "COLUMNS": "200"}
    empty = away / "empty"
    empty.mkdir()
    return lambda program, *words: run(venv / "bin" / program, *words, cwd=empty, env=environment)


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
def test_the_demonstration_publishes_a_week_and_its_page(installed, venv):
    published = json.loads(done(installed("ew", "demo", "--json")).stdout)
    assert published["status"] == "published"
    assert published["verdict"]["found"] > 0
    assert Path(published["report"]).read_text(encoding="utf-8").lstrip().startswith("<!")
