"""The flags of a publication by column: what they share is kept, and written as text, once.

A national chain publishes hundreds of thousands of flags a week, each of thirty columns that tell its whole
story; most of them are the same in every flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ew_pipeline.core.errors import DataError, name_some
from ew_pipeline.core.texts import TEXT, joined
from ew_pipeline.ledger.chain import scalar_text, scalar_texts
from ew_pipeline.ledger.rows import plain_column, theta_columns
from ew_pipeline.results import WeekResult

AT_ONCE = 20_000  # rows whose texts are in memory together, half a kilobyte each
FLAG_COLUMNS = (
    "store_id",
    "sku_id",
    "segment",
    "units",
    "expected_units",
    "anomaly_probability",
    "cost_false_alarm",
    "cost_missed",
    "threshold",
    "expected_saving",
    "store_rank",
    "reasons",
)


@dataclass(frozen=True, eq=False)
class FlagTable:
    """``shared``: values that all flags have; ``own``: a value per flag; no column is in both."""

    rows: int
    shared: Mapping[str, Any]
    own: Mapping[str, pa.Array]

    def texts(self) -> Iterator[str]:
        """The canonical JSON of each row, the same as ``chain.record_text`` gives."""
        pieces = self._pieces()
        for first in range(0, self.rows, AT_ONCE):
            rows = min(AT_ONCE, self.rows - first)
            part = [piece if isinstance(piece, str) else piece.slice(first, rows) for piece in pieces]
            fields = joined(pa.nulls(rows, TEXT).fill_null(""), *part)
            yield from joined("{", pc.utf8_slice_codeunits(fields, 0, -1), "}").to_pylist()

    def _pieces(self) -> list[pa.Array | str]:
        """What stands in a row's text, in order; each of its fields ends with a comma."""
        pieces: list[pa.Array | str] = [""]
        for name in sorted((*self.shared, *self.own)):
            key, same = f"{scalar_text(name)}:", pieces.pop()  # after text that all rows share
            if name not in self.own:
                value = self.shared[name]
                pieces.append(same if value is None else f"{same}{key}{scalar_text(value)},")
                continue
            texts = scalar_texts(self.own[name])
            if texts.null_count:  # the chain leaves out what is missing
                pieces += [same, joined(key, texts, ",").fill_null(""), ""]
            else:
                pieces += [f"{same}{key}", texts, ","]
        return pieces

    def tuples(self, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """The rows as a database takes them, with their columns in this order."""
        columns = (
            self.own[name].to_pylist() if name in self.own else repeat(self.shared[name], self.rows)
            for name in names
        )
        return zip(*columns, strict=True)

    def with_column(self, name: str, values: Sequence[Any]) -> FlagTable:
        return FlagTable(self.rows, self.shared, {**self.own, name: pa.array(values)})


def flag_table(result: WeekResult, publication_id: int) -> FlagTable:
    """A row per flag, the best to check first, each with all that led to it."""
    flags = result.flags
    _refuse_gaps(flags)
    origin = result.provenance
    shared: dict[str, Any] = {
        "publication_id": publication_id,
        "week": str(result.week),
        "run_id": result.run_id,
        "flow_run_id": origin.flow_run_id,
        "mlflow_run_id": origin.mlflow_run_id,
        "data_hash": origin.data_hash,
        "config_hash": origin.config_hash,
        "code_version": origin.code_version,
    }
    own: dict[str, pa.Array] = {"position": pa.array(np.arange(len(flags)))}
    own |= {name: plain_column(flags[name]) for name in FLAG_COLUMNS}
    own["level"] = _finite(flags["level"])
    by_segment = {
        part.name: {
            **theta_columns(part.theta),
            "rank": int(part.rank),
            "noise": part.noise,
            "anomaly": part.anomaly,
        }
        for part in result.segments
    }
    unknown = sorted(set(own["segment"].unique().to_pylist()) - set(by_segment))
    if unknown:
        raise DataError(f"flags of segments that were not fitted: {name_some(unknown, len(unknown))}.")
    if len(by_segment) == 1:
        shared |= next(iter(by_segment.values()))
    else:
        segments = own["segment"].to_pylist()
        for name in next(iter(by_segment.values()), {}):
            own[name] = pa.array([by_segment[segment][name] for segment in segments])
    same = {name: values[0].as_py() for name, values in own.items() if _all_same(values)}
    return FlagTable(len(flags), {**shared, **same}, {name: own[name] for name in own if name not in same})


def _all_same(values: pa.Array) -> bool:
    if not len(values) or values.null_count:
        return 0 < len(values) == int(values.null_count)
    return bool(pc.all(pc.equal(values, values[0])).as_py())


def _finite(column: pd.Series[Any]) -> pa.Array:
    """Null for a number that is infinite or not there."""
    numbers = column.to_numpy(np.float64) + 0.0
    return pa.array(numbers, mask=~np.isfinite(numbers))


def _refuse_gaps(flags: pd.DataFrame) -> None:
    twice = flags[flags.duplicated(["store_id", "sku_id"])]
    if len(twice):
        pairs = [f"{store} {sku}" for store, sku in twice[["store_id", "sku_id"]].to_numpy()]
        raise DataError(f"{len(pairs)} pairs are flagged twice: {name_some(pairs, len(pairs))}.")
    for name in FLAG_COLUMNS:
        column = flags[name]
        numeric = pd.api.types.is_numeric_dtype(column)
        bad = ~np.isfinite(column.to_numpy(np.float64)) if numeric else column.isna().to_numpy()
        if bad.any():
            pairs = [f"{store} {sku}" for store, sku in flags.loc[bad, ["store_id", "sku_id"]].to_numpy()]
            raise DataError(f"{len(pairs)} flags have no {name}: {name_some(pairs, len(pairs))}.")
