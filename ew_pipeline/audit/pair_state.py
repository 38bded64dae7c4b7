"""What a snapshot knows of one pair: its weeks, and what it was in the week that was run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.coded_snapshot import CodedSnapshot, read_coded
from ew_pipeline.intake.ranging import WeekRows, contains, observe, on_holiday, reporting, sold_in

WEEKS_SHOWN = 16  # of a pair's past; a snapshot may hold a year of it
NO_KEYS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class HistoryWeek:
    """One week of a pair. ``units`` is None when it is not known; ``note`` says what is special."""

    week: str
    units: int | None
    note: str


@dataclass(frozen=True)
class PairState:
    """``state``: observed, promoted, quarantined, unlisted, not_ranged, not_reported, unknown_store or
    unknown_sku; ``words`` says so in a sentence."""

    state: str
    words: str
    units: int | None
    history: tuple[HistoryWeek, ...]


def pair_state(
    folder: Path, week: Week, config: RunConfig, zero_rule: str, store: str, sku: str
) -> PairState:
    """Look the pair up in the snapshot that the week was computed from."""
    coded = read_coded(folder)
    span = f"{next(iter(coded.weeks))} to {week}"
    i, j = _place(coded.store_ids, store), _place(coded.sku_ids, sku)
    if i is None:
        return PairState("unknown_store", f"store {store} is in no table of {span}", None, ())
    if j is None:
        return PairState("unknown_sku", f"SKU {sku} is in no table of {span}", None, ())
    key = i * coded.shape[1] + j
    recent = list(coded.weeks)[-WEEKS_SHOWN:]
    history = tuple(_history_week(coded, other, key) for other in recent)
    state, words = _state(coded, week, config, zero_rule, store, sku, key)
    return PairState(state, words, history[-1].units, history)


def _state(
    coded: CodedSnapshot, week: Week, config: RunConfig, rule: str, store: str, sku: str, key: int
) -> tuple[str, str]:
    rows = coded.weeks[week]
    if not reporting(rows, coded.shape)[key // coded.shape[1]]:
        return "not_reported", f"store {store} has no row in {week}: its data are missing, nothing is known"
    if _has(coded.withheld.get(week, NO_KEYS), key):
        return "quarantined", f"its row of {week} is in quarantine, so it is not known what it sold"
    listed = None if coded.listing is None else coded.listing.at(week.index)
    if listed is not None and not _has(listed, key):
        if _units(rows, key):
            return "unlisted", f"it sold, but the listing does not range SKU {sku} in store {store} in {week}"
        return "not_ranged", f"the listing does not range SKU {sku} in store {store} in {week}"
    first = week.shift(-config.inferred_weeks)
    carried = sold_in([rows for other, rows in coded.weeks.items() if first <= other < week])
    entries = observe(
        rows, rule, coded.shape, listed=listed, carried=carried, withheld=coded.withheld.get(week, NO_KEYS)
    )
    place = np.flatnonzero(entries.key == key)
    if place.size == 0:
        why = (
            f"it sold nothing in the {config.inferred_weeks} weeks before either"
            if rule == "inferred"
            else "without a listing, only pairs with a row are ranged"
        )
        return "not_ranged", f"it has no row in {week}, and {why}"
    if config.promotions == "exclude" and entries.promo[place[0]]:
        return "promoted", f"it was promoted in {week}, and promoted pairs are left out"
    filled = " (no row: the zero is implied)" if entries.filled[place[0]] else ""
    return "observed", f"it was ranged and its store reported{filled}"


def _history_week(coded: CodedSnapshot, week: Week, key: int) -> HistoryWeek:
    rows, store = coded.weeks[week], key // coded.shape[1]
    notes: list[str] = []
    units = _units(rows, key)
    if units is None:
        listed = None if coded.listing is None else coded.listing.at(week.index)
        if _has(coded.withheld.get(week, NO_KEYS), key):
            notes.append("in quarantine")
        elif not reporting(rows, coded.shape)[store]:
            notes.append("store did not report")
        elif listed is not None:
            units, words = (0, "no row") if _has(listed, key) else (None, "not ranged")
            notes.append(words)
        else:
            notes.append("no row")
    elif rows.promo is not None and rows.promo[np.searchsorted(rows.key, key)]:
        notes.append("promoted")
    if on_holiday(rows, coded.shape)[store]:
        notes.append("holiday")
    return HistoryWeek(str(week), units, ", ".join(notes))


def _units(rows: WeekRows, key: int) -> int | None:
    place = int(np.searchsorted(rows.key, key))
    return int(rows.units[place]) if place < rows.key.size and rows.key[place] == key else None


def _has(keys: Any, key: int) -> bool:
    return bool(contains(keys, np.array([key], dtype=np.int64))[0])


def _place(ids: Any, name: str) -> int | None:
    place = int(np.searchsorted(ids, name))
    return place if place < ids.size and ids[place] == name else None


def as_sentence(state: PairState, coverage: Mapping[str, Any] | None) -> str:
    """The state with what the run knew of the whole chain."""
    missing = (coverage or {}).get("stores_missing") or ()
    more = f" ({len(missing)} stores did not report)" if state.state == "not_reported" and missing else ""
    return state.words + more
