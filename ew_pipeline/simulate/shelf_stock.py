"""True and recorded stock of every place on the shelves, one day at a time.

A day: deliveries arrive and are booked, misplaced goods are found, the shop sells; at night thieves and
accidents take units, some shelves are counted, and the store orders on its record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.simulate.population import BoolArray, IntArray
from ew_pipeline.simulate.settings import FloatArray
from ew_pipeline.simulate.shelf_demand import draw_demand

NEGATIVE_COUNT = 1 / 7  # probability a night that a negative record is counted
INCIDENTS = ("misplaced", "found", "miscount", "miscount_units", "theft", "theft_units", "damage", "count")


@dataclass(frozen=True, eq=False)
class Stock:
    """Per place: units on the shelf, units in the wrong place of the store, units on record.

    ``on_order`` has one row per day until it arrives, tomorrow's first.
    """

    shelf: IntArray
    misplaced: IntArray
    record: IntArray
    on_order: IntArray


@dataclass(frozen=True, eq=False)
class Risks:
    """Probability per place of each error on this day, and their sizes.

    ``count``, ``notice`` : probability of a count tonight; of one more for each unit that a customer missed.
    """

    misplaced: FloatArray
    miscount: FloatArray
    theft: FloatArray
    damage: FloatArray
    count: float
    notice: float
    found: float
    theft_units: float


@dataclass(frozen=True, eq=False)
class Ordering:
    """How a store orders: at or below ``reorder`` on record and on order, whole cases above ``reorder``.

    ``supplied``: whether the place is ordered at all and its supplier delivers today.
    """

    reorder: IntArray
    case: IntArray
    supplied: BoolArray


@dataclass(frozen=True, eq=False)
class Day:
    """What moved on one day, per place.

    Attributes
    ----------
    delivered, booked : units that arrived; units added to the record for them.
    misplaced, found : units of the delivery that did not reach the shelf; units that came back to it.
    opening, opening_record : shelf and record when the shop opened.
    demand, sold : units that customers wanted, and got.
    stolen, damaged : units that left unrecorded.
    counted : whether the record was set right at night.
    ordered : units ordered at night, which arrive after the lead time.
    """

    delivered: IntArray
    booked: IntArray
    misplaced: IntArray
    found: IntArray
    opening: IntArray
    opening_record: IntArray
    demand: IntArray
    sold: IntArray
    stolen: IntArray
    damaged: IntArray
    counted: BoolArray
    ordered: IntArray


def run_day(
    stock: Stock,
    mean: FloatArray,
    basket_units: float,
    risks: Risks,
    ordering: Ordering,
    customers: np.random.Generator,
    incidents: np.random.Generator,
) -> tuple[Stock, Day]:
    """Return the stock after a day with expected demand ``mean``, and what moved.

    Every place uses the same draws whatever its stock is, so a repaired record leaves the others alone.
    """
    luck = dict(zip(INCIDENTS, incidents.random((len(INCIDENTS), mean.size)), strict=True))
    delivered = stock.on_order[0]
    booked = delivered + _wrong_count(luck["miscount"], luck["miscount_units"], risks.miscount, delivered)
    misplaced = np.where(luck["misplaced"] < risks.misplaced, delivered, 0)
    found = np.where(luck["found"] < risks.found, stock.misplaced, 0)
    opening = stock.shelf + delivered - misplaced + found
    opening_record = stock.record + booked

    demand = draw_demand(mean, basket_units, customers)
    sold = np.minimum(demand, opening)
    shelf = opening - sold
    stolen = np.where(luck["theft"] < risks.theft, geometric(luck["theft_units"], risks.theft_units), 0)
    stolen = np.minimum(stolen, shelf)
    damaged = np.minimum(luck["damage"] < risks.damage, shelf - stolen).astype(np.int64)
    shelf = shelf - stolen - damaged
    elsewhere = stock.misplaced + misplaced - found
    record = opening_record - sold
    asked = np.where(opening_record > 0, demand - sold, 0)  # for goods that the record says are there
    quiet = (1 - np.where(record < 0, NEGATIVE_COUNT, risks.count)) * (1 - risks.notice) ** asked
    counted = luck["count"] < 1 - quiet
    night = count_stock(Stock(shelf, elsewhere, record, stock.on_order), counted)

    position = night.record + stock.on_order[1:].sum(axis=0)
    short = ordering.reorder + ordering.case - position
    cases = -(-short // ordering.case)
    ordered = np.where(ordering.supplied & (position <= ordering.reorder), cases * ordering.case, 0)
    on_order = np.concatenate([stock.on_order[1:], ordered[None]])
    day = Day(
        delivered=delivered,
        booked=booked,
        misplaced=misplaced,
        found=found,
        opening=opening,
        opening_record=opening_record,
        demand=demand,
        sold=sold,
        stolen=stolen,
        damaged=damaged,
        counted=counted,
        ordered=ordered,
    )
    return Stock(night.shelf, night.misplaced, night.record, on_order), day


def count_stock(stock: Stock, counted: BoolArray) -> Stock:
    """Return the stock after a count of some places: misplaced goods are found, the record is set right."""
    shelf = np.where(counted, stock.shelf + stock.misplaced, stock.shelf)
    return Stock(
        shelf=shelf,
        misplaced=np.where(counted, 0, stock.misplaced),
        record=np.where(counted, shelf, stock.record),
        on_order=stock.on_order,
    )


def restock(stock: Stock, places: BoolArray, units: IntArray) -> Stock:
    """Return the stock with ``places`` set up anew: ``units`` on shelf and record, nothing elsewhere."""
    return Stock(
        shelf=np.where(places, units, stock.shelf),
        misplaced=np.where(places, 0, stock.misplaced),
        record=np.where(places, units, stock.record),
        on_order=np.where(places, 0, stock.on_order),
    )


def geometric(luck: FloatArray, mean: float) -> IntArray:
    """Return geometric numbers of at least 1 from uniform ones."""
    if mean <= 1.0:
        return np.ones(luck.size, dtype=np.int64)
    return np.asarray(1 + np.floor(np.log1p(-luck) / np.log1p(-1 / mean)), dtype=np.int64)


def _wrong_count(happens: FloatArray, luck: FloatArray, risk: FloatArray, delivered: IntArray) -> IntArray:
    """Return by how much a delivery is booked wrong: 1 unit to all of it, as often too much as too little."""
    size = 1 + np.floor(np.abs(2 * luck - 1) * delivered).astype(np.int64)
    error = np.where(luck < 0.5, -1, 1) * np.minimum(size, delivered)
    return np.asarray(np.where(happens < risk, error, 0), dtype=np.int64)
