"""The check list as one JSON document, with a line per check: quick to write, and `grep` finds a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ew_pipeline.algorithm.types import Bool, Float
from ew_pipeline.publish.store_lists import ARCHIVE, FOLDER, archived
from ew_pipeline.publish.text_columns import (
    content,
    each_once,
    json_objects,
    json_text,
    number_texts,
    whole_texts,
)
from ew_pipeline.weekly.records import WeekResult

AT_ONCE = 50_000  # some megabytes of text, whatever the size of the list
BETWEEN = b",\n    "


def document(result: WeekResult, listed: pa.Table, files: Mapping[str, str], random: Bool) -> Iterator[bytes]:
    """The document in pieces. ``files``: of each store; ``random``: where a check was drawn, not flagged."""
    saving = np.where(random, 0.0, listed["expected_saving"].to_numpy())
    head = {
        "week": str(result.week),
        "run_id": result.run_id,
        "shadow": result.shadow,
        "held": [check.words for check in result.held],
        "to_check": int((~random).sum()),
        "random_checks": int(random.sum()),
        "expected_saving": float(saving.sum()),
        "archive": ARCHIVE if archived(len(files)) else None,
    }
    entries = (b"  %b: %b" % (orjson.dumps(name), orjson.dumps(value)) for name, value in head.items())
    yield b"{\n" + b",\n".join(entries)
    yield from _lines(b"stores", _of_stores(listed["store_id"].combine_chunks(), random, saving, files))
    yield from _lines(b"checks", _of_checks(listed))
    yield b"\n}\n"


def _of_stores(
    stores: pa.DictionaryArray, random: Bool, saving: Float, files: Mapping[str, str]
) -> Iterator[bytes]:
    columns = {"store": stores.indices.to_numpy(), "flags": ~random, "random": random, "saving": saving}
    sums = pd.DataFrame(columns).groupby("store", sort=True).sum()
    names = stores.dictionary.take(pa.array(sums.index.to_numpy()))
    rows = {
        "store_id": each_once(names, json_text),
        "to_check": whole_texts(pa.array(sums["flags"].to_numpy())),
        "random_checks": whole_texts(pa.array(sums["random"].to_numpy())),
        "expected_saving": number_texts(sums["saving"].to_numpy()),
        "file": each_once(names, lambda store: json_text(f"{FOLDER}/{files[store]}")),
    }
    objects = json_objects(rows, BETWEEN.decode()).take(pc.sort_indices(names))
    if len(objects):
        yield _without_end(objects)


def _of_checks(listed: pa.Table) -> Iterator[bytes]:
    """Many checks at once, an object each."""
    columns = {name: _encoded(name, listed[name].combine_chunks()) for name in listed.column_names}
    for first in range(0, len(listed), AT_ONCE):
        part = {name: texts.slice(first, AT_ONCE) for name, texts in columns.items()}
        yield _without_end(json_objects(part, BETWEEN.decode()))


def _encoded(name: str, values: pa.Array) -> pa.Array:
    if name == "codes":
        return each_once(values, lambda text: json_text(text.split(";") if text else []))
    if isinstance(values, pa.DictionaryArray):
        return each_once(values, json_text)
    return number_texts(values.to_numpy()) if pa.types.is_floating(values.type) else whole_texts(values)


def _without_end(objects: pa.Array) -> bytes:
    """All of them, with what stands between them but not after the last."""
    text, _ = content(objects)
    return bytes(text[: -len(BETWEEN)])


def _lines(name: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield b',\n  "%b": [' % name
    before = BETWEEN[1:]
    for piece in pieces:
        yield before + piece
        before = BETWEEN
    yield b"]" if before != BETWEEN else b"\n  ]"
