"""The two files of a saved model: written whole or not at all, and refused by name when they were changed."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.errors import EwError
from ew_pipeline.provenance import canonical_hash, file_hash

FORMAT = 1
DESCRIPTION = "model.json"
ARRAYS = "arrays.npz"
BEGINNING_OF_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # a clock in the file would make equal models differ


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """As ``numpy.savez`` does it, without the time of day. Not compressed: probabilities hardly shrink."""
    part = path.with_name(f".{path.name}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", BEGINNING_OF_ZIP_TIME)
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(arrays[name]), allow_pickle=False)
    _settle(part, path)


def replace_file(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    _settle(part, path)


def _settle(part: Path, path: Path) -> None:
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)


def read_description(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        refuse(path, "is missing", error)
    except OSError as error:
        refuse(path, f"cannot be read ({error.strerror or error})", error)
    except ValueError as error:  # not JSON, or not text
        refuse(path, "is not JSON", error)
    if not isinstance(described, dict) or "sha256" not in described:
        refuse(path, "does not describe a model")
    if described.get("format") != FORMAT:
        raise EwError(
            f"{path} has format {described.get('format')}; this version reads format {FORMAT}.",
            'use the version of ew-pipeline that wrote it: see "versions" in the file.',
        )
    if canonical_hash({k: v for k, v in described.items() if k != "sha256"}) != described["sha256"]:
        refuse(path, "was changed after it was written")
    return described


def read_arrays(path: Path, described: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    try:
        if file_hash(path) != described["arrays"]["sha256"]:
            refuse(path, f"is not the file that {DESCRIPTION} was written with")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in described["arrays"]["names"]}
    except FileNotFoundError as error:
        refuse(path, "is missing", error)
    except OSError as error:
        refuse(path, f"cannot be read ({error.strerror or error})", error)
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        refuse(path, f"does not hold the arrays of a model ({error})", error)
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def refuse(path: Path, what: str, cause: Exception | None = None) -> NoReturn:
    raise EwError(
        f"{path} {what}.", "restore the run's folder from a copy, or run the week again."
    ) from cause
