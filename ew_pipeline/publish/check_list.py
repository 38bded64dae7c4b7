"""The check list: which shelves to walk to this week, for the chain and for each store.

``check_list.csv`` is made for a spreadsheet: rounded, worded, and with an empty ``outcome`` column, so that a
filled-in list is itself the table that ``ew checks import`` reads. JSON and parquet carry the same list with
every digit.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

import orjson
import pandas as pd

from ew_pipeline.errors import UsageError
from ew_pipeline.publish.reasons import SEPARATOR, codes_and_words
from ew_pipeline.week import Week
from ew_pipeline.weekly.records import WeekResult

Format = Literal["csv", "json", "parquet"]
COLUMNS = (
    "rank",
    "store_id",
    "place",
    "sku_id",
    "week",
    "sold",
    "expected",
    "probability",
    "expected_saving",
    "why",
    "codes",
)
RANDOM = "RANDOM_CHECK"
RANDOM_WORDS = "drawn at random, to learn what the flags miss"
SHEET = (*COLUMNS[:-1], "outcome")  # of the CSV
DECIMALS = {"expected": 2, "probability": 4, "expected_saving": 2}
# What a spreadsheet takes for a formula: at the start of a cell, or of a piece it might split the cell into.
FORMULA = re.compile(r"(?:\A|(?<=[,;|\t\r\n]))(?=\s*[=+\-@＝＋－＠])|\A(?=[\t\r\n])")
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(?<!\.)")
TAGGED_NAME = re.compile(r".*-[0-9a-f]{12}")
DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # not files on Windows


def check_list(flags: pd.DataFrame, week: Week, random: pd.DataFrame | None = None) -> pd.DataFrame:
    """The list of the chain, best check first, from flags as in ``schema.FLAGS``.

    ``random``: pairs that were drawn to be checked all the same, in the same columns; they come last, in the
    order of stores and SKUs, and each store's are counted on from its flags.
    """
    ordered = flags.sort_values(
        ["expected_saving", "store_id", "sku_id"], ascending=[False, True, True], kind="stable"
    )
    if random is not None and len(random):
        ordered = pd.concat([ordered, _with_places(random, ordered)], ignore_index=True)
    found = [codes_and_words(text) for text in plain_texts(ordered["reasons"])]
    return pd.DataFrame(
        {
            "rank": range(1, len(ordered) + 1),
            "store_id": plain_texts(ordered["store_id"]),
            "place": ordered["store_rank"].to_numpy(),
            "sku_id": plain_texts(ordered["sku_id"]),
            "week": str(week),
            "sold": ordered["units"].to_numpy(),
            "expected": ordered["expected_units"].to_numpy(),
            "probability": ordered["anomaly_probability"].to_numpy(),
            "expected_saving": ordered["expected_saving"].to_numpy(),
            "why": [SEPARATOR.join([words for _, words in reasons]) for reasons in found],
            "codes": [";".join([code for code, _ in reasons]) for reasons in found],
        },
        columns=list(COLUMNS),
    )


def _with_places(random: pd.DataFrame, flags: pd.DataFrame) -> pd.DataFrame:
    drawn = random.sort_values(["store_id", "sku_id"], kind="stable")
    store = pd.Series(plain_texts(drawn["store_id"]), index=drawn.index)
    listed = Counter(plain_texts(flags["store_id"]))
    place = store.groupby(store).cumcount() + 1 + store.map(lambda one: listed[one])
    return drawn[list(flags.columns)].assign(store_rank=place, reasons=f"{RANDOM}: {RANDOM_WORDS}")


def write_check_lists(result: WeekResult, folder: Path) -> dict[str, Path]:
    """Write the week's lists into ``folder``; the paths by kind: csv, json, parquet, and stores (a folder).

    The store folder is made anew: a store that has nothing to check any more keeps no stale list.
    """
    table = check_list(result.flags, result.week, result.random_checks)
    paths = {
        "csv": folder / "check_list.csv",
        "json": folder / "check_list.json",
        "parquet": folder / "check_list.parquet",
        "stores": folder / "check_list",
    }
    files = file_names(table["store_id"].unique())
    shutil.rmtree(paths["stores"], ignore_errors=True)
    paths["stores"].mkdir(parents=True)
    lines = _sheet_lines(table)
    by_store: dict[str, list[str]] = {store: [] for store in files}
    for store, line in zip(plain_texts(table["store_id"]), lines, strict=True):
        by_store[store].append(line)
    for store, own in by_store.items():  # best first, as the chain's list is
        with open(f"{paths['stores']}/{files[store]}", "wb", buffering=0) as file:
            file.write(_sheet(SHEET[1:], own))
    ranked = [f"{rank},{line}" for rank, line in enumerate(lines, start=1)]
    paths["csv"].write_bytes(_sheet(SHEET, ranked))
    with paths["json"].open("wb") as file:
        file.writelines(_document(result, table, files))
    table.to_parquet(paths["parquet"], index=False)
    return paths


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


def file_names(stores: Iterable[str]) -> dict[str, str]:
    """A file name per store that every file system takes; no two stores share one, also where case is lost.

    A plain id is its own name. Any other gets its readable part and a piece of its hash.
    """
    ids = [str(store) for store in stores]
    lowered = Counter(store.lower() for store in ids)
    return {store: f"{store if _plain(store, lowered) else _tagged(store)}.csv" for store in ids}


def plain_texts(column: pd.Series[Any]) -> list[str]:
    """A column of any type as Python texts; by far the quickest way out of pandas' own text arrays."""
    return [str(value) for value in column.to_numpy(dtype=object)]


def guard(text: str) -> str:
    """``text`` so that no spreadsheet takes it for a formula: an apostrophe before what would start one."""
    return FORMULA.sub("'", text)


def _plain(store: str, lowered: Counter[str]) -> bool:
    # An id that looks tagged could meet another's tag, so it is tagged itself.
    looks_odd = TAGGED_NAME.fullmatch(store) or DEVICE_NAME.fullmatch(store)
    return PLAIN_NAME.fullmatch(store) is not None and not looks_odd and lowered[store.lower()] == 1


def _tagged(store: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_]+", "_", store).strip("_")[:40]
    return f"{readable or 'store'}-{hashlib.sha256(store.encode()).hexdigest()[:12]}"


def _sheet_lines(table: pd.DataFrame) -> list[str]:
    """The CSV but for the rank: rounded, guarded, the outcome left for the store to fill in."""
    columns: list[list[str]] = []
    for name in SHEET[1:-1]:
        if name in DECIMALS:
            columns.append([f"{value:.{DECIMALS[name]}f}" for value in table[name].tolist()])
        else:
            values = plain_texts(table[name])
            safe = {value: guard(value) for value in set(values)}  # few ids, many rows
            columns.append([safe[value] for value in values])
    lines: list[str] = []
    _writer(lines).writerows(zip(*columns, [""] * len(table), strict=True))
    return lines


def _writer(lines: list[str]) -> Any:
    """A CSV writer that hands over line by line, whatever line breaks are in the cells."""
    return csv.writer(SimpleNamespace(write=lines.append), lineterminator="\n")


def _sheet(header: Sequence[str], lines: list[str]) -> bytes:
    """CSV for people. Text beyond ASCII starts with a byte order mark, without which Excel spoils it."""
    text = ",".join(header) + "\n" + "".join(lines)
    return text.encode("utf-8" if text.isascii() else "utf-8-sig")


def _guarded(table: pd.DataFrame) -> pd.DataFrame:
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    safe = {name: [guard(v) if isinstance(v, str) else v for v in table[name]] for name in texts}
    return table.assign(**safe) if safe else table


def _document(result: WeekResult, table: pd.DataFrame, files: dict[str, str]) -> Iterator[bytes]:
    """The list as one JSON document with a line per check: quick to write, and `grep` finds a store.

    In pieces: a list of hundreds of thousands of lines would be the most memory that a run needs.
    """
    random = (table["codes"] == RANDOM).to_numpy()
    saving = table["expected_saving"].where(~random, 0.0)
    by_store = pd.DataFrame(
        {"store_id": table["store_id"], "flags": ~random, "random": random, "saving": saving}
    )
    by_store = by_store.groupby("store_id", sort=True).sum()
    head = {
        "week": str(result.week),
        "run_id": result.run_id,
        "shadow": result.shadow,
        "held": [check.words for check in result.held],
        "to_check": int((~random).sum()),
        "random_checks": int(random.sum()),
        "expected_saving": float(saving.sum()),
    }
    stores = [
        {
            "store_id": str(store),
            "to_check": int(flagged),
            "random_checks": int(drawn),
            "expected_saving": float(saved),
            "file": f"check_list/{files[str(store)]}",
        }
        for store, flagged, drawn, saved in by_store.itertuples()
    ]
    columns = [table[name].tolist() for name in COLUMNS[:-1]]
    codes = [text.split(";") if text else [] for text in plain_texts(table["codes"])]
    checks = (dict(zip(COLUMNS, row, strict=True)) for row in zip(*columns, codes, strict=True))
    entries = (b"  %b: %b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in head.items())
    yield b"{\n" + b",\n".join(entries)
    yield from _lines(b"stores", stores)
    yield from _lines(b"checks", checks)
    yield b"\n}\n"


def _lines(name: bytes, rows: Iterable[object]) -> Iterator[bytes]:
    yield b',\n  "%b": [' % name
    before = b"\n    "
    for row in rows:
        yield before + orjson.dumps(row)
        before = b",\n    "
    yield b"]" if before == b"\n    " else b"\n  ]"
