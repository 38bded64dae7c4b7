"""A list per store: files in the folder ``check_list/``, or with very many stores an archive of that folder.

Nobody opens a folder of seventy thousand files, and making, hashing and copying them took half of a national
week's report and publication. ``check_list.zip`` holds the same lists under the same names, so unpacking it
gives the folder; `ew flags --week W --store S` gives one store's flags from the ledger either way.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

FOLDER, ARCHIVE = "check_list", "check_list.zip"
MOST_FILES = 5_000  # in a folder that people look into
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?<!\.)")
TAGGED_NAME = re.compile(r".*-[0-9a-f]{12}")
DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # not files on Windows
READABLE = 0o644 << 16  # a file's mode, where an archive keeps it


def write_store_lists(folder: Path, sheets: Iterable[tuple[str, bytes]], stores: int) -> Path:
    """Write name and content of each of ``stores`` lists; where they are.

    Made anew: a store that has nothing to check any more keeps no stale list.
    """
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    (folder / ARCHIVE).unlink(missing_ok=True)
    if archived(stores):
        (folder / ARCHIVE).write_bytes(_packed(sheets))
        return folder / ARCHIVE
    (folder / FOLDER).mkdir(parents=True)
    for name, content in sheets:
        (folder / FOLDER / name).write_bytes(content)
    return folder / FOLDER


def _packed(sheets: Iterable[tuple[str, bytes]]) -> bytes:
    """Not compressed: the lists are short. Without times: the same week gives the same bytes."""
    packed = io.BytesIO()  # in memory: in a file, each member would be sought and flushed
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for name, content in sheets:
            member = ZipInfo(f"{FOLDER}/{name}")
            member.external_attr = READABLE
            archive.writestr(member, content)
    return packed.getvalue()


def store_lists_in(folder: Path) -> str:
    """What the lists in a folder are called; empty when there are none."""
    found = (name for name in (ARCHIVE, f"{FOLDER}/") if (folder / name).exists())
    return next(found, "")


def archived(stores: int) -> bool:
    """Whether so many stores' lists are in an archive."""
    return stores > MOST_FILES


def file_names(stores: Iterable[str]) -> dict[str, str]:
    """A file name per store that every file system takes; no two stores share one, also where case is lost.

    A plain id is its own name. Any other gets its readable part and a piece of its hash.
    """
    ids = [str(store) for store in stores]
    lowered = Counter(store.lower() for store in ids)
    return {store: f"{store if _plain(store, lowered) else _tagged(store)}.csv" for store in ids}


def _plain(store: str, lowered: Counter[str]) -> bool:
    if store.isalnum() and store.isascii() and 4 < len(store) <= 64:  # most are; devices have shorter names
        return lowered[store.lower()] == 1
    # An id that looks tagged could meet another's tag, so it is tagged itself.
    looks_odd = TAGGED_NAME.fullmatch(store) or DEVICE_NAME.fullmatch(store)
    return PLAIN_NAME.fullmatch(store) is not None and not looks_odd and lowered[store.lower()] == 1


def _tagged(store: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_]+", "_", store).strip("_")[:40]
    return f"{readable or 'store'}-{hashlib.sha256(store.encode()).hexdigest()[:12]}"
