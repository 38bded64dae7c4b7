"""The check list as one JSON document, with a line per check: `grep` finds a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import pandas as pd

from ew_pipeline.outputs.store_lists import ARCHIVE, FOLDER, archived
from ew_pipeline.results import WeekResult


def document(
    result: WeekResult, columns: Mapping[str, list[Any]], files: Mapping[str, str], random_code: str
) -> Iterator[bytes]:
    """The document in pieces, from the columns of ``check_list``. ``files``: of each store; ``random_code``:
    of a check that was drawn, not flagged."""
    random = np.array([codes == random_code for codes in columns["codes"]], dtype=bool)
    saving = np.where(random, 0.0, columns["expected_saving"])
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
    yield from _lines(b"stores", stores)
    yield from _lines(b"checks", (dict(zip(columns, row, strict=True)) for row in rows))
    yield b"\n}\n"


def _lines(name: bytes, objects: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    yield b',\n  "%b": [' % name
    before = b"\n    "
    for one in objects:
        yield before + orjson.dumps(one)
        before = b",\n    "
    yield b"\n  ]"
