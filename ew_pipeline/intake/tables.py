"""A source as typed tables: DuckDB for any table, plain Arrow for sales in parquet. Nothing is repaired.

In DuckDB ids are texts, weeks ISO weeks, numbers numbers. A cell that cannot be read becomes NULL and is kept
next to it as it was written, for the quarantine file.

Most weeks of sales need no second look: parquet files, read as codes and sorted without a database
(``plain_sales``) in half the time. Whatever is not plain, be it a missing id, a number that is no count or a
pair that comes twice, is for DuckDB, which finds, keeps and names every such row. A file is plain or it is
not: nothing is judged here, and the suite is asked about plain rows as about any others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ew_pipeline.core.coded_text import CodedText, is_text
from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.schema import COSTS, Column, Table
from ew_pipeline.core.week import Week
from ew_pipeline.intake.snapshot import Values
from ew_pipeline.intake.sources import Source, is_time, literal, number, open_source, quoted, reading
from ew_pipeline.method.row_major import row_major

if TYPE_CHECKING:
    import duckdb


WHOLE = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
)
NUMBERS = (*WHOLE, "UHUGEINT", "FLOAT", "DOUBLE")
ID_TYPES = {"store_id": "store_ids", "sku_id": "sku_ids"}
YES, NO = ("1", "1.0", "true", "t", "yes", "y"), ("0", "0.0", "false", "f", "no", "n")
MOST_UNREADABLE_WEEKS = 10_000
FOUR_COSTS = (
    "cost_flagged_healthy",
    "cost_ignored_healthy",
    "cost_ignored_anomalous",
    "cost_flagged_anomalous",
)
TWO_COSTS = ("cost_false_alarm", "cost_missed")
IDS, FLAGS = ("store_id", "sku_id"), ("promo", "holiday")
MOST_ROWS = 20_000_000  # in memory together, some forty bytes each; above, the database goes week by week
MOST_UNITS = np.iinfo(np.int32).max
Columns = Mapping[str, Values]
Rows = dict[str, pa.ChunkedArray]


@dataclass(frozen=True)
class Opened:
    """A source whose columns fit the contract. ``segment``: the column that splits the chain, if here."""

    table: str
    source: Source
    columns: tuple[Column, ...]
    ignored: tuple[str, ...]
    segment: str | None = None

    def has(self, name: str) -> bool:
        return any(column.name == name for column in self.columns)

    def split_by(self, segment: str) -> Opened:
        """The same, read with one more column."""
        return replace(self, segment=segment, ignored=tuple(name for name in self.ignored if name != segment))


def open_table(table: Table, spec: str, connection: duckdb.DuckDBPyConnection) -> Opened:
    """Open a source and hold its columns and types against the contract."""
    source = open_source(spec, connection)
    if table is COSTS:
        table = _cost_form(source)
    missing = [name for name in table.required if name not in source.columns]
    if missing:
        found = (
            name_some(source.columns, len(source.columns))
            if len(source.columns) > 12
            else ", ".join(source.columns)
        )
        raise DataError(
            f"{source.label} has no column {' and no column '.join(missing)}. Its columns: {found}.",
            f"rename or add the columns; {table.name} needs {', '.join(table.required)}.",
        )
    columns = tuple(column for column in table.columns if column.name in source.columns)
    ignored = tuple(name for name in source.columns if name not in table.names)
    for column in columns:
        _refuse_type(column, source)
    return Opened(table.name, source, columns, ignored)


def open_attributes(key: str, spec: str, connection: duckdb.DuckDBPyConnection) -> Opened:
    """A table of attributes of stores or SKUs: the key, and whatever else it has."""
    table = Table("stores" if key == "store_id" else "skus", (Column(key, "text", "the key"),), (key,))
    return open_table(table, spec, connection)


def week_texts(opened: Opened, column: str) -> dict[str | None, Week | None]:
    """What each value of a week column stands for; None when it cannot be read."""
    return {text: week for text, (week, _) in week_rows(opened, column).items()}


def week_rows(opened: Opened, column: str) -> dict[str | None, tuple[Week | None, int]]:
    """The same, with how many rows have the value."""
    weeks: dict[str | None, tuple[Week | None, int]] = {}
    for text, rows in opened.source.values(column).items():
        try:
            weeks[text] = (None if text is None else Week.parse(text)), rows
        except UsageError:
            weeks[text] = None, rows
    return weeks


def view_sales(
    opened: Opened,
    texts: Mapping[str | None, Week | None],
    window: Collection[Week],
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """The view ``raw_sales``: rows of the window's weeks, and those whose week cannot be read."""
    wanted = {text: week for text, week in texts.items() if week is None or week in window}
    unreadable = [text for text, week in wanted.items() if week is None]
    if len(unreadable) > MOST_UNREADABLE_WEEKS:
        raise DataError(
            f"{opened.source.label} has {len(unreadable)} values of week that cannot be read: "
            f"{name_some(map(str, unreadable), len(unreadable))}.",
            "write weeks as 2026-W34, or as the date they start.",
        )
    _map_table(
        "sales_weeks",
        {text: None if week is None else str(week) for text, week in wanted.items()},
        "VARCHAR",
        connection,
    )
    names = [column.name for column in opened.columns if column.name not in ("price", "on_hand")]
    kinds = opened.source.columns
    cells = [
        _cell(column, kinds[column.name])
        for column in opened.columns
        if column.name in names and column.kind != "week"
    ]
    week_text = opened.source.week_text("week")
    cells += ["m.value AS week", f"CASE WHEN m.value IS NULL THEN {week_text} END AS week_text"]
    cells += [_unreadable("units"), *_segment(opened)]
    relation = opened.source.relation([*names, *_extra(opened)], wanted)
    connection.execute(
        f"CREATE VIEW raw_sales AS SELECT {', '.join(cells)} FROM {relation} AS r "
        f"JOIN sales_weeks AS m ON {week_text} IS NOT DISTINCT FROM m.text"
    )


def view_listing(opened: Opened, connection: duckdb.DuckDBPyConnection) -> None:
    """The view ``raw_listing``; weeks as their index, with the text of those that cannot be read."""
    cells = [
        _cell(column, opened.source.columns[column.name])
        for column in opened.columns
        if column.kind == "text"
    ]
    joins = ""
    for name in ("first_week", "last_week"):
        if not opened.has(name):
            cells += [f"CAST(NULL AS INTEGER) AS {name}", f"CAST(NULL AS VARCHAR) AS {name}_text"]
            continue
        texts = week_texts(opened, name)
        _map_table(
            f"listing_{name}",
            {text: None if week is None else week.index for text, week in texts.items()},
            "INTEGER",
            connection,
        )
        text = opened.source.week_text(name)
        joins += f" LEFT JOIN listing_{name} ON {text} = listing_{name}.text"
        blank = f"trim({text}) = ''"
        cells += [
            f"listing_{name}.value AS {name}",
            f"CASE WHEN listing_{name}.value IS NULL AND NOT {blank} THEN {text} END AS {name}_text",
        ]
    names = [column.name for column in opened.columns]
    relation = opened.source.relation([*names, *_extra(opened)], None)
    connection.execute(
        f"CREATE VIEW raw_listing AS SELECT {', '.join([*cells, *_segment(opened)])} "
        f"FROM {relation} AS r{joins}"
    )


def view_costs(opened: Opened, connection: duckdb.DuckDBPyConnection) -> None:
    """The view ``raw_costs``, with the four-cost form reduced to two."""
    names = [column.name for column in opened.columns]
    relation = opened.source.relation(names, None)
    cells = [
        _cell(column, opened.source.columns[column.name])
        for column in opened.columns
        if column.kind == "text"
    ]
    cells += [f"CAST(NULL AS VARCHAR) AS {name}" for name in ("store_id", "sku_id") if not opened.has(name)]
    if opened.has(TWO_COSTS[0]):
        cells += [f"TRY_CAST({name} AS DOUBLE) AS {name}" for name in TWO_COSTS]
    else:
        c10, c00, c01, c11 = (f"TRY_CAST({name} AS DOUBLE)" for name in FOUR_COSTS)
        cells += [f"{c10} - {c00} AS cost_false_alarm", f"{c01} - {c11} AS cost_missed"]
    connection.execute(f"CREATE VIEW raw_costs AS SELECT {', '.join(cells)} FROM {relation} AS r")


def view_attributes(opened: Opened, connection: duckdb.DuckDBPyConnection) -> None:
    """The view ``raw_stores`` or ``raw_skus``: the key and the segment."""
    column = opened.columns[0]
    relation = opened.source.relation([column.name, *_extra(opened)], None)
    cells = [_cell(column, opened.source.columns[column.name]), *_segment(opened)]
    connection.execute(f"CREATE VIEW raw_{opened.table} AS SELECT {', '.join(cells)} FROM {relation} AS r")


def listed_stores(listing: Opened, connection: duckdb.DuckDBPyConnection) -> set[str]:
    """The stores that the view ``raw_listing`` names."""
    with reading(listing.source.label):
        found = connection.execute("SELECT DISTINCT store_id FROM raw_listing WHERE store_id IS NOT NULL")
        return {str(store) for (store,) in found.fetchall()}


def load(opened: Iterable[Opened], connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Every ``raw_`` view as a table, with ids as ENUMs that sort like their text; returns rows by table.

    Ids as codes keep a week of ten million rows at a few bytes each, and reach pandas as categories. A text
    finds its code by a join, in a third of the time that a cast to the ENUM takes; a blank one finds none.
    """
    tables = list(opened)
    for key, kind in ID_TYPES.items():
        holders = [table for table in tables if table.table not in _other_keys(key)]
        for holder in holders:
            with reading(holder.source.label):
                connection.execute(
                    f"CREATE TABLE {kind}_{holder.table} AS SELECT DISTINCT {key} FROM raw_{holder.table}"
                )
        if not holders:
            continue
        union = " UNION ".join(f"SELECT {key} FROM {kind}_{holder.table}" for holder in holders)
        _enum(kind, f"SELECT {key} FROM ({union}) WHERE trim({key}) != '' ORDER BY 1", connection)
    rows = {}
    for table in tables:
        kinds = {name: kind for name, kind in ID_TYPES.items() if table.table not in _other_keys(name)}
        if table.table == "sales":
            weeks = "SELECT DISTINCT value FROM sales_weeks WHERE value IS NOT NULL ORDER BY 1"
            _enum("weeks", weeks, connection)
            kinds["week"] = "weeks"
        if table.segment is not None:
            split = f"SELECT DISTINCT segment FROM raw_{table.table} WHERE trim(segment) != '' ORDER BY 1"
            with reading(table.source.label):
                _enum("segments", split, connection)
            kinds["segment"] = "segments"
        codes = ", ".join(f"{kind}_coded.code AS {name}" for name, kind in kinds.items())
        joins = " ".join(
            f"LEFT JOIN {kind}_coded ON t.{name} = {kind}_coded.text" for name, kind in kinds.items()
        )
        with reading(table.source.label):
            connection.execute(
                f"CREATE TABLE {table.table} AS "
                f"SELECT t.* REPLACE ({codes}) FROM raw_{table.table} AS t {joins}"
            )
        rows[table.table] = number(f"SELECT count(*) FROM {table.table}", connection)
    return rows


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


def _other_keys(key: str) -> tuple[str, ...]:
    """Tables without this key."""
    return ("skus",) if key == "store_id" else ("stores",) if key == "sku_id" else ()


def _cost_form(source: Source) -> Table:
    two, four = (
        [name in source.columns for name in TWO_COSTS],
        [name in source.columns for name in FOUR_COSTS],
    )
    if any(two) and any(four):
        raise DataError(
            f"{source.label} has costs in both forms.",
            f"keep {' and '.join(TWO_COSTS)}, or {', '.join(FOUR_COSTS)}.",
        )
    if not any(four):
        return COSTS
    ids = tuple(column for column in COSTS.columns if not column.required)
    return Table(
        "costs", ids + tuple(Column(name, "money", "four-cost form") for name in FOUR_COSTS), COSTS.key
    )


def _refuse_type(column: Column, source: Source) -> None:
    kind = source.columns[column.name]
    number = kind in NUMBERS or kind.startswith("DECIMAL")
    text = kind == "VARCHAR" or kind.startswith("ENUM")
    allowed, must = {
        "text": (text or kind in WHOLE or kind == "UUID" or kind.endswith(",0)"), "text, or whole numbers"),
        "week": (text or is_time(kind), "ISO weeks such as 2026-W34, or dates"),
        "flag": (number or kind == "BOOLEAN" or (text and source.text_cells), "true or false, or 1 or 0"),
    }.get(column.kind, (number or (text and source.text_cells), "numbers"))
    # A column without any value has no type worth the name; its cells are judged one by one.
    if not allowed and kind not in ('"NULL"', "NULL"):
        raise DataError(
            f"column {column.name} of {source.label} is {kind}; it must be {must} ({column.meaning}).",
            "export it with that type.",
        )


def _cell(column: Column, kind: str) -> str:
    name = quoted(column.name)
    if column.kind == "text":
        return f"CAST({name} AS VARCHAR) AS {name}"
    if column.kind == "flag":
        if kind == "BOOLEAN":
            return f"CAST({name} AS TINYINT) AS {name}"
        text = f"lower(trim(CAST({name} AS VARCHAR)))"
        return (
            f"CAST(CASE WHEN {text} IS NULL OR {text} = '' THEN NULL WHEN {text} IN {YES} THEN 1 "
            f"WHEN {text} IN {NO} THEN 0 ELSE 2 END AS TINYINT) AS {name}"
        )
    return f"TRY_CAST({name} AS DOUBLE) AS {name}"


def _unreadable(name: str) -> str:
    return f"CASE WHEN TRY_CAST({name} AS DOUBLE) IS NULL THEN CAST({name} AS VARCHAR) END AS {name}_text"


def _segment(opened: Opened) -> list[str]:
    if opened.segment is None:
        return []
    return [f"CAST({quoted(opened.segment)} AS VARCHAR) AS segment"]


def _extra(opened: Opened) -> Sequence[str]:
    return [] if opened.segment is None or opened.has(opened.segment) else [opened.segment]


def _map_table(
    name: str, values: Mapping[str | None, str | int | None], kind: str, connection: duckdb.DuckDBPyConnection
) -> None:
    connection.execute(f"CREATE TABLE {name} (text VARCHAR, value {kind})")
    if values:
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?)", list(values.items()))


def _enum(name: str, query: str, connection: duckdb.DuckDBPyConnection) -> None:
    """The type ``name``, and the table ``<name>_coded`` of its values as text and as codes."""
    found = number(f"SELECT count(*) FROM ({query})", connection)
    # An ENUM needs at least one value; the empty text is never an id, so it has no code to be found by.
    connection.execute(f"CREATE TYPE {name} AS ENUM ({query if found else literal('')})")
    connection.execute(
        f"CREATE TABLE {name}_coded AS SELECT text, CAST(text AS {name}) AS code "
        f"FROM (SELECT unnest(enum_range(CAST(NULL AS {name}))) AS text) WHERE text != ''"
    )


def _joined(values: Sequence[Values]) -> Values:
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


def _categories(codes: NDArray[np.int32], texts: NDArray[np.str_]) -> Values:
    return pd.Categorical.from_codes(codes, pd.Index(texts.tolist(), dtype=object), validate=False)
