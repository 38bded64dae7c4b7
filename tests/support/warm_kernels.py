"""Compiles the kernels before the tests, once for all workers of xdist: each would compile its own.

Nothing is done when no source of a kernel has changed since the last time, nor for a few tests alone.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support import cpu

import ew_pipeline

PACKAGE = Path(ew_pipeline.__file__).resolve().parent
KERNELS = re.compile(r"^from ew_pipeline\S* import .*\bnjit", re.MULTILINE)
SCRIPT = Path(__file__).with_name("compile_kernels.py")


def sources() -> list[Path]:
    """The files with kernels."""
    found = [path for path in sorted(PACKAGE.rglob("*.py")) if KERNELS.search(path.read_text())]
    assert found, "no file of the package imports njit: nothing would be compiled before the tests"
    return found


def stamp() -> Path:
    """A file that is there when these kernels have been compiled; beside them, so it goes with them."""
    digest = hashlib.sha256(importlib.metadata.version("numba").encode() + sys.version.encode())
    for path in sources():
        digest.update(f"{path}{path.stat().st_mtime_ns}".encode() + path.read_bytes())
    kept = Path(os.environ.get("NUMBA_CACHE_DIR") or PACKAGE / "__pycache__")
    return kept / f"kernels-{digest.hexdigest()[:16]}.of-tests"


def warm() -> float:
    """CPU seconds it took; 0 when nothing was to do."""
    done = stamp()
    if done.exists():
        return 0.0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    print("Compiling kernels once before the tests.", file=sys.stderr)
    command = [sys.executable, "-W", "ignore", str(SCRIPT)]
    halves = [subprocess.Popen([*command, half], env=environment) for half in ("first", "second")]
    failed = [half.args for half in halves if half.wait()]
    if failed:
        raise pytest.UsageError("the kernels could not be compiled before the tests; what was said is above")
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pytest_sessionstart(session):
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    if getattr(config.option, "numprocesses", None) or len(config.args) > 1 or config.args == ["tests"]:
        cpu.in_advance.append(warm())
