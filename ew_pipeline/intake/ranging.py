"""Observed, not ranged, not reported: which pairs of a week are in the matrix, and with what number.

A pair is one number, its key: store position times number of SKUs plus SKU position, both positions in sorted
text order, so ascending keys are row-major order. Every array of keys here is ascending and without repeats.

========  ===========================================================================================
explicit  the rows are the observed pairs, zeros included
listing   a pair the listing ranges in the week is observed where its store reported; no row means zero
inferred  no listing, no zeros: a pair that sold in the weeks before counts as ranged in the same way
========  ===========================================================================================

Whatever the rule, a pair that a given listing does not range is left out, a store without a row has not
reported, and a pair whose row is in quarantine is neither sold nor zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import UsageError

Keys = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class WeekRows:
    """The rows of one week. ``promo`` and ``holiday``: None when the table does not say."""

    key: Keys
    units: Counts
    promo: Flags | None = None
    holiday: Flags | None = None


@dataclass(frozen=True, eq=False)
class Listing:
    """Ranged from the first to the last week, by index; open ends are very small and very large."""

    key: Keys
    first: Counts
    last: Counts

    def at(self, week: int) -> Keys:
        """The pairs ranged in a week."""
        return self.key[(self.first <= week) & (week <= self.last)]


@dataclass(frozen=True, eq=False)
class Entries:
    """The observed pairs of a week. ``filled``: zeros that had no row. ``unlisted``: sold, but left out."""

    key: Keys
    units: Counts
    filled: Flags
    promo: Flags
    unlisted: int

    def take(self, kept: Flags) -> Entries:
        return Entries(self.key[kept], self.units[kept], self.filled[kept], self.promo[kept], self.unlisted)


def choose_rule(wanted: str, *, has_listing: bool, has_zeros: bool) -> str:
    """The rule that ``auto`` stands for."""
    if wanted == "listing" and not has_listing:
        raise UsageError(
            "the rule for zeros is listing, but there is no listing.", "give one with --listing."
        )
    if wanted != "auto":
        return wanted
    return "listing" if has_listing else "explicit" if has_zeros else "inferred"


def observe(
    rows: WeekRows,
    rule: str,
    shape: tuple[int, int],
    *,
    listed: Keys | None,
    carried: Keys | None,
    withheld: Keys,
) -> Entries:
    """Apply ``rule`` to one week.

    Parameters
    ----------
    shape : number of stores and of SKUs.
    listed : what the listing ranges in the week; None without a listing.
    carried : what sold in the weeks before; needed by ``inferred``.
    withheld : pairs whose row of this week is in quarantine.
    """
    ranged_rows = np.ones(rows.key.size, dtype=np.bool_) if listed is None else contains(listed, rows.key)
    unlisted = int(np.count_nonzero(~ranged_rows & (rows.units > 0)))
    zeros = _implied_zeros(rows, rule, shape, listed, carried, withheld)
    promo = np.zeros(rows.key.size, dtype=np.bool_) if rows.promo is None else rows.promo
    if zeros.size == 0:
        filled = np.zeros(rows.key.size, dtype=np.bool_)
        everything = Entries(rows.key, rows.units, filled, promo, unlisted)
        return everything if ranged_rows.all() else everything.take(ranged_rows)
    key = np.concatenate([rows.key[ranged_rows], zeros])
    order = np.argsort(key, kind="stable")  # two ascending runs: one merge
    filled = order >= key.size - zeros.size
    units = np.concatenate([rows.units[ranged_rows], np.zeros(zeros.size, dtype=np.int32)])[order]
    on_promotion = _promoted_skus(rows, shape[1])[zeros % shape[1]]
    return Entries(
        key[order], units, filled, np.concatenate([promo[ranged_rows], on_promotion])[order], unlisted
    )


def reporting(rows: WeekRows, shape: tuple[int, int]) -> Flags:
    """By store: has it any row in the week?"""
    seen = np.zeros(shape[0], dtype=np.bool_)
    seen[rows.key // shape[1]] = True
    return seen


def on_holiday(rows: WeekRows, shape: tuple[int, int]) -> Flags:
    """By store: is the week unlike others there? One row that says so is enough."""
    stores = np.zeros(shape[0], dtype=np.bool_)
    if rows.holiday is not None:
        stores[rows.key[rows.holiday] // shape[1]] = True
    return stores


def sold_in(weeks: Sequence[WeekRows]) -> Keys:
    """Pairs with a sale in any of the weeks."""
    keys = [rows.key[rows.units > 0] for rows in weeks]
    return np.unique(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)


def contains(ascending: Keys, values: Keys) -> Flags:
    """Which of ``values`` are in ``ascending``."""
    if ascending.size == 0:
        return np.zeros(values.size, dtype=np.bool_)
    position = np.searchsorted(ascending, values)
    position[position == ascending.size] = 0
    return np.asarray(ascending[position] == values)


def _implied_zeros(
    rows: WeekRows,
    rule: str,
    shape: tuple[int, int],
    listed: Keys | None,
    carried: Keys | None,
    withheld: Keys,
) -> Keys:
    if rule == "explicit":
        return np.empty(0, dtype=np.int64)
    ranged = listed if rule == "listing" else carried
    if ranged is None:
        raise UsageError(f"the rule {rule} needs to know which pairs are ranged.")
    if rule == "inferred" and listed is not None:
        ranged = ranged[contains(listed, ranged)]
    ranged = ranged[reporting(rows, shape)[ranged // shape[1]]]
    return ranged[~contains(rows.key, ranged) & ~contains(withheld, ranged)]


def _promoted_skus(rows: WeekRows, skus: int) -> Flags:
    """By SKU: promoted in most of its rows. So are its pairs without a row, which cannot say themselves."""
    if rows.promo is None:
        return np.zeros(skus, dtype=np.bool_)
    sku = rows.key % skus
    return np.bincount(sku[rows.promo], minlength=skus) * 2 > np.bincount(sku, minlength=skus)
