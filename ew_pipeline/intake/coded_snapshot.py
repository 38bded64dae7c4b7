"""The tables of a snapshot as positions: stores and SKUs in sorted text order, pairs as keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ew_pipeline.core.week import Week
from ew_pipeline.intake.costs_table import ALL, CostRows
from ew_pipeline.intake.ranging import Counts, Keys, Listing, WeekRows
from ew_pipeline.intake.segments import Codes, Segments, one_segment, segments_of_axis, segments_of_pairs
from ew_pipeline.intake.snapshot import Manifest, read_manifest, read_table

LONG_AGO, NEVER = np.iinfo(np.int32).min, np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class CheckRows:
    """What stores found in earlier weeks. ``weight``: how many pairs a check stands for."""

    key: Keys
    week: Counts  # index
    wrong: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CodedSnapshot:
    """``weeks`` ascending in time; the last is the week that is run."""

    store_ids: npt.NDArray[np.str_]
    sku_ids: npt.NDArray[np.str_]
    weeks: dict[Week, WeekRows]
    withheld: dict[Week, Keys]
    listing: Listing | None
    costs: CostRows | None
    checks: CheckRows | None
    segments: Segments
    manifest: Manifest = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.store_ids.size, self.sku_ids.size


def read_coded(folder: Path) -> CodedSnapshot:
    """Read every table of a snapshot."""
    manifest = read_manifest(folder)
    tables = {name: read_table(folder, name) for name in manifest.tables if name != "sales"}
    # One week at a time: text never stands side by side with the codes of all weeks.
    parts = [read_table(folder, "sales", part=part, without="week") for part in range(len(manifest.weeks))]
    axes = [*parts, *(tables[name] for name in ("listing", "withheld") if name in tables)]
    store_ids, sku_ids = _ids(axes, "store_id"), _ids(axes, "sku_id")
    shape = store_ids.size, sku_ids.size
    weeks = {
        Week.parse(label): _week_rows(part, store_ids, sku_ids)
        for label, part in zip(manifest.weeks, parts, strict=True)
    }
    return CodedSnapshot(
        store_ids=store_ids,
        sku_ids=sku_ids,
        weeks=weeks,
        withheld=_withheld(tables.get("withheld"), store_ids, sku_ids),
        listing=_listing(tables["listing"], store_ids, sku_ids) if "listing" in tables else None,
        costs=_costs(tables["costs"], store_ids, sku_ids) if "costs" in tables else None,
        checks=_checks(tables["checks"], store_ids, sku_ids) if "checks" in tables else None,
        segments=_segments(manifest, parts, list(weeks.values()), tables, store_ids, sku_ids, shape),
        manifest=manifest,
    )


def _text(column: pa.ChunkedArray) -> tuple[Codes, npt.NDArray[np.str_]]:
    """Codes (-1 where missing) and the values they stand for."""
    joined = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(joined, pa.ChunkedArray):  # an empty table
        joined = (
            pa.concat_arrays(joined.chunks)
            if joined.num_chunks
            else pa.array([], pa.dictionary(pa.int32(), pa.string()))
        )
    indices = joined.indices.fill_null(-1) if joined.null_count else joined.indices
    codes = indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return codes, np.array(joined.dictionary.to_pylist(), dtype=np.str_)


def _ids(tables: list[pa.Table], column: str) -> npt.NDArray[np.str_]:
    found = [np.unique(_text(table[column])[1]) for table in tables]
    return np.unique(np.concatenate(found))


def _positions(column: pa.ChunkedArray, ids: npt.NDArray[np.str_]) -> npt.NDArray[np.int64]:
    """Position of each text in ``ids``; -1 where missing, -2 where it is none of them."""
    codes, names = _text(column)
    place = np.full(names.size + 1, -1, dtype=np.int64)  # the last one is for code -1
    if names.size and ids.size:
        position = np.minimum(np.searchsorted(ids, names), ids.size - 1)
        place[:-1] = np.where(ids[position] == names, position, -2)
    return place[codes]


def _keys(table: pa.Table, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]) -> Keys:
    key = _positions(table["store_id"], store_ids)
    key *= sku_ids.size
    key += _positions(table["sku_id"], sku_ids)
    return key


def _week_rows(part: pa.Table, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]) -> WeekRows:
    def flags(name: str) -> npt.NDArray[np.bool_] | None:
        return part[name].to_numpy().astype(np.bool_) if name in part.column_names else None

    units: Counts = part["units"].to_numpy().astype(np.int32, copy=False)
    return WeekRows(_keys(part, store_ids, sku_ids), units, flags("promo"), flags("holiday"))


def _withheld(
    table: pa.Table | None, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]
) -> dict[Week, Keys]:
    if table is None:
        return {}
    codes, labels = _text(table["week"])
    keys = _keys(table, store_ids, sku_ids)
    return {Week.parse(str(label)): np.unique(keys[codes == code]) for code, label in enumerate(labels)}


def _listing(table: pa.Table, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]) -> Listing:
    def weeks(name: str, missing: int) -> Counts:
        codes, labels = _text(table[name])
        index = np.array([*(Week.parse(str(label)).index for label in labels), missing], dtype=np.int32)
        return np.asarray(index[codes])

    return Listing(_keys(table, store_ids, sku_ids), weeks("first_week", LONG_AGO), weeks("last_week", NEVER))


def _costs(table: pa.Table, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]) -> CostRows:
    store, sku = _positions(table["store_id"], store_ids), _positions(table["sku_id"], sku_ids)
    known = (store >= ALL) & (sku >= ALL)
    money: dict[str, Any] = {
        name: table[name].to_numpy().astype(np.float64)[known] for name in ("cost_false_alarm", "cost_missed")
    }
    return CostRows(store[known], sku[known], money["cost_false_alarm"], money["cost_missed"])


def _checks(table: pa.Table, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]) -> CheckRows:
    store, sku = _positions(table["store_id"], store_ids), _positions(table["sku_id"], sku_ids)
    known = (store >= 0) & (sku >= 0)
    codes, labels = _text(table["week"])
    index = np.array([Week.parse(str(label)).index for label in labels], dtype=np.int32)
    return CheckRows(
        (store * sku_ids.size + sku)[known],
        index[codes][known],
        table["wrong"].to_numpy().astype(np.bool_)[known],
        table["weight"].to_numpy().astype(np.float64)[known],
    )


def _segments(
    manifest: Manifest,
    parts: list[pa.Table],
    weeks: list[WeekRows],
    tables: dict[str, pa.Table],
    store_ids: npt.NDArray[np.str_],
    sku_ids: npt.NDArray[np.str_],
    shape: tuple[int, int],
) -> Segments:
    source = manifest.segment_table
    if source is None:
        return one_segment(shape[1])
    if source == "sales":
        named = [_text(part["segment"]) for part in parts]
        names = np.unique(np.concatenate([values for _, values in named]))
        codes = [np.append(np.searchsorted(names, values), -1)[code] for code, values in named]
        keys = np.concatenate([rows.key for rows in weeks])
        return segments_of_pairs(tuple(map(str, names)), keys, np.concatenate(codes).astype(np.int32), shape)
    code, values = _text(tables[source]["segment"])
    names, place = np.unique(values, return_inverse=True)
    codes_of_rows = np.append(place, -1)[code].astype(np.int32)
    if source == "listing":
        keys = _keys(tables[source], store_ids, sku_ids)
        return segments_of_pairs(tuple(map(str, names)), keys, codes_of_rows, shape)
    stores = source == "stores"
    ids = store_ids if stores else sku_ids
    position = _positions(tables[source]["store_id" if stores else "sku_id"], ids)
    by_position = np.full(ids.size, -1, dtype=np.int32)
    by_position[position[position >= 0]] = codes_of_rows[position >= 0]
    return segments_of_axis(tuple(map(str, names)), by_position, shape[1], stores=stores)
