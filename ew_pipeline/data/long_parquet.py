"""A week of sales from a long parquet file, without a text per row.

Ids and weeks are read as codes into dictionaries, row group by row group, so that only distinct texts become
Python's and little more is in memory than the matrix itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.errors import DataError, name_some

IDS = ("store_id", "sku_id")


def sales_from_parquet(path: Path | str, week: str | None = None) -> SalesMatrix:
    """``SalesMatrix.from_long`` of a parquet file: the same matrix, and the same complaints."""
    schema = pq.read_schema(path)
    texts = [name for name in (*IDS, "week") if name in schema.names and _is_text(schema.field(name).type)]
    columns = [name for name in (*IDS, "units", "week") if name in schema.names]
    if not {*IDS, "units"} <= {*texts, "units"} & set(columns) or ("week" in columns and "week" not in texts):
        return SalesMatrix.from_long(pq.read_table(path, columns=columns).to_pandas(), week)
    file = pq.ParquetFile(path, read_dictionary=texts)
    if not file.metadata.num_rows:
        raise DataError("the sales table has no rows.", "pass at least one observed pair.")
    ids = {name: _Codes(name) for name in texts}
    parts: list[NDArray[Any]] = []
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=columns)
        for name in texts:
            ids[name].add(table[name])
        parts.append(_whole(table["units"]))
    chosen, label = _rows_of(*ids.pop("week").settle(), week) if "week" in ids else (None, week)
    units = np.concatenate(parts)
    parts.clear()
    units = units if chosen is None else units[chosen]
    (store_ids, rows), (sku_ids, cols) = (
        _sorted(*ids.pop(name).settle(), units.size, chosen) for name in IDS
    )
    pa.default_memory_pool().release_unused()  # what was read is let go before the matrix is sorted
    shape = store_ids.size, sku_ids.size
    return SalesMatrix.from_coo(rows, cols, units, shape, store_ids=store_ids, sku_ids=sku_ids, week=label)


class _Codes:
    """A text column as codes into the distinct texts of the whole file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.chunks: list[pa.Array] = []

    def add(self, column: pa.ChunkedArray) -> None:
        if column.null_count:
            raise DataError(
                f"{column.null_count} rows have no {self.name}.", "fill in the ids and week of every row."
            )
        self.chunks += column.chunks

    def settle(self) -> tuple[NDArray[np.str_], NDArray[np.int32]]:
        """The distinct texts, and each row's place among them; no places where all rows have the same."""
        chunks = pa.chunked_array(self.chunks).unify_dictionaries().chunks
        self.chunks.clear()
        texts = np.array(chunks[0].dictionary.to_pylist(), dtype=np.str_)
        if (texts == "").any():
            raise DataError(f"a {self.name} is empty.", "fill in the ids and the week of every row.")
        if texts.size == 1:  # as weeks mostly are: every row has the same
            return texts, np.zeros(0, dtype=np.int32)
        indices = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks]
        return texts, np.concatenate(indices, dtype=np.int32)


def _sorted(
    texts: NDArray[np.str_], codes: NDArray[np.int32], size: int, chosen: NDArray[np.int64] | None
) -> tuple[NDArray[np.str_], NDArray[np.int32]]:
    """The distinct texts of the chosen rows, sorted, and each row's place among them."""
    if texts.size == 1:
        return texts, np.zeros(size, dtype=np.int32)
    codes = codes if chosen is None else codes[chosen]
    used = np.bincount(codes, minlength=texts.size) > 0
    order = np.argsort(texts)
    order = order[used[order]]
    place = np.empty(texts.size, dtype=np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    return texts[order], place[codes]


def _rows_of(
    texts: NDArray[np.str_], codes: NDArray[np.int32], week: str | None
) -> tuple[NDArray[np.int64] | None, str]:
    """Which rows are of the week (None: all), and its label."""
    labels = sorted(texts.tolist())
    named = name_some(labels, len(labels))
    if week is None and len(labels) > 1:
        raise DataError(
            f"the table holds {len(labels)} weeks: {named}.", f"choose one, such as {labels[-1]}."
        )
    if week is None or labels == [week]:
        return None, labels[0]
    if week not in labels:
        raise DataError(
            f"no row is of week {week}; the weeks in the table are: {named}.",
            "pass a week written as in the table.",
        )
    return np.flatnonzero(codes == texts.tolist().index(week)), week


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _whole(units: pa.ChunkedArray) -> NDArray[Any]:
    """Narrower where that loses nothing; what is no count is left for the matrix to refuse."""
    values = np.asarray(units.to_numpy())
    small = values.dtype.kind in "iu" and values.size and values.min() >= 0 and values.max() < 2**31
    return values.astype(np.int32) if small else values
