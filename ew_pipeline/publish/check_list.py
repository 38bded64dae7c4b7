"""The check list: which shelves to walk to this week, for the chain and for each store.

``check_list.csv`` is made for a spreadsheet: rounded, worded, and with an empty ``outcome`` column, so that a
filled-in list is itself the table that ``ew checks import`` reads. JSON and parquet carry the same list with
every digit.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ew_pipeline.errors import UsageError
from ew_pipeline.publish.list_document import document
from ew_pipeline.publish.reasons import SEPARATOR, codes_and_words
from ew_pipeline.publish.store_lists import file_names, write_store_lists
from ew_pipeline.week import Week
from ew_pipeline.weekly.records import WeekResult

Format = Literal["csv", "json", "parquet"]
Listed = dict[str, list[Any]]  # a list of checks by column
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


def check_list(flags: pd.DataFrame, week: Week, random: pd.DataFrame | None = None) -> Listed:
    """The list of the chain by column, from flags as in ``schema.FLAGS``, the best to check first.

    ``random``: pairs that were drawn to be checked all the same, in the same columns; they come last, in the
    order of stores and SKUs, and each store's are counted on from its flags.
    """
    if random is not None and len(random):
        flags = pd.concat([flags, _with_places(random, flags)], ignore_index=True)
    reasons = plain_texts(flags["reasons"])
    found = {text: codes_and_words(text) for text in set(reasons)}  # a hundred flags share one text
    why = {text: SEPARATOR.join([words for _, words in parts]) for text, parts in found.items()}
    codes = {text: ";".join([code for code, _ in parts]) for text, parts in found.items()}
    return {
        "rank": list(range(1, len(flags) + 1)),
        "store_id": plain_texts(flags["store_id"]),
        "place": flags["store_rank"].tolist(),
        "sku_id": plain_texts(flags["sku_id"]),
        "week": [str(week)] * len(flags),
        "sold": flags["units"].tolist(),
        "expected": flags["expected_units"].tolist(),
        "probability": flags["anomaly_probability"].tolist(),
        "expected_saving": flags["expected_saving"].tolist(),
        "why": [why[text] for text in reasons],
        "codes": [codes[text] for text in reasons],
    }


def _with_places(random: pd.DataFrame, flags: pd.DataFrame) -> pd.DataFrame:
    drawn = random.sort_values(["store_id", "sku_id"], kind="stable")
    store = pd.Series(plain_texts(drawn["store_id"]), index=drawn.index)
    listed = Counter(plain_texts(flags["store_id"]))
    place = store.groupby(store).cumcount() + 1 + store.map(lambda one: listed[one])
    return drawn[list(flags.columns)].assign(store_rank=place, reasons=f"{RANDOM}: {RANDOM_WORDS}")


def write_check_lists(result: WeekResult, folder: Path) -> dict[str, Path]:
    """Write the week's lists into ``folder``; the paths by kind: csv, json, parquet, and stores.

    ``stores`` is a folder with a list per store, or an archive of it (``store_lists``).
    """
    listed = check_list(result.flags, result.week, result.random_checks)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"check_list.{kind}" for kind in get_args(Format)}
    lines = _sheet_lines(listed)
    files = file_names(dict.fromkeys(listed["store_id"]))
    sheets = ((files[store], sheet(SHEET[1:], own)) for store, own in _by_store(listed["store_id"], lines))
    stores = write_store_lists(folder, sheets, len(files))
    ranked = [f"{rank},{line}" for rank, line in enumerate(lines, start=1)]
    paths["csv"].write_bytes(sheet(SHEET, ranked))
    random = np.array([codes == RANDOM for codes in listed["codes"]], dtype=bool)
    with paths["json"].open("wb") as file:
        file.writelines(document(result, listed, files, random))
    pq.write_table(pa.table(listed, schema=SCHEMA), paths["parquet"])
    return {**paths, "stores": stores}


def _by_store(stores: list[str], lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The lines of each store, best first as the chain's list is."""
    own: dict[str, list[str]] = {store: [] for store in stores}
    for store, line in zip(stores, lines, strict=True):
        own[store].append(line)
    return iter(own.items())


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


def plain_texts(column: pd.Series[Any]) -> list[str]:
    """A column of any type as Python texts; by far the quickest way out of pandas' own text arrays."""
    return [str(value) for value in column.to_numpy(dtype=object)]


def guard(text: str) -> str:
    """``text`` so that no spreadsheet takes it for a formula: an apostrophe before what would start one."""
    return FORMULA.sub("'", text)


def _sheet_lines(listed: Listed) -> list[str]:
    """The CSV but for the rank: rounded, guarded, the outcome left for the store to fill in."""
    columns: list[list[str]] = []
    for name in SHEET[1:-1]:
        values = listed[name]
        if name in DECIMALS:
            form = f"%.{DECIMALS[name]}f"
            columns.append([form % value for value in values])
        else:
            cell = {value: _cell(guard(str(value))) for value in set(values)}  # few of them, many rows
            columns.append([cell[value] for value in values])
    template = ",".join(["%s"] * len(columns)) + ",\n"
    return [template % row for row in zip(*columns, strict=True)]


def _cell(text: str) -> str:
    """``text`` as the CSV has it, in quotes where it needs them."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow((text, ""))  # alone, an empty cell would be quoted
    return written.getvalue()[:-2]


def sheet(header: Sequence[str], lines: list[str]) -> bytes:
    """CSV for people. Text beyond ASCII starts with a byte order mark, without which Excel spoils it."""
    text = ",".join(header) + "\n" + "".join(lines)
    return text.encode("utf-8" if text.isascii() else "utf-8-sig")


def _guarded(table: pd.DataFrame) -> pd.DataFrame:
    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    safe = {name: [guard(v) if isinstance(v, str) else v for v in table[name]] for name in texts}
    return table.assign(**safe) if safe else table
