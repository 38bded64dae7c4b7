"""The days of a chain by shelves: what customers ask for, and what becomes of the stock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.simulate.population import LAUNCH_RAMP, NEVER, BoolArray, IntArray, stream
from ew_pipeline.simulate.settings import FloatArray, iso_year_weeks
from ew_pipeline.simulate.shelf_settings import ShelfSettings

WEEKDAYS = np.array([0.12, 0.12, 0.12, 0.13, 0.17, 0.20, 0.14])  # share of the week's demand, from Monday
DRIFT_MEMORY = 0.97  # share of a pair's deviation from its mean that is left after a week
EVENT_FACTORS = (0.5, 1.6)
LARGEST_CASE = 64


@dataclass(frozen=True, eq=False)
class Assortment:
    """All SKUs, and where they stand.

    Attributes
    ----------
    on_place : weeks x places; the SKU on each place of every store.
    launch, delist : per SKU; its first week, and its first week without sales (``NEVER``: it stays).
    department, price, popularity : per SKU.
    case : units per case of an order.
    proneness : factor on all error rates, mean 1.
    ranged : SKUs x stores.
    base : SKUs x stores; expected units a week before effects of the week.
    """

    on_place: IntArray
    launch: IntArray
    delist: IntArray
    department: IntArray
    price: FloatArray
    popularity: FloatArray
    case: IntArray
    proneness: FloatArray
    ranged: BoolArray
    base: FloatArray


def draw_assortment(settings: ShelfSettings, seed: int) -> Assortment:
    """Draw all SKUs of all weeks, in the order of their launch."""
    places, stores = settings.skus, settings.stores
    churn = in_all_weeks(settings, "churn")
    on_place = np.empty((settings.all_weeks, places), dtype=np.int64)
    current = np.arange(places)
    place, launch = list(range(places)), [0] * places
    delist = [NEVER] * places
    for t in range(settings.all_weeks):
        notice = t - settings.phase_out_weeks  # the week in which it was decided who leaves now
        if notice > 0:
            leaves = stream(seed, "shelf churn", notice).random(places) < churn[notice]
            for spot in np.flatnonzero(leaves):
                delist[current[spot]] = t
                current[spot] = len(launch)
                place.append(int(spot))
                launch.append(t)
                delist.append(NEVER)
        on_place[t] = current
    spots, weeks = np.array(place), np.array(launch)

    def draw(name: str, columns: int) -> FloatArray:
        """Uniform numbers per SKU, from the stream of its week of launch."""
        rows = np.empty((spots.size, columns))
        for week in np.unique(weeks):
            own = weeks == week
            rows[own] = stream(seed, name, int(week)).random((places, columns))[spots[own]]
        return rows

    own = draw("shelf skus", 6)
    department = np.floor(len(settings.departments) * own[:, 0]).astype(np.int64)
    price = np.round(3.5 * np.exp(0.7 * _normal(own[:, 1], own[:, 2])), 2) + 0.1
    popularity = np.exp(0.8 * _normal(own[:, 3], own[:, 4]))
    ratio = settings.sku_onset_ratio
    proneness = np.where(own[:, 5] < settings.prone_share, ratio, 1.0)
    proneness /= 1 + (ratio - 1) * settings.prone_share  # its mean over SKUs stays 1

    rng = stream(seed, "shelf stores")
    size = rng.lognormal(0, 0.4, size=stores)
    taste = rng.gamma(4, 0.25, size=(stores, len(settings.departments)))
    pair = draw("shelf pairs", 3 * stores).reshape(-1, stores, 3)
    base = popularity[:, None] * size * taste[:, department].T
    base *= np.exp(0.3 * _normal(pair[:, :, 0], pair[:, :, 1]))
    ranged = pair[:, :, 2] < settings.ranged_share
    first = base[:places][ranged[:places]]
    if first.size:
        base *= settings.median_units / np.median(first)
    typical = popularity * settings.median_units
    case = 2.0 ** np.round(np.log2(typical)).clip(1, np.log2(LARGEST_CASE))
    return Assortment(
        on_place=on_place,
        launch=weeks,
        delist=np.array(delist, dtype=np.int64),
        department=department,
        price=price,
        popularity=popularity,
        case=case.astype(np.int64),
        proneness=proneness,
        ranged=ranged,
        base=base,
    )


def draw_promotions(settings: ShelfSettings, seed: int) -> BoolArray:
    """Return weeks x places: is the SKU on promotion in the whole chain. One week more than is simulated."""
    starts = np.array(
        [
            stream(seed, "shelf promotions", t).random(settings.skus) < settings.promo_rate
            for t in range(settings.all_weeks + 1)
        ]
    )
    promo = starts.copy()
    for later in range(1, min(settings.promo_weeks, len(starts))):
        promo[later:] |= starts[:-later]
    return promo


def season(settings: ShelfSettings, seed: int) -> FloatArray:
    """Return weeks x departments: the yearly wave times the chain's demand level."""
    rng = stream(seed, "shelf season")
    phase = rng.uniform(0, 1, size=len(settings.departments))
    amplitude = settings.season_amplitude * rng.uniform(0.3, 1, size=len(settings.departments))
    start = str(settings.first_week.shift(-settings.lead_in_weeks))
    number = np.array([week for _, week in iso_year_weeks(start, settings.all_weeks)])
    wave = 1 + amplitude * np.sin(2 * np.pi * (number[:, None] / 52 - phase))
    return np.asarray(wave * in_all_weeks(settings, "demand_level")[:, None])


def store_effects(settings: ShelfSettings, seed: int, week: int) -> FloatArray:
    """Return stores x departments: the weather of one week, and events of one store and department."""
    sd = settings.store_shock
    weather = np.exp(sd * stream(seed, "shelf weather", week).standard_normal(settings.stores) - sd**2 / 2)
    happens, up = stream(seed, "shelf events", week).random((2, settings.stores, len(settings.departments)))
    event = np.where(up < 0.5, *EVENT_FACTORS)
    return np.asarray(weather[:, None] * np.where(happens < settings.event_rate, event, 1.0))


def drift_levels(log_level: FloatArray, settings: ShelfSettings, seed: int, week: int) -> FloatArray:
    """Return the log of every pair's own level one week later."""
    change = stream(seed, "shelf levels", week).standard_normal(log_level.shape)
    return DRIFT_MEMORY * log_level + settings.level_drift * change


def launch_ramp(age: IntArray) -> FloatArray:
    """Return the share of its later demand that a SKU of this age in weeks meets."""
    ramp = np.array([*LAUNCH_RAMP, 1.0])
    return ramp[np.minimum(age, ramp.size - 1)]


def draw_demand(mean: FloatArray, basket_units: float, rng: np.random.Generator) -> IntArray:
    """Return the units that customers want: a Poisson number of customers, a geometric basket each."""
    customers = rng.poisson(mean / basket_units)
    if basket_units == 1.0:
        return customers
    more = rng.negative_binomial(np.maximum(customers, 1), 1 / basket_units)
    return np.where(customers > 0, customers + more, 0)


def in_all_weeks(settings: ShelfSettings, name: str) -> FloatArray:
    """Return a schedule over all simulated weeks; those before the first reported week are like it."""
    values = settings.by_week(name)
    return np.concatenate([np.full(settings.lead_in_weeks, values[0]), values])


def reorder_level(forecast: FloatArray, settings: ShelfSettings) -> IntArray:
    """Return the stock on record and on order at or below which a store orders; at least 1.

    It covers the demand until the delivery of tomorrow's order and ``safety`` standard deviations.
    """
    cover = forecast * (settings.lead_days + 1) / WEEKDAYS.size
    spread = settings.safety * np.sqrt(cover * (2 * settings.basket_units - 1))
    return np.maximum(np.ceil(cover + spread), 1).astype(np.int64)


def _normal(radius: FloatArray, angle: FloatArray) -> FloatArray:
    """Return standard normal numbers from two uniform ones each (Box and Muller)."""
    return np.asarray(np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle))


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
