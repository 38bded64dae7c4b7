"""The two files of a saved model: written whole or not at all, and refused by name when they were changed.

Each array is kept in the narrowest type that holds all of its numbers exactly, and once where two names stand
for equal ones: of a national chain, 230 MB instead of 490. Read back, every array has its own type again.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.provenance import canonical_hash, file_hash

FORMAT = 2
OLD_FORMATS = (1,)  # every array as it is, under its own name
DESCRIPTION = "model.json"
ARRAYS = "arrays.npz"
BEGINNING_OF_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # a clock in the file would make equal models differ
NARROW = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32)  # the narrowest first
CHUNK = 1 << 16  # numbers that are compared at a time, in a near cache
Content = tuple[str, tuple[int, ...], bytes]


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, str]]:
    """As ``numpy.savez`` does it, without the time of day. Not compressed: probabilities hardly shrink.

    Returns for each array under which name it is kept, and its own type.
    """
    part = path.with_name(f".{path.name}.part")
    kept_as: dict[Content, str] = {}
    found = {}
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            known = kept_as.setdefault(_content(array), name)
            found[name] = {"kept_as": known, "type": array.dtype.str}
            if known != name:
                continue
            entry = zipfile.ZipInfo(f"{name}.npy", BEGINNING_OF_ZIP_TIME)
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _narrowed(array), allow_pickle=False)
    _settle(part, path)
    return found


def _content(array: NDArray[Any]) -> Content:
    """What two arrays share that are equal bit by bit; whether they are one in memory is chance."""
    return array.dtype.str, array.shape, hashlib.sha256(array.data).digest()


def _narrowed(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        holds = (kind for kind in NARROW if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
        return array.astype(next(holds, array.dtype), copy=False)
    if array.dtype == np.float64:
        single = np.empty(array.shape, dtype=np.float32)
        flat, narrow = array.reshape(-1), single.reshape(-1)
        with np.errstate(over="ignore"):
            for first in range(0, flat.size, CHUNK):
                some = slice(first, first + CHUNK)
                narrow[some] = flat[some]
                if not np.array_equal(narrow[some], flat[some], equal_nan=True):
                    return array
        return single
    return array


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
    if described.get("format") not in (FORMAT, *OLD_FORMATS):
        raise EwError(
            f"{path} has format {described.get('format')}; this version reads up to format {FORMAT}.",
            'use the version of ew-pipeline that wrote it: see "versions" in the file.',
        )
    if canonical_hash({k: v for k, v in described.items() if k != "sha256"}) != described["sha256"]:
        refuse(path, "was changed after it was written")
    return described


def read_arrays(path: Path, described: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    try:
        if file_hash(path) != described["arrays"]["sha256"]:
            refuse(path, f"is not the file that {DESCRIPTION} was written with")
        names = described["arrays"]["names"]
        with np.load(path, allow_pickle=False) as archive:
            if described["format"] in OLD_FORMATS:
                arrays = {name: archive[name] for name in names}
            else:
                arrays = _widened(archive, names)
    except FileNotFoundError as error:
        refuse(path, "is missing", error)
    except OSError as error:
        refuse(path, f"cannot be read ({error.strerror or error})", error)
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        refuse(path, f"does not hold the arrays of a model ({error})", error)
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def _widened(archive: Any, names: Mapping[str, Mapping[str, str]]) -> dict[str, NDArray[Any]]:
    kept = {name: archive[name].astype(of["type"]) for name, of in names.items() if of["kept_as"] == name}
    return {name: kept[of["kept_as"]] for name, of in names.items()}


def refuse(path: Path, what: str, cause: Exception | None = None) -> NoReturn:
    raise EwError(
        f"{path} {what}.", "restore the run's folder from a copy, or run the week again."
    ) from cause
