"""Sales of many weeks for a backtest: from a file, or from what weekly runs have kept.

In a file weeks are ISO weeks, the dates they start, or whole numbers that count up by one. Rows are taken as
they are or refused: nothing is repaired. Of the kept snapshots each week is taken from the newest one that
holds it, since later exports carry corrections; the rule of the weekly run tells which pairs were observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from ew_pipeline.backtest.view import TruthLabels
from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.coded_snapshot import CodedSnapshot, read_coded
from ew_pipeline.intake.panel import Panel, fill_ranged_zeros, panel_from_codes, panel_from_keys
from ew_pipeline.intake.ranging import Entries, Keys, WeekRows, choose_rule, observe, sold_in
from ew_pipeline.intake.segments import segments_of_pairs
from ew_pipeline.intake.snapshot import is_kept, load_snapshot, read_manifest
from ew_pipeline.intake.sources import Source, open_source, quoted
from ew_pipeline.ledger import Ledger

IntArray = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
ZERO_RULES = ("auto", "explicit", "listing", "inferred")
TRUE_WORDS = ("1", "1.0", "true", "t", "yes", "y")
TRUTH_COLUMNS = ("label", "anomaly", "truth", "outcome", "oos_frac")
CHECK_OUTCOMES = {"confirmed": 1.0, "healthy": 0.0}
MOST_WEEKS = 60  # what a policy can look back on: a level, its labels, and half a year of means
NO_KEYS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Grouping:
    """Which segment each pair of a panel belongs to: ``names[of[pair]]``."""

    names: tuple[str, ...]
    of: IntArray


@dataclass(frozen=True, eq=False)
class SalesHistory:
    """A panel, and how it was read.

    Attributes
    ----------
    zero_rule : explicit, listing or inferred.
    numbered : weeks were whole numbers; otherwise the panel's labels are ISO weeks.
    ignored : columns that were not used.
    grouping : segments of the pairs, when asked for.
    """

    panel: Panel
    zero_rule: str
    numbered: bool
    ignored: tuple[str, ...]
    grouping: Grouping | None = None

    def position(self, week: str) -> int:
        """The column of a week as the user writes it, also one outside the table."""
        first = _week_number(self.panel.weeks[0], self.numbered)
        return _week_number(week, self.numbered) - first


def read_history(
    sales: str,
    listing: str | None = None,
    zeros: str = "auto",
    trailing: int = 5,
    segment_by: str | None = None,
) -> SalesHistory:
    """Read every week of ``sales``.

    ``zeros`` says what a ranged pair without a row means; ``segment_by`` is a column of the sales or the
    listing to split the pairs by.
    """
    if zeros not in ZERO_RULES:
        raise UsageError(f"zeros is {zeros!r}.", f"choose one of {', '.join(ZERO_RULES)}.")
    with duckdb.connect() as connection:
        source = open_source(sales, connection)
        _require(source, ("store_id", "sku_id", "week", "units"))
        wanted = ["store_id", "sku_id", "week", "units", *(["promo"] if "promo" in source.columns else [])]
        beside = [name for name in source.columns if name == segment_by and name not in wanted]
        frame = _read(source, [*wanted, *beside], connection)
        listed = None
        if listing is not None:
            listed = _read_listing(listing, connection, None if beside else segment_by)
    if frame.empty:
        raise DataError(f"{source.label} has no rows.", "export it again.")
    history = history_of(frame, listed, zeros, trailing, source.label)
    ignored = tuple(name for name in source.columns if name not in (*wanted, segment_by))
    grouping = None if segment_by is None else _grouping(history, frame, listed, segment_by)
    return replace(history, ignored=ignored, grouping=grouping)


def history_of(
    frame: pd.DataFrame, listed: pd.DataFrame | None, zeros: str, trailing: int, label: str
) -> SalesHistory:
    """A panel from rows ``store_id``, ``sku_id``, ``week``, ``units`` (and ``promo``), zeros by the rule."""
    units = _numbers(frame["units"], "units", label)
    _refuse_bad_units(frame, units)
    weeks, number, numbered = _weeks(frame["week"], label)
    promo = None
    if "promo" in frame:
        promo = frame["promo"].astype("str").str.strip().str.lower().isin(TRUE_WORDS).to_numpy()
    panel = panel_from_codes(
        frame["store_id"].to_numpy(dtype=np.str_),
        frame["sku_id"].to_numpy(dtype=np.str_),
        number,
        units,
        weeks,
        promo,
    )
    rule = choose_rule(zeros, has_listing=listed is not None, has_zeros=bool((units == 0).any()))
    if rule == "listing" and listed is not None:
        panel = _fill_listed(panel, listed, numbered)
    elif rule == "inferred":
        panel = fill_ranged_zeros(panel, trailing)
    return SalesHistory(panel, rule, numbered, ())


def read_truth(truth: str, history: SalesHistory, column: str | None, threshold: float) -> TruthLabels:
    """Labels from a table ``store_id``, ``sku_id``, ``week`` and one column with 0/1, a share, or outcomes of
    store checks (confirmed, healthy; others are left out). An anomaly is a value >= ``threshold``."""
    with duckdb.connect() as connection:
        source = open_source(truth, connection)
        _require(source, ("store_id", "sku_id", "week"))
        named = column or next((name for name in TRUTH_COLUMNS if name in source.columns), None)
        if named is None or named not in source.columns:
            raise DataError(
                f"{truth} has no column {column or ' or '.join(TRUTH_COLUMNS)}"
                f" (it has {', '.join(source.columns)}).",
                "name the one that tells with --truth-column.",
            )
        frame = _read(source, ["store_id", "sku_id", "week", named], connection)
    text = frame[named].astype("str").str.strip().str.lower()
    values = text.map(CHECK_OUTCOMES).where(text.isin(CHECK_OUTCOMES), pd.to_numeric(text, errors="coerce"))
    values = values.where(~text.isin(("true", "false")), (text == "true").astype(np.float64))
    panel = history.panel
    row = panel.rows_of(frame["store_id"], frame["sku_id"])
    first = _week_number(panel.weeks[0], history.numbered)
    week = _map_weeks(frame["week"], history.numbered) - first
    kept = (row >= 0) & (week >= 0) & (week < panel.n_weeks) & values.notna().to_numpy()
    if not kept.any():
        raise DataError(
            f"no row of {truth} is of a pair and week of the sales, with a number in {named}.",
            "check that ids and weeks are written as in the sales.",
        )
    known = np.zeros(panel.units.shape, dtype=np.bool_)
    anomaly = np.zeros(panel.units.shape, dtype=np.bool_)
    known[row[kept], week[kept]] = True
    told = values.to_numpy(dtype=np.float64)[kept]
    anomaly[row[kept], week[kept]] = told >= threshold
    in_shares = bool(((told != 0.0) & (told != 1.0)).any())
    return TruthLabels(known, anomaly, threshold=threshold if in_shares else None)


def _require(source: Source, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in source.columns]
    if missing:
        raise DataError(
            f"{source.label} has no column {', '.join(missing)}; it has {', '.join(source.columns)}.",
            "rename its columns.",
        )


def _read(source: Source, names: Sequence[str], connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    def cell(name: str) -> str:
        if name == "week":
            return f"{source.week_text(name)} AS week"
        if name == "units" and not source.text_cells:
            return quoted(name)
        return f"CAST({quoted(name)} AS VARCHAR) AS {quoted(name)}"

    chosen = ", ".join(cell(name) for name in names)
    frame: pd.DataFrame = connection.execute(f"SELECT {chosen} FROM {source.relation(names, None)}").df()
    empty = frame[[name for name in ("store_id", "sku_id", "week") if name in frame]].isna().any(axis=1)
    if empty.any():
        raise DataError(
            f"{int(empty.sum())} of {len(frame)} rows of {source.label} lack a store, a SKU or a week.",
            "leave them out or complete them.",
        )
    return frame


def _numbers(column: pd.Series[Any], name: str, label: str) -> npt.NDArray[np.float64]:
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise DataError(
            f"{bad.size} of {values.size} rows of {label} have no number as {name}: "
            f"{name_some((f'row {k + 1}' for k in bad), bad.size)}.",
            "a week in which a pair was not ranged has no row; a week without a sale has 0.",
        )
    return values


def _refuse_bad_units(frame: pd.DataFrame, units: npt.NDArray[np.float64]) -> None:
    bad = np.flatnonzero((units < 0) | (units != np.floor(units)))
    if bad.size:
        named = (
            f"{frame['store_id'].iloc[k]}/{frame['sku_id'].iloc[k]} {frame['week'].iloc[k]}: {units[k]:g}"
            for k in bad
        )
        raise DataError(
            f"{bad.size} rows have units that are negative or not whole: {name_some(named, bad.size)}.",
            "net returns elsewhere and count whole units.",
        )


def _weeks(column: pd.Series[Any], label: str) -> tuple[tuple[str, ...], IntArray, bool]:
    text = column.astype("str").str.strip()
    numbered = bool(text.str.fullmatch(r"\d{1,6}").all())
    number = _map_weeks(text, numbered)
    first, last = int(number.min()), int(number.max())
    if last - first > 5000:
        raise DataError(f"the weeks of {label} span {last - first} weeks.", "check the week column.")
    names = tuple(str(k) if numbered else str(Week.at(k)) for k in range(first, last + 1))
    return names, number - first, numbered


def _map_weeks(column: pd.Series[Any], numbered: bool) -> IntArray:
    codes, values = pd.factorize(column.astype("str").str.strip())
    index = np.array([_week_number(value, numbered) for value in values], dtype=np.int64)
    return index[codes]


def _week_number(value: str, numbered: bool) -> int:
    if not numbered:
        return Week.parse(str(value)).index
    try:
        return int(value)
    except ValueError:
        raise UsageError(
            f"{value!r} is not a week of this table, whose weeks are whole numbers.", "write such a number."
        ) from None


def _read_listing(
    listing: str, connection: duckdb.DuckDBPyConnection, segment_by: str | None = None
) -> pd.DataFrame:
    source = open_source(listing, connection)
    _require(source, ("store_id", "sku_id"))
    present = [name for name in ("first_week", "last_week") if name in source.columns]
    beside = [segment_by] if segment_by is not None and segment_by in source.columns else []
    cells = [f"CAST({quoted(name)} AS VARCHAR) AS {quoted(name)}" for name in ("store_id", "sku_id", *beside)]
    cells += [f"{source.week_text(name)} AS {name}" for name in present]
    relation = source.relation(["store_id", "sku_id", *present, *beside], None)
    found: pd.DataFrame = connection.execute(f"SELECT {', '.join(cells)} FROM {relation}").df()
    return found


def _grouping(
    history: SalesHistory, frame: pd.DataFrame, listed: pd.DataFrame | None, column: str
) -> Grouping:
    """The segments as the weekly run would make them: the latest row of a pair says."""
    rows = frame if column in frame else listed
    if rows is None or column not in rows or column in ("store_id", "sku_id", "week", "units"):
        raise UsageError(
            f"there is no column {column!r} to split by in the sales or the listing.",
            "name one that is there with --segment-by.",
        )
    if "week" in rows:
        order = np.argsort(_map_weeks(rows["week"], history.numbered), kind="stable")
        rows = rows.iloc[order]
    panel = history.panel
    at = panel.rows_of(rows["store_id"], rows["sku_id"])
    codes, names = pd.factorize(rows[column], sort=True)
    m = panel.sku_ids.size
    keys = panel.store.astype(np.int64) * m + panel.sku
    segments = segments_of_pairs(
        tuple(map(str, names)),
        keys[at[at >= 0]],
        codes[at >= 0].astype(np.int32),
        (panel.store_ids.size, m),
    )
    return Grouping(segments.names, segments.of(keys).astype(np.int64))


def _fill_listed(panel: Panel, listed: pd.DataFrame, numbered: bool) -> Panel:
    """Zeros for ranged pairs of stores that reported; pairs outside the listing are left out."""
    row = panel.rows_of(listed["store_id"], listed["sku_id"])
    first = _week_number(panel.weeks[0], numbered)
    start = _bounds(listed, "first_week", numbered, 0, first)
    end = _bounds(listed, "last_week", numbered, panel.n_weeks - 1, first)
    ranged = _ranged(panel, row, np.maximum(start, 0), np.minimum(end, panel.n_weeks - 1))
    reported = np.zeros((panel.store_ids.size, panel.n_weeks), dtype=np.bool_)
    np.logical_or.at(reported, panel.store, panel.observed)
    units = panel.units.copy()
    units[ranged & ~panel.observed & reported[panel.store]] = 0.0
    units[~ranged] = np.nan
    kept = np.asarray(~np.isnan(units).all(axis=1))
    if not kept.any():
        raise DataError("the listing ranges no pair of the sales.", "check its ids and weeks.")
    filled = Panel(panel.store_ids, panel.sku_ids, panel.store, panel.sku, panel.weeks, units, panel.promo)
    return filled.take(kept)


def _ranged(panel: Panel, row: IntArray, start: IntArray, end: IntArray) -> Flags:
    """Whether each pair is listed in each week: lines that have begun by then less those that have ended."""
    known = (row >= 0) & (start <= end)
    change = np.zeros((panel.n_pairs, panel.n_weeks + 1), dtype=np.int32)
    np.add.at(change, (row[known], start[known]), 1)
    np.add.at(change, (row[known], end[known] + 1), -1)
    return np.asarray(np.cumsum(change, axis=1)[:, :-1] > 0)


def _bounds(listed: pd.DataFrame, name: str, numbered: bool, otherwise: int, first: int) -> IntArray:
    if name not in listed:
        return np.full(len(listed), otherwise)
    place, texts = pd.factorize(listed[name].fillna("").astype("str").str.strip())
    numbers = [_week_number(text, numbered) - first if text else otherwise for text in texts]
    return np.array(numbers, dtype=np.int64)[place]


@dataclass(frozen=True, eq=False)
class KeptSales:
    """A panel, and which snapshot (by its data hash) each week comes from."""

    history: SalesHistory
    snapshots: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class _KeptWeek:
    """One week in positions of the common ids."""

    rows: WeekRows
    listed: Keys | None
    withheld: Keys


def last_kept_week(ledger: Ledger) -> Week | None:
    """The newest week with sales that passed the contract."""
    return max(_hashes(ledger), default=None)


def read_kept(ledger: Ledger, settings: Settings) -> KeptSales:
    """The last ``MOST_WEEKS`` weeks of all that was kept."""
    made_for = _hashes(ledger)
    if not made_for:
        raise DataError(
            "no snapshot of any week is kept yet.", "run a week (ew run …), or give the sales with --sales."
        )
    newest = max(made_for)
    source: dict[Week, str] = {}
    for week in sorted(made_for, reverse=True):
        for label in read_manifest(settings.snapshots / made_for[week]).weeks:
            held = Week.parse(label)
            if held.index > newest.index - MOST_WEEKS:
                source.setdefault(held, made_for[week])
    coded = {name: read_coded(load_snapshot(name, settings).folder) for name in set(source.values())}
    store_ids = np.unique(np.concatenate([one.store_ids for one in coded.values()]))
    sku_ids = np.unique(np.concatenate([one.sku_ids for one in coded.values()]))
    weeks = {week: _common(coded[name], week, store_ids, sku_ids) for week, name in sorted(source.items())}
    history = _history(weeks, store_ids, sku_ids, _config(ledger, made_for[newest]))
    return KeptSales(history, {str(week): source[week] for week in weeks})


def _hashes(ledger: Ledger) -> dict[Week, str]:
    """The data hash of each week: of what is live, or of the newest run that was held back."""
    found: dict[Week, str] = {}
    for run in ledger.runs(status="held"):  # newest first
        if run.data_hash is not None and is_kept(run.data_hash):
            found.setdefault(run.week, run.data_hash)
    return found | {one.week: one.data_hash for one in ledger.live() if is_kept(one.data_hash)}


def _config(ledger: Ledger, data_hash: str) -> RunConfig:
    """How the weekly run that made the snapshot told zeros from pairs that are not ranged."""
    run = next(run for run in ledger.runs() if run.data_hash == data_hash)
    kept = {name: run.config[name] for name in ("zero_rule", "inferred_weeks") if name in run.config}
    return RunConfig.model_validate(kept)


def _common(
    coded: CodedSnapshot, week: Week, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]
) -> _KeptWeek:
    store, sku = np.searchsorted(store_ids, coded.store_ids), np.searchsorted(sku_ids, coded.sku_ids)

    def moved(key: Keys) -> Keys:  # both ids are sorted, so ascending keys stay ascending
        return np.asarray(store[key // coded.shape[1]] * sku_ids.size + sku[key % coded.shape[1]])

    rows = coded.weeks[week]
    return _KeptWeek(
        WeekRows(moved(rows.key), rows.units, rows.promo, rows.holiday),
        None if coded.listing is None else moved(coded.listing.at(week.index)),
        moved(coded.withheld.get(week, NO_KEYS)),
    )


def _history(
    weeks: Mapping[Week, _KeptWeek],
    store_ids: npt.NDArray[np.str_],
    sku_ids: npt.NDArray[np.str_],
    config: RunConfig,
) -> SalesHistory:
    has_zeros = any(bool((one.rows.units == 0).any()) for one in weeks.values())
    first, last = min(weeks), max(weeks)
    observed: list[tuple[int, Entries]] = []
    rule = "explicit"
    for week, one in weeks.items():
        wanted = "auto" if config.zero_rule == "listing" and one.listed is None else config.zero_rule
        rule = choose_rule(wanted, has_listing=one.listed is not None, has_zeros=has_zeros)
        before = [
            other.rows
            for earlier, other in weeks.items()
            if week.index - config.inferred_weeks <= earlier.index < week.index
        ]
        entries = observe(
            one.rows,
            rule,
            (store_ids.size, sku_ids.size),
            listed=one.listed,
            carried=sold_in(before) if rule == "inferred" else None,
            withheld=one.withheld,
        )
        observed.append((week.index - first.index, entries))
    panel = panel_from_keys(
        store_ids,
        sku_ids,
        np.concatenate([entries.key for _, entries in observed]),
        np.concatenate([np.full(entries.key.size, number) for number, entries in observed]),
        np.concatenate([entries.units for _, entries in observed]).astype(np.float64),
        tuple(str(week) for week in first.through(last)),
        np.concatenate([entries.promo for _, entries in observed]),
    )
    return SalesHistory(panel, rule, numbered=False, ignored=())
