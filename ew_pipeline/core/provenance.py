"""Where a result comes from: hashes of data and settings, version of the code, the libraries beneath."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ew_pipeline
from ew_pipeline._version import __version__

PACKAGE = Path(ew_pipeline.__file__).resolve().parent  # wherever in it this module is
LIBRARIES = (
    "numpy",
    "scipy",
    "numba",
    "pandas",
    "pyarrow",
    "duckdb",
    "prefect",
    "mlflow",
    "great-expectations",
)
BLOCK, FIRST_BLOCK = 1 << 20, 1 << 15  # most files are small, and space for a large block takes longer to get


def canonical_json(value: Any) -> str:
    """One text for one value: keys sorted, no spaces, floats as Python writes them, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_hash(value: Any) -> str:
    """SHA-256 of ``canonical_json``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb", buffering=0) as file:
        block = file.read(FIRST_BLOCK)
        digest = hashlib.sha256(block)
        while block:
            block = file.read(BLOCK)
            digest.update(block)
    return digest.hexdigest()


@cache
def code_version() -> str:
    """``0.1.0+<commit>`` in a checkout, with ``.dirty`` when it has changes; ``0.1.0`` when installed."""
    if not (PACKAGE.parent / ".git").exists():
        return __version__
    commit = _git(PACKAGE, "rev-parse", "--short=12", "HEAD")
    if commit is None:
        return __version__
    changed = _git(PACKAGE, "status", "--porcelain", "--", str(PACKAGE), str(PACKAGE.parent / "flows"))
    return f"{__version__}+{commit}{'.dirty' if changed else ''}"


@cache
def environment() -> dict[str, str]:
    """Python, machine and library versions, and the processor that kernels are compiled for."""
    from ew_pipeline.core.kernels import kernel_target  # numba takes a second to import

    found = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "kernels": kernel_target(),
    }
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
