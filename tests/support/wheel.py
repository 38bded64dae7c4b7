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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from site import getsitepackages
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "ew_pipeline"
SCRATCH = {"__pycache__", ".mypy_cache", ".ruff_cache"}

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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done(run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture(scope="session")
def installed(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Run a program of the venv, as somebody who has nothing else: an empty folder, a home not yet there."""
    away = tmp_path_factory.mktemp("away")
    environment = {"PATH": os.environ["PATH"], "HOME": str(away), "EW_HOME": str(away / "home")}
    # Prefect's server alone takes as long as all that is asked here; tests of the flows start it.
    environment |= {"EW_ORCHESTRATE": "false", "EW_THREADS": "1", "EW_ACTOR": "retailer", "COLUMNS": "200"}
    environment |= {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    empty = away / "empty"
    empty.mkdir()
    return lambda program, *words: run(venv / "bin" / program, *words, cwd=empty, env=environment)


@dataclass(frozen=True)
class Demonstration:
    """What `ew demo` printed, and its home."""

    printed: dict[str, Any]
    home: Path


@pytest.fixture(scope="session")
def demonstration(installed: Installed) -> Demonstration:
    """`ew demo --seed 0` of the installed wheel: the beginning of the golden run, too."""
    printed = json.loads(done(installed("ew", "demo", "--seed", "0", "--json")).stdout)
    return Demonstration(printed, Path(printed["report"]).parents[2])
