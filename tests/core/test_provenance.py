"""Hashes and versions."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

import ew_pipeline
from ew_pipeline import __version__
from ew_pipeline.core.provenance import (
    PACKAGE,
    canonical_hash,
    canonical_json,
    code_version,
    environment,
    file_hash,
)

ROOT = Path(__file__).resolve().parents[2]


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical_json({"b": 1.0, "a": [True, None, "é"]}) == '{"a":[true,null,"é"],"b":1.0}'
    assert canonical_hash({"a": 1, "b": 2}) == canonical_hash({"b": 2, "a": 1})
    assert canonical_hash({"a": 1}) != canonical_hash({"a": 1.5})


def test_nan_has_no_canonical_form():
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_file_hash_is_sha256_of_the_bytes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3_000_000)
    assert file_hash(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest()


def test_code_version_names_the_release_and_in_a_checkout_the_commit():
    assert re.fullmatch(rf"{re.escape(__version__)}(\+[0-9a-f]{{12}}(\.dirty)?)?", code_version())


def test_a_checkout_is_recorded_with_its_commit():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    told = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    assert Path(ew_pipeline.__file__).resolve().parent == ROOT / "ew_pipeline" == PACKAGE
    assert code_version().removesuffix(".dirty") == f"{__version__}+{told.stdout[:12]}"


def test_environment_names_python_and_the_numeric_libraries():
    assert {"python", "machine", "numpy", "scipy", "numba"} <= set(environment())
