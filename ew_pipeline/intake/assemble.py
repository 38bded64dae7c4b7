"""From a snapshot to what the detector takes: a matrix, a level and costs per segment.

Uses the snapshot and the configuration alone, so that a replay years later gives the same matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.coded_snapshot import CodedSnapshot, read_coded
from ew_pipeline.intake.costs_table import price_pairs
from ew_pipeline.intake.history import panel_level
from ew_pipeline.intake.panel import Panel, panel_from_keys
from ew_pipeline.intake.ranging import Entries, Keys, choose_rule, observe, on_holiday, reporting, sold_in
from ew_pipeline.intake.snapshot import Snapshot
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.weekly.past import Past, look_back

T = TypeVar("T", bound=np.generic)
NO_KEYS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class SegmentInput:
    """One matrix to fit. All arrays run over its observed pairs in row-major order.

    Attributes
    ----------
    name : value of the column that splits the chain; ``all`` when there is one matrix.
    sales : the week.
    level : what each pair used to sell, from past weeks alone; None when there is no past.
    scored : False where store, SKU and pair have too little data; such a pair is never flagged.
    history : past weeks of its own that each pair has, promotions and holidays not counted.
    costs : of each pair.
    """

    name: str
    sales: SalesMatrix
    level: npt.NDArray[np.float64] | None
    scored: npt.NDArray[np.bool_]
    history: npt.NDArray[np.int32]
    costs: Costs


@dataclass(frozen=True)
class Coverage:
    """Which pairs are in the matrix, and where the others went."""

    zero_rule: str  # "explicit", "listing" or "inferred"
    stores_expected: int
    stores_reporting: int
    stores_missing: tuple[str, ...]  # listed or seen before, but no row this week
    pairs_observed: int  # in the matrix, zeros included
    pairs_zero: int
    pairs_zero_filled: int  # of them, zeros that had no row
    pairs_promoted: int  # left out, or kept, by the setting
    pairs_unlisted: int  # sold, but not ranged by the listing: left out
    pairs_not_scored: int  # too little data on store, SKU and pair
    history_weeks: int  # weeks of the past that the level is built from; 0: cross-section only


@dataclass(frozen=True, eq=False)
class Prepared:
    """A week, ready to be fitted: its segments in order of their names, and the weeks before."""

    week: Week
    segments: tuple[SegmentInput, ...]
    coverage: Coverage
    past: Past


@dataclass(frozen=True, eq=False)
class _Past:
    """Observed pairs of earlier weeks, below each other; ``week`` counts ``labels``."""

    key: Keys
    week: npt.NDArray[np.int8]
    units: npt.NDArray[np.int32]
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Assembled:
    """A week with all but its levels. ``own``: of every segment, the panel that its level is made from, which
    ends with the week; None without a past."""

    prepared: Prepared
    own: tuple[Panel | None, ...]

    @property
    def has_past(self) -> bool:
        return any(panel is not None for panel in self.own)


def prepare(snapshot: Snapshot, week: Week, config: RunConfig) -> Prepared:
    """Matrices, levels and costs of ``week``, and what is in them."""
    return with_levels(assemble(snapshot, week, config), config)


def assemble(snapshot: Snapshot, week: Week, config: RunConfig) -> Assembled:
    """The same without the levels, which ``with_levels`` adds."""
    coded = read_coded(snapshot.folder)
    _refuse_other_request(coded, week, config)
    rule = _rule(coded, config)
    now = _entries(coded, week, rule, config)
    observed = now.key.size
    promoted = int(np.count_nonzero(now.promo))
    if config.promotions == "exclude" and promoted:
        now = now.take(~now.promo)
    if now.key.size == 0:
        raise DataError(
            f"no pair of {week} is left: {promoted} promoted, {now.unlisted} sold but not in the listing.",
            "check that the listing and the sales name stores and SKUs alike.",
        )
    past = _past(coded, week, rule, config)
    segments, own = zip(*_segments(coded, now, past, week, config), strict=True)
    before = look_back(coded, week, config, observed, lambda other: _entries(coded, other, rule, config))
    coverage = _coverage(coded, week, rule, now, promoted, past, segments, config.recent_weeks)
    return Assembled(Prepared(week, segments, coverage, before), own)


def with_levels(assembled: Assembled, config: RunConfig) -> Prepared:
    """What each pair used to sell, from its segment's past weeks alone."""
    prepared = assembled.prepared
    levels = (
        None if panel is None else panel_level(panel, panel.n_weeks - 1, config.history_weeks)
        for panel in assembled.own
    )
    segments = tuple(
        replace(segment, level=level) for segment, level in zip(prepared.segments, levels, strict=True)
    )
    return replace(prepared, segments=segments)


def _refuse_other_request(coded: CodedSnapshot, week: Week, config: RunConfig) -> None:
    made_for = coded.manifest
    if made_for.week != str(week):
        raise UsageError(
            f"the snapshot is of {made_for.week}, not of {week}.", f"run it for {made_for.week}."
        )
    if made_for.segment_by != config.segment_by:
        raise UsageError(
            f"the snapshot was made to be split by {made_for.segment_by}, not by {config.segment_by}.",
            "run the week again from its sources.",
        )
    if week not in coded.weeks:
        raise DataError(f"every row of {week} is in quarantine.", "fix the data and run again.")


def _rule(coded: CodedSnapshot, config: RunConfig) -> str:
    has_zeros = any(bool((rows.units == 0).any()) for rows in coded.weeks.values())
    return choose_rule(config.zero_rule, has_listing=coded.listing is not None, has_zeros=has_zeros)


def _entries(coded: CodedSnapshot, week: Week, rule: str, config: RunConfig) -> Entries:
    """The observed pairs of any week of the snapshot, by one and the same rule."""
    carried = None
    if rule == "inferred":
        first = week.shift(-config.inferred_weeks)
        carried = sold_in([rows for other, rows in coded.weeks.items() if first <= other < week])
    return observe(
        coded.weeks[week],
        rule,
        coded.shape,
        listed=None if coded.listing is None else coded.listing.at(week.index),
        carried=carried,
        withheld=coded.withheld.get(week, NO_KEYS),
    )


def _past(coded: CodedSnapshot, week: Week, rule: str, config: RunConfig) -> _Past:
    """What the level is built from: no promotions (unless they count like any week), no holidays."""
    keys, units, weeks = [NO_KEYS], [np.empty(0, np.int32)], [np.empty(0, np.int8)]
    labels: list[str] = []
    first = week.shift(-config.history_weeks) if config.history else week
    for other in [other for other in coded.weeks if first <= other < week]:
        entries = _entries(coded, other, rule, config)
        usable = ~on_holiday(coded.weeks[other], coded.shape)[entries.key // coded.shape[1]]
        if config.promotions == "exclude":
            usable &= ~entries.promo
        if not usable.any():
            continue
        keys.append(entries.key[usable])
        units.append(entries.units[usable])
        weeks.append(np.full(keys[-1].size, len(labels), dtype=np.int8))
        labels.append(str(other))
    return _Past(np.concatenate(keys), np.concatenate(weeks), np.concatenate(units), tuple(labels))


def _segments(
    coded: CodedSnapshot, now: Entries, past: _Past, week: Week, config: RunConfig
) -> Iterator[tuple[SegmentInput, Panel | None]]:
    """Every segment without its level, and what the level is made from."""
    of_now, of_past = coded.segments.of(now.key), coded.segments.of(past.key)
    names = coded.segments.names
    found = np.unique(of_now) if len(names) > 1 else np.zeros(1, dtype=np.int32)
    for code in sorted(found, key=lambda code: names[code]):
        here, before = of_now == code, of_past == code
        everything = bool(here.all())
        key = now.key if everything else now.key[here]
        units = now.units if everything else now.units[here]
        sales = _matrix(coded, key, units, week)
        history = _weeks_of_own(key, past.key[before])
        segment = SegmentInput(
            name=names[code],
            sales=sales,
            level=None,
            scored=_frozen(_enough(sales, history, config.min_pair_entries)),
            history=_frozen(history),
            costs=_costs(coded, key, (config.default_cost_false_alarm, config.default_cost_missed)),
        )
        yield segment, _own_past(coded, key, units, past, before, week)


def _costs(coded: CodedSnapshot, key: Keys, default: tuple[float, float]) -> Costs:
    if coded.costs is None:
        return Costs(*default)
    store, sku = np.divmod(key, coded.shape[1])
    return price_pairs(coded.costs, store, sku, coded.shape, default)


def _matrix(coded: CodedSnapshot, key: Keys, units: npt.NDArray[np.int32], week: Week) -> SalesMatrix:
    """The pairs, whose keys ascend, as a matrix of the stores and SKUs that occur in them."""
    first = np.arange(coded.shape[0] + 1, dtype=np.int64) * coded.shape[1]  # key of each store
    indptr = np.searchsorted(key, first)
    by_store = np.diff(indptr)
    sku = (key - np.repeat(first[:-1], by_store)).astype(np.int32)
    rows, cols = np.flatnonzero(by_store), np.flatnonzero(np.bincount(sku, minlength=coded.shape[1]))
    if cols.size < coded.shape[1]:
        place = np.zeros(coded.shape[1], dtype=np.int32)
        place[cols] = np.arange(cols.size, dtype=np.int32)
        sku = place[sku]
    return SalesMatrix(
        np.concatenate([[0], indptr[1:][rows]]), _frozen(sku), _frozen(units), (rows.size, cols.size),
        coded.store_ids[rows], coded.sku_ids[cols], str(week),
    )  # fmt: skip


def _weeks_of_own(key: Keys, past: Keys) -> npt.NDArray[np.int32]:
    if past.size == 0:
        return np.zeros(key.size, dtype=np.int32)
    position = np.searchsorted(key, past)
    position[position == key.size] = 0
    return np.bincount(position[key[position] == past], minlength=key.size).astype(np.int32)


def _enough(sales: SalesMatrix, history: npt.NDArray[np.int32], least: int) -> npt.NDArray[np.bool_]:
    """A row and a column that can carry an estimate, or a past of its own that can."""
    by_store, by_sku = np.diff(sales.indptr), np.bincount(sales.cols, minlength=sales.shape[1])
    crossed = (by_store[sales.rows] >= least) & (by_sku[sales.cols] >= least)
    return np.asarray(crossed | (history >= least))


def _own_past(
    coded: CodedSnapshot,
    key: Keys,
    units: npt.NDArray[np.int32],
    past: _Past,
    before: npt.NDArray[np.bool_],
    week: Week,
) -> Panel | None:
    """The segment's past weeks with the week itself behind them."""
    if not before.any():
        return None
    columns = np.concatenate([past.week[before], np.full(key.size, len(past.labels), dtype=np.int8)])
    return panel_from_keys(
        coded.store_ids,
        coded.sku_ids,
        np.concatenate([past.key[before], key]),
        columns,
        np.concatenate([past.units[before], units]),
        (*past.labels, str(week)),
    )


def _coverage(
    coded: CodedSnapshot,
    week: Week,
    rule: str,
    now: Entries,
    promoted: int,
    past: _Past,
    segments: tuple[SegmentInput, ...],
    recent: int,
) -> Coverage:
    seen = reporting(coded.weeks[week], coded.shape)
    expected = np.zeros(coded.shape[0], dtype=np.bool_)
    if coded.listing is not None:
        expected[coded.listing.at(week.index) // coded.shape[1]] = True
    else:
        for other, rows in coded.weeks.items():
            if other >= week.shift(-recent):
                expected |= reporting(rows, coded.shape)
    zero = now.units == 0
    return Coverage(
        zero_rule=rule,
        stores_expected=int(np.count_nonzero(expected)),
        stores_reporting=int(np.count_nonzero(expected & seen)),
        stores_missing=tuple(str(store) for store in coded.store_ids[expected & ~seen]),
        pairs_observed=now.key.size,
        pairs_zero=int(np.count_nonzero(zero)),
        pairs_zero_filled=int(np.count_nonzero(now.filled)),
        pairs_promoted=promoted,
        pairs_unlisted=now.unlisted,
        pairs_not_scored=sum(int(np.count_nonzero(~segment.scored)) for segment in segments),
        history_weeks=len(past.labels),
    )


def _frozen(values: npt.NDArray[T]) -> npt.NDArray[T]:
    values.setflags(write=False)
    return values
