"""Sales of many weeks from the validated snapshots that the runs have kept.

A snapshot holds the week it was made for and some weeks before it. Each week is taken from the newest one
that holds it, since later exports carry corrections; which of its pairs were observed, not ranged or not
reported is told by the rule of the weekly run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.tables import SalesHistory
from ew_pipeline.core.errors import DataError
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.coded import CodedSnapshot, read_coded
from ew_pipeline.intake.panel import panel_from_keys
from ew_pipeline.intake.ranging import Entries, Keys, WeekRows, choose_rule, observe, sold_in
from ew_pipeline.intake.snapshot import is_kept, load_snapshot, read_manifest
from ew_pipeline.ledger import Ledger

MOST_WEEKS = 60  # what a policy can look back on: a level, its labels, and half a year of means
NO_KEYS = np.empty(0, dtype=np.int64)


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
