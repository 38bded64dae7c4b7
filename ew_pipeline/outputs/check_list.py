"""The check list: which shelves to walk to this week, for the chain and for each store.

``check_list.csv`` is made for a spreadsheet: rounded, worded, and with an empty ``outcome`` column, so that a
filled-in list is itself the table that ``ew checks import`` reads. JSON and parquet carry the same list with
every digit; in JSON each check has a line of its own, so `grep` finds a store.

Each store has a list too: files in the folder ``check_list/``, or with very many stores an archive of that
folder, ``check_list.zip``, with the same lists under the same names: nobody opens a folder of seventy
thousand files, and making, hashing and copying them takes long.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import math
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, get_args
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.texts import TEXT, coded_column, plain_texts
from ew_pipeline.core.week import Week
from ew_pipeline.decide.reasons import SEPARATOR, codes_and_words
from ew_pipeline.results import WeekResult

FOLDER, ARCHIVE = "check_list", "check_list.zip"
MOST_FILES = 5_000  # lists of stores in a folder that people look into
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?<!\.)")
TAGGED_NAME = re.compile(r".*-[0-9a-f]{12}")
DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # not files on Windows
READABLE = 0o644 << 16  # a file's mode, where an archive keeps it
Format = Literal["csv", "json", "parquet"]
CODED = pa.dictionary(pa.int32(), pa.large_string())
SCHEMA = pa.schema(
    [
        ("rank", pa.int64()),
        ("store_id", pa.string()),
        ("place", pa.int64()),
        ("sku_id", pa.string()),
        ("week", pa.string()),
        ("sold", pa.int64()),
        ("expected", pa.float64()),
        ("probability", pa.float64()),
        ("expected_saving", pa.float64()),
        ("why", pa.string()),
        ("codes", pa.string()),
    ]
)
RANDOM = "RANDOM_CHECK"
RANDOM_WORDS = "drawn at random, to learn what the flags miss"
SHEET = (*SCHEMA.names[:-1], "outcome")  # of the CSV
DECIMALS = {"expected": 2, "probability": 4, "expected_saving": 2}
# What a spreadsheet takes for a formula: at the start of a cell, or of a piece it might split the cell into.
FORMULA = re.compile(r"(?:\A|(?<=[,;|\t\r\n]))(?=\s*[=+\-@＝＋－＠])|\A(?=[\t\r\n])")


def write_check_lists(result: WeekResult, folder: Path) -> dict[str, Path]:
    """Write the week's lists into ``folder``; the paths by kind: csv, json, parquet, and stores.

    ``stores`` is a folder with a list per store, or an archive of it.
    """
    listed = check_list(result.flags, result.week, result.random_checks)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"check_list.{kind}" for kind in get_args(Format)}
    columns = {name: _values(listed, name) for name in listed.column_names}
    lines, of_store = _sheet_lines(columns), defaultdict[str, list[str]](list)
    for store, line in zip(columns["store_id"], lines, strict=True):
        of_store[store].append(line)
    files = file_names(of_store)
    sheets = ((files[store], _sheet(SHEET[1:], its)) for store, its in of_store.items())
    where = _write_store_lists(folder, sheets, len(files))
    ranked = (f"{rank},{line}" for rank, line in zip(columns["rank"], lines, strict=True))
    paths["csv"].write_bytes(_sheet(SHEET, ranked))
    with paths["json"].open("wb") as file:
        file.writelines(_document(result, columns, files))
    pq.write_table(listed.cast(SCHEMA), paths["parquet"])
    return {**paths, "stores": where}


def check_list(flags: pd.DataFrame, week: Week, random: pd.DataFrame | None = None) -> pa.Table:
    """The list of the chain, from flags as in ``schema.FLAGS``, the best to check first. Columns are those of
    ``SCHEMA``, texts as codes (``CODED``).

    ``random``: pairs that were drawn to be checked all the same, in the same columns; they come last, in the
    order of stores and SKUs, and each store's are counted on from its flags.
    """
    if random is not None and len(random):
        flags = pd.concat([flags, _with_places(random, flags)], ignore_index=True)
    reasons = coded_column(flags["reasons"])
    columns = {
        "rank": np.arange(1, len(flags) + 1),
        "store_id": coded_column(flags["store_id"]),
        "place": flags["store_rank"].to_numpy(np.int64),
        "sku_id": coded_column(flags["sku_id"]),
        "week": pa.DictionaryArray.from_arrays(np.zeros(len(flags), np.int32), pa.array([str(week)], TEXT)),
        "sold": flags["units"].to_numpy(np.int64),
        "expected": flags["expected_units"].to_numpy(np.float64),
        "probability": flags["anomaly_probability"].to_numpy(np.float64),
        "expected_saving": flags["expected_saving"].to_numpy(np.float64),
        "why": _reworded(reasons, lambda parts: SEPARATOR.join([words for _, words in parts])),
        "codes": _reworded(reasons, lambda parts: ";".join([code for code, _ in parts])),
    }
    kinds = {field.name: CODED if pa.types.is_string(field.type) else field.type for field in SCHEMA}
    return pa.table({name: pa.array(column).cast(kinds[name]) for name, column in columns.items()})


def store_sheet(listed: pa.Table) -> bytes:
    """The CSV of a store, from its own rows of ``check_list``: the file that ``write_check_lists`` makes."""
    return _sheet(SHEET[1:], _sheet_lines({name: _values(listed, name) for name in listed.column_names}))


def render_flags(frame: pd.DataFrame, format: str) -> bytes:
    """Flags as the ledger keeps them, every column and digit, as ``csv``, ``json`` or ``parquet``."""
    plain = frame.reset_index(drop=True)
    if format == "csv":
        return _guarded(plain).to_csv(index=False, lineterminator="\n").encode()
    if format == "json":
        finite = plain.astype(object).where(plain.notna() & ~plain.isin([math.inf, -math.inf]), None)
        rows = finite.to_dict(orient="records")
        return (json.dumps(rows, ensure_ascii=False, indent=2, default=str) + "\n").encode()
    if format == "parquet":
        buffer = io.BytesIO()
        plain.to_parquet(buffer, index=False)
        return buffer.getvalue()
    raise UsageError(f"there is no format {format!r}.", f"choose one of {', '.join(get_args(Format))}.")


def guard(text: str) -> str:
    """``text`` so that no spreadsheet takes it for a formula: an apostrophe before what would start one."""
    return FORMULA.sub("'", text)


def store_lists_in(folder: Path) -> str:
    """What the lists in a folder are called; empty when there are none."""
    found = (name for name in (ARCHIVE, f"{FOLDER}/") if (folder / name).exists())
    return next(found, "")


def file_names(stores: Iterable[str]) -> dict[str, str]:
    """A file name per store that every file system takes; no two stores share one, also where case is lost.

    A plain id is its own name. Any other gets its readable part and a piece of its hash.
    """
    ids = [str(store) for store in stores]
    lowered = Counter(store.lower() for store in ids)
    return {store: f"{store if _plain(store, lowered) else _tagged(store)}.csv" for store in ids}


def _reworded(
    reasons: pa.DictionaryArray, write: Callable[[list[tuple[str, str]]], str]
) -> pa.DictionaryArray:
    texts = [write(codes_and_words(text)) for text in reasons.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(reasons.indices, pa.array(texts, TEXT))


def _with_places(random: pd.DataFrame, flags: pd.DataFrame) -> pd.DataFrame:
    drawn = random.sort_values(["store_id", "sku_id"], kind="stable")
    store = pd.Series(plain_texts(drawn["store_id"]), index=drawn.index)
    listed = Counter(plain_texts(flags["store_id"]))
    place = store.groupby(store).cumcount() + 1 + store.map(lambda one: listed[one])
    return drawn[list(flags.columns)].assign(store_rank=place, reasons=f"{RANDOM}: {RANDOM_WORDS}")


def _values(listed: pa.Table, name: str) -> list[Any]:
    column = listed[name].combine_chunks()
    if not isinstance(column, pa.DictionaryArray):
        return list(column.to_pylist())
    texts = np.array(column.dictionary.to_pylist(), dtype=object)  # ids and reasons repeat: one object each
    return list(texts[column.indices.to_numpy()])


def _write_store_lists(folder: Path, sheets: Iterable[tuple[str, bytes]], stores: int) -> Path:
    """Write name and content of each of ``stores`` lists; where they are.

    Made anew: a store that has nothing to check any more keeps no stale list.
    """
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    (folder / ARCHIVE).unlink(missing_ok=True)
    if _archived(stores):
        (folder / ARCHIVE).write_bytes(_packed(sheets))
        return folder / ARCHIVE
    (folder / FOLDER).mkdir(parents=True)
    for name, content in sheets:
        (folder / FOLDER / name).write_bytes(content)
    return folder / FOLDER


def _archived(stores: int) -> bool:
    """Whether so many stores' lists are in an archive."""
    return stores > MOST_FILES


def _packed(sheets: Iterable[tuple[str, bytes]]) -> bytes:
    """Not compressed: the lists are short. Without times: the same week gives the same bytes."""
    packed = io.BytesIO()  # in memory: in a file, each member would be sought and flushed
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for name, content in sheets:
            member = ZipInfo(f"{FOLDER}/{name}")
            member.external_attr = READABLE
            archive.writestr(member, content)
    return packed.getvalue()


def _plain(store: str, lowered: Counter[str]) -> bool:
    if store.isalnum() and store.isascii() and 4 < len(store) <= 64:  # most are; devices have shorter names
        return lowered[store.lower()] == 1
    # An id that looks tagged could meet another's tag, so it is tagged itself.
    looks_odd = TAGGED_NAME.fullmatch(store) or DEVICE_NAME.fullmatch(store)
    return PLAIN_NAME.fullmatch(store) is not None and not looks_odd and lowered[store.lower()] == 1


def _tagged(store: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_]+", "_", store).strip("_")[:40]
    return f"{readable or 'store'}-{hashlib.sha256(store.encode()).hexdigest()[:12]}"


class _Lines(list[str]):
    """A file for ``csv.writer``, which writes a row at a time."""

    write = list[str].append


def _sheet_lines(columns: Mapping[str, list[Any]]) -> list[str]:
    """The CSV but for the rank: rounded, guarded, the outcome left for the store to fill in."""
    shown: list[list[Any]] = []
    for name in SHEET[1:-1]:
        values = columns[name]
        if name in DECIMALS:
            places = DECIMALS[name]
            shown.append([f"{value:.{places}f}" for value in np.round(values, places).tolist()])
        elif pa.types.is_string(SCHEMA.field(name).type):
            safe = {text: guard(text) for text in set(values)}
            shown.append([safe[text] for text in values])
        else:
            shown.append(values)
    lines = _Lines()
    csv.writer(lines, lineterminator="\n").writerows(zip(*shown, repeat(""), strict=False))
    return lines


def _sheet(header: Sequence[str], lines: Iterable[str]) -> bytes:
    """CSV for people. Text beyond ASCII starts with a byte order mark, without which Excel spoils it."""
    text = "".join([",".join(header), "\n", *lines])
    return text.encode() if text.isascii() else codecs.BOM_UTF8 + text.encode()


def _guarded(table: pd.DataFrame) -> pd.DataFrame:
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    safe = {name: [guard(v) if isinstance(v, str) else v for v in table[name]] for name in texts}
    return table.assign(**safe) if safe else table


def _document(
    result: WeekResult, columns: Mapping[str, list[Any]], files: Mapping[str, str]
) -> Iterator[bytes]:
    """The list as JSON, in pieces, from the columns of ``check_list``; ``files``: of each store."""
    random = np.array([codes == RANDOM for codes in columns["codes"]], dtype=bool)
    saving = np.where(random, 0.0, columns["expected_saving"])
    head = {
        "week": str(result.week),
        "run_id": result.run_id,
        "shadow": result.shadow,
        "held": [check.words for check in result.held],
        "to_check": int((~random).sum()),
        "random_checks": int(random.sum()),
        "expected_saving": float(saving.sum()),
        "archive": ARCHIVE if _archived(len(files)) else None,
    }
    each = {"store": columns["store_id"], "flags": ~random, "random": random, "saving": saving}
    stores = (
        {
            "store_id": store,
            "to_check": to_check,
            "random_checks": drawn,
            "expected_saving": worth,
            "file": f"{FOLDER}/{files[store]}",
        }
        for store, to_check, drawn, worth in pd.DataFrame(each).groupby("store").sum().itertuples()
    )
    split = {text: text.split(";") if text else [] for text in set(columns["codes"])}
    codes = [split[text] for text in columns["codes"]]
    rows = zip(*{**columns, "codes": codes}.values(), strict=True)
    entries = (b"  %b: %b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in head.items())
    yield b"{\n" + b",\n".join(entries)
    yield from _array(b"stores", stores)
    yield from _array(b"checks", (dict(zip(columns, row, strict=True)) for row in rows))
    yield b"\n}\n"


def _array(name: bytes, objects: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    yield b',\n  "%b": [' % name
    before = b"\n    "
    for one in objects:
        yield before + orjson.dumps(one)
        before = b",\n    "
    yield b"\n  ]"
