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

from ew_pipeline.core.coded_text import CodedText, is_text
from ew_pipeline.core.errors import DataError, name_some
from ew_pipeline.method.sales_matrix import SalesMatrix

IDS = ("store_id", "sku_id")


def sales_from_parquet(path: Path | str, week: str | None = None) -> SalesMatrix:
    """``SalesMatrix.from_long`` of a parquet file: the same matrix, and the same complaints."""
    schema = pq.read_schema(path)
    texts = [name for name in (*IDS, "week") if name in schema.names and is_text(schema.field(name).type)]
    columns = [name for name in (*IDS, "units", "week") if name in schema.names]
    if not {*IDS, "units"} <= {*texts, "units"} & set(columns) or ("week" in columns and "week" not in texts):
        return SalesMatrix.from_long(pq.read_table(path, columns=columns).to_pandas(), week)
    file = pq.ParquetFile(path, read_dictionary=texts)
    if not file.metadata.num_rows:
        raise DataError("the sales table has no rows.", "pass at least one observed pair.")
    chunks: dict[str, list[pa.Array]] = {name: [] for name in texts}
    parts: list[NDArray[Any]] = []
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=columns)
        for name in texts:
            chunks[name] += _without_gaps(table[name], name).chunks
        parts.append(_whole(table["units"]))
    chosen, label = _rows_of(_coded(chunks, "week"), week) if "week" in chunks else (None, week)
    units = np.concatenate(parts)
    parts.clear()
    units = units if chosen is None else units[chosen]
    stores, skus = (
        (coded if chosen is None else coded.kept(chosen)).in_order()
        for coded in (_coded(chunks, name) for name in IDS)
    )
    pa.default_memory_pool().release_unused()  # what was read is let go before the matrix is sorted
    return SalesMatrix.from_coo(
        stores.codes, skus.codes, units, (stores.texts.size, skus.texts.size),
        store_ids=stores.texts, sku_ids=skus.texts, week=label,
    )  # fmt: skip


def _without_gaps(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if column.null_count:
        raise DataError(f"{column.null_count} rows have no {name}.", "fill in the ids and week of every row.")
    return column


def _coded(chunks: dict[str, list[pa.Array]], name: str) -> CodedText:
    coded = CodedText.of(pa.chunked_array(chunks.pop(name)))
    if (coded.texts == "").any():
        raise DataError(f"a {name} is empty.", "fill in the ids and the week of every row.")
    return coded


def _rows_of(weeks: CodedText, week: str | None) -> tuple[NDArray[np.int64] | None, str]:
    """Which rows are of the week (None: all), and its label."""
    labels = sorted(weeks.texts.tolist())
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
    return np.flatnonzero(weeks.codes == weeks.texts.tolist().index(week)), week


def _whole(units: pa.ChunkedArray) -> NDArray[Any]:
    """Narrower where that loses nothing; what is no count is left for the matrix to refuse."""
    values = np.asarray(units.to_numpy())
    small = values.dtype.kind in "iu" and values.size and values.min() >= 0 and values.max() < 2**31
    return values.astype(np.int32) if small else values
