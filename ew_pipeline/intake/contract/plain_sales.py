"""Sales in which nothing needs a second look: parquet files, read as codes and sorted without a database.

Most weeks are like that, and at ten million rows it saves half of the time in which data are checked.
Whatever is not plain, be it a missing id, a number that is no count or a pair that comes twice, is for the
database (``reading``), which finds every such row, keeps it and names it. So nothing is judged here: a file
is plain or it is not, and the suite is asked about plain rows as about any others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ew_pipeline.core.coded_text import CodedText, is_text
from ew_pipeline.core.errors import DataError
from ew_pipeline.core.week import Week
from ew_pipeline.intake.contract.reading import Opened
from ew_pipeline.intake.snapshot import Column
from ew_pipeline.method.row_major import row_major

IDS, FLAGS = ("store_id", "sku_id"), ("promo", "holiday")
MOST_ROWS = 20_000_000  # in memory together, some forty bytes each; above, the database goes week by week
MOST_UNITS = np.iinfo(np.int32).max
Columns = Mapping[str, Column]
Rows = dict[str, pa.ChunkedArray]


def plain_sales(
    opened: Opened, texts: Mapping[str | None, Week | None], window: Collection[Week]
) -> dict[Week, Columns] | None:
    """The columns of each week of the window as a snapshot takes them (``SnapshotWriter.add_columns``), rows
    by store and SKU; None where the files are not plain.

    ``texts``: what each value of ``week`` stands for.
    """
    if not opened.source.parquet or opened.segment is not None or None in texts.values():
        return None
    wanted = {
        text: week for text, week in texts.items() if text is not None and week is not None and week in window
    }
    try:
        rows = _read(opened, sorted(wanted))
        if rows is None or any(column.null_count for column in rows.values()):
            return None
        stores, skus, weeks = (CodedText.of(rows.pop(name)) for name in (*IDS, "week"))
    except (OSError, ValueError, pa.ArrowException, DataError):  # the database says what is wrong
        return None
    if any((np.strings.strip(coded.texts) == "").any() for coded in (stores, skus)):
        return None
    numbers = {name: _whole(column, 1 if name in FLAGS else MOST_UNITS) for name, column in rows.items()}
    if any(values is None for values in numbers.values()):
        return None
    found: dict[Week, Columns] = {}
    for week, chosen in _by_week(weeks, wanted):
        columns = _sorted(week, stores, skus, {k: v for k, v in numbers.items() if v is not None}, chosen)
        if columns is None:
            return None
        found[week] = columns
    # Otherwise the file is not the one whose weeks were looked at.
    return found if found.keys() == set(wanted.values()) else None


def as_frame(weeks: Sequence[Columns]) -> pd.DataFrame:
    """Weeks below each other as the suite looks at them. Of 64 bits: of shorter numbers Great Expectations
    compares every one in Python."""
    columns = {name: _joined([week[name] for week in weeks]) for name in weeks[0]}
    rows = len(columns["units"])
    return pd.DataFrame({**columns, "copies": np.broadcast_to(np.int64(1), rows)}, copy=False)


def _joined(values: Sequence[Column]) -> Column:
    texts = [each for each in values if isinstance(each, pd.Categorical)]
    if not texts:
        return np.concatenate([np.asarray(each) for each in values], dtype=np.int64)
    return texts[0] if len(texts) == 1 else pd.api.types.union_categoricals(texts, sort_categories=True)


def _read(opened: Opened, week_texts: Sequence[str]) -> Rows | None:
    """The columns that are used, of the row groups that may hold these weeks."""
    names = [column.name for column in opened.columns if column.name in (*IDS, "week", "units", *FLAGS)]
    parts: dict[str, list[pa.Array]] = {name: [] for name in names}
    kinds: dict[str, pa.DataType] = {}
    rows = 0
    for path in opened.source.parquet:
        file = pq.ParquetFile(path)
        if any(file.schema_arrow.names.count(name) != 1 for name in names):
            return None
        types = {name: file.schema_arrow.field(name).type for name in names}
        if (kinds and types != kinds) or not all(_is_plain(name, kind) for name, kind in types.items()):
            return None
        kinds = types
        coded = [name for name, kind in types.items() if is_text(kind)]
        file = pq.ParquetFile(path, read_dictionary=coded)
        for group in _groups(file, week_texts):
            rows += file.metadata.row_group(group).num_rows
            if rows > MOST_ROWS:
                return None
            table = _of_weeks(file.read_row_group(group, columns=names), week_texts)
            for name in names:
                parts[name] += table[name].chunks
    if not any(len(chunk) for chunk in parts["week"]):
        return None
    return {name: pa.chunked_array(chunks) for name, chunks in parts.items()}


def _of_weeks(table: pa.Table, week_texts: Sequence[str]) -> pa.Table:
    """The rows of these weeks, where weeks are coded: most are known from earlier runs, and an export in no
    order has some of every week in each row group. A missing week stays, for the database to name."""
    weeks = table["week"]
    if not pa.types.is_dictionary(weeks.type):
        return table
    asked_for, masks = pa.array(week_texts), []
    for chunk in weeks.chunks:
        wanted = pc.is_in(chunk.dictionary.cast(pa.string()), value_set=asked_for)
        masks.append(wanted.take(chunk.indices).fill_null(True))
    mask = pa.chunked_array(masks, pa.bool_())
    return table if pc.all(mask).as_py() else table.filter(mask)


def _is_plain(name: str, kind: pa.DataType) -> bool:
    if name in IDS:
        return is_text(kind) or bool(pa.types.is_integer(kind))
    if name == "week":
        return is_text(kind) or bool(pa.types.is_date32(kind))
    flag = name in FLAGS and bool(pa.types.is_boolean(kind))
    return flag or bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _groups(file: pq.ParquetFile, week_texts: Sequence[str]) -> Iterator[int]:
    """Row groups that can hold a row of these weeks, by what the file says of itself."""
    place = [file.schema.column(k).path for k in range(len(file.schema.names))].index("week")
    for group in range(file.num_row_groups):
        known = file.metadata.row_group(group).column(place).statistics
        if known is not None and known.has_min_max:
            low, high = str(known.min), str(known.max)
            if not any(low <= text <= high for text in week_texts):
                continue
        yield group


def _whole(column: pa.ChunkedArray, most: int) -> NDArray[np.int32] | None:
    """Whole numbers from 0 to ``most``; None where some are not."""
    values = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
    numbers = values.to_numpy()
    # Beside a number of 32 bits ``most`` would be rounded up; what is no number is not below it either.
    if not (numbers.min() >= 0 and float(numbers.max()) <= most):
        return None
    counts = numbers.astype(np.int32)
    fractions = numbers.dtype.kind == "f" and ((counts != numbers).any() or np.signbit(numbers).any())
    return None if fractions else counts


def _by_week(weeks: CodedText, wanted: Mapping[str, Week]) -> Iterator[tuple[Week, NDArray[np.int64] | None]]:
    """The weeks that have rows, in order, and which rows are of each; None: all of them."""
    of_text = [wanted.get(str(text)) for text in weeks.texts]
    found = sorted({week for week in of_text if week is not None})
    if len(found) == 1 and None not in of_text:
        yield found[0], None
        return
    place = np.array([-1 if week is None else found.index(week) for week in of_text], dtype=np.int16)
    code = place[weeks.codes]
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(len(found) + 1))
    for k, week in enumerate(found):
        if ends[k] < ends[k + 1]:  # a file may name texts that no row has
            yield week, order[ends[k] : ends[k + 1]]


def _sorted(
    week: Week,
    stores: CodedText,
    skus: CodedText,
    numbers: Mapping[str, NDArray[np.int32]],
    chosen: NDArray[np.int64] | None,
) -> Columns | None:
    """The rows of a week in canonical form; None where a pair comes twice."""
    if chosen is not None:
        stores, skus = stores.kept(chosen), skus.kept(chosen)
        numbers = {name: values[chosen] for name, values in numbers.items()}
    stores, skus = stores.in_order(), skus.in_order()
    units, flags = numbers["units"], {name: values for name, values in numbers.items() if name != "units"}
    # Units go with their pair while it is sorted; where there is more, the row does.
    rider = np.arange(units.size, dtype=np.int32) if flags else units
    indptr, sku, sorted_rider, repeated = row_major(stores.codes, skus.codes, rider, stores.texts.size)
    if repeated:
        return None
    store = np.repeat(np.arange(stores.texts.size, dtype=np.int32), np.diff(indptr))
    return {
        "store_id": _categories(store, stores.texts),
        "sku_id": _categories(sku, skus.texts),
        "week": _categories(np.zeros(units.size, dtype=np.int32), np.array([str(week)])),
        "units": units[sorted_rider] if flags else sorted_rider,
        **{name: flags[name][sorted_rider].astype(np.uint8) for name in FLAGS if name in flags},
    }


def _categories(codes: NDArray[np.int32], texts: NDArray[np.str_]) -> Column:
    return pd.Categorical.from_codes(codes, pd.Index(texts.tolist(), dtype=object), validate=False)
