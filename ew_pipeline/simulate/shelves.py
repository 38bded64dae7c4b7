"""A chain by shelves: records go wrong because goods move without the record, not because a model says so.

A second simulator beside ``simulate_chain``. It shares no assumption with a statistical filter: sales follow
from stock, stock from deliveries, deliveries from orders, and orders from the record.

**A record is wrong in a week** when it shows stock (> 0) at the week's end although, on at least four days
of the week and on the last one, it showed stock while the shelf opened empty or nearly so (with less than a
tenth of the day's expected demand). **Known out of stock** is something else: the record itself is 0 or less
at the week's end. Deliveries the supplier misses lead there, and no visit to the store helps.

Every random draw belongs to a stream and a day or week of its own: a setting that changes from week w on
leaves the weeks before w as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ew_pipeline.core.errors import UsageError
from ew_pipeline.simulate import shelf_days, tables
from ew_pipeline.simulate.population import MARGIN, NEVER, BoolArray, IntArray, stream
from ew_pipeline.simulate.settings import FloatArray
from ew_pipeline.simulate.shelf_days import (
    WEEKDAYS,
    Day,
    Ordering,
    Risks,
    Stock,
    count_stock,
    restock,
    run_day,
)
from ew_pipeline.simulate.shelf_settings import ShelfSettings
from ew_pipeline.simulate.tables import Columns

TABLES = ("sales", "listing", "costs", "checks", "stores", "skus", "truth")
KEYS = ["store_id", "sku_id", "week"]
OUTCOMES = ("confirmed", "healthy")


@dataclass(frozen=True, eq=False)
class ShelfChain:
    """The tables of the contract, and the truth apart from them.

    Attributes
    ----------
    sales
        store_id, sku_id, week, units, price, promo, on_hand (record at the week's end). Rows for ranged
        pairs of stores that reported.
    listing
        store_id, sku_id, first_week, last_week (inclusive; missing: still ranged at the end).
    costs
        store_id, sku_id, cost_false_alarm, cost_missed. A missing id stands for all: one row for the whole
        chain, then one per SKU.
    checks
        store_id, sku_id, week, outcome: the checks that were made while the chain ran.
    stores, skus
        store_id; sku_id, department, launch_week, delist_week, proneness (factor on error rates).
    truth
        store_id, sku_id, week, and for all ranged pairs of all weeks, those of late stores included: wrong
        and known_out (see ``shelves``), wrong_since (first week of this run of wrong weeks; missing: not
        wrong), days_empty (days with stock on record and an empty shelf), lost_share (share of the expected
        demand that exceeds what the shelf opened with), expected_units (expected demand), demand (units
        that customers wanted), shelf and misplaced (units at the week's end).
    """

    sales: pd.DataFrame
    listing: pd.DataFrame
    costs: pd.DataFrame
    checks: pd.DataFrame
    stores: pd.DataFrame
    skus: pd.DataFrame
    truth: pd.DataFrame
    settings: ShelfSettings
    seed: int

    def write(self, folder: Path) -> dict[str, Path]:
        """Write every table as ``folder/<name>.parquet``; returns the paths by name."""
        return tables.write({name: getattr(self, name) for name in TABLES}, folder)

    def answer_checks(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Return store_id, sku_id, week, outcome for the pairs and weeks in ``pairs``; nothing is repaired.

        The outcome is "confirmed" when the record was wrong in that week, else "healthy".
        """
        asked = pairs[KEYS].astype("str").drop_duplicates()
        truth = self.truth.loc[:, [*KEYS, "wrong"]].astype(dict.fromkeys(KEYS, "str"))
        found = asked.merge(truth, on=KEYS, how="left")
        refuse_unknown(found[found["wrong"].isna()])
        outcome = np.where(found["wrong"].astype("bool"), *OUTCOMES)
        return found[KEYS].assign(outcome=outcome)


def refuse_unknown(pairs: pd.DataFrame) -> None:
    """Raise an error that names some of ``pairs``, if there are any."""
    if len(pairs):
        named = ", ".join(f"{row.store_id}/{row.sku_id}" for row in pairs.head(3).itertuples())
        raise UsageError(
            f"{len(pairs)} of the shelves to check are not ranged then ({named})",
            next_step="check pairs and weeks of the listing",
        )


MOST_DAYS = 4
NEARLY_EMPTY = 0.1  # of the day's expected demand
FORECAST_WEIGHT = 0.2  # of the newest week in a store's forecast
FRIDAY = 4
MISSED_WEEKS = 2  # weeks of lost margin in one row of the cost table


def simulate_shelves(settings: ShelfSettings, seed: int) -> ShelfChain:
    """Simulate ``settings.weeks`` weeks without store checks. The same settings and seed: the same tables."""
    shelves = Shelves(settings, seed)
    for _ in range(settings.weeks):
        shelves.run_week()
    return shelves.chain()


class Shelves:
    """A chain that runs week by week, for closed loops: run a week, look at the tables, check some shelves.

    Attributes
    ----------
    weeks_done : reported weeks so far.
    stock : true and recorded stock now.
    """

    def __init__(self, settings: ShelfSettings, seed: int) -> None:
        if seed < 0:
            raise UsageError(f"seed = {seed} is negative", next_step="use a seed of 0 or more")
        self.settings, self.seed = settings, seed
        self.assortment = shelf_days.draw_assortment(settings, seed)
        self._promo = shelf_days.draw_promotions(settings, seed)
        self._season = shelf_days.season(settings, seed)
        rates = ("shortage_rate", "theft_rate", "damage_rate", "misplaced_share", "miscount_share")
        names = (*rates, "count_rate", "late_store_rate")
        self._rate = {name: shelf_days.in_all_weeks(settings, name) for name in names}
        size = settings.stores * settings.skus
        self._store = np.repeat(np.arange(settings.stores), settings.skus)
        self._place = np.tile(np.arange(settings.skus), settings.stores)
        zeros = np.zeros(size, dtype=np.int64)
        self.stock = Stock(zeros, zeros, zeros, np.zeros((settings.lead_days, size), dtype=np.int64))
        self._forecast = np.zeros(size)
        self._log_level = np.zeros(size)
        self._wrong = np.zeros(size, dtype=np.bool_)  # in the week run last
        self._since = np.full(size, NEVER)
        self._short_from = np.zeros(settings.skus, dtype=np.int64)  # first and last day of a shortage
        self._short_until = np.full(settings.skus, -1)
        self._week = 0
        self._sales: list[Columns] = []
        self._truth: list[Columns] = []
        self._checks: list[Columns] = []
        for _ in range(settings.lead_in_weeks):
            self._run(reported=False)

    @property
    def weeks_done(self) -> int:
        return self._week - self.settings.lead_in_weeks

    def run_week(self) -> tuple[Day, ...]:
        """Run one more week, and return what moved on each of its days."""
        if self.weeks_done >= self.settings.weeks:
            raise UsageError(
                f"all {self.settings.weeks} weeks have been run", next_step="set more weeks in the settings"
            )
        return self._run(reported=True)

    def check(self, pairs: pd.DataFrame, repair: bool = True) -> pd.DataFrame:
        """Check shelves (store_id, sku_id) after the week that has just been run.

        Returns store_id, sku_id, week, outcome: "confirmed" when the record was wrong in that week, else
        "healthy". Whoever checks a shelf also counts it (``repair``): the record is right from then on.
        """
        self._refuse_before_first_week()
        names = self._names()
        store = pd.Index(names["store_id"]).get_indexer(pd.Index(pairs["store_id"].astype("str")))
        sku = pd.Index(names["sku_id"]).get_indexer(pd.Index(pairs["sku_id"].astype("str")))
        place_of = np.full(len(names["sku_id"]), -1)
        place_of[self._sku_on_place()] = np.arange(self.settings.skus)
        place = np.where(sku >= 0, place_of[sku], -1)
        at = np.where(store >= 0, store, 0) * self.settings.skus + np.maximum(place, 0)
        known = (store >= 0) & (place >= 0) & self._ranged()[at]
        refuse_unknown(pairs[~known])
        at = np.unique(at)
        if repair:
            counted = np.zeros(self._store.size, dtype=np.bool_)
            counted[at] = True
            self.stock = count_stock(self.stock, counted)
            self._since = np.where(counted, NEVER, self._since)
        made = {
            **self._keys(at, self._week - 1),
            "outcome": np.where(self._wrong[at], 0, 1).astype(np.int8),
        }
        self._checks.append(made)
        return self._checks_frame([made])

    def chain(self) -> ShelfChain:
        """Return the tables of all weeks so far."""
        self._refuse_before_first_week()
        names, lead_in = self._names(), self.settings.lead_in_weeks
        labels, skus = names["week"], self._launched()
        listed, delist = self.assortment, self.assortment.delist[:skus]
        seen = np.flatnonzero(delist > lead_in)  # SKUs that left before the first reported week are unknown
        sku, store = np.nonzero(listed.ranged[seen])
        order = np.lexsort((sku, store))
        sku, store = seen[sku[order]], store[order]
        first = np.maximum(listed.launch[:skus] - lead_in, 0)
        end = np.where(delist < self._week, delist - lead_in, NEVER)
        department = list(self.settings.departments)
        return ShelfChain(
            sales=tables.frame(self._sales, names),
            listing=pd.DataFrame(
                {
                    "store_id": tables.category(store, names["store_id"]),
                    "sku_id": tables.category(sku, names["sku_id"]),
                    "first_week": tables.week_column(first[sku], labels),
                    "last_week": tables.week_column(np.where(end == NEVER, NEVER, end - 1)[sku], labels),
                }
            ),
            costs=self._costs(seen, names["sku_id"]),
            checks=self._checks_frame(self._checks),
            stores=pd.DataFrame({"store_id": names["store_id"]}),
            skus=pd.DataFrame(
                {
                    "sku_id": tables.category(seen, names["sku_id"]),
                    "department": tables.category(listed.department[seen], department),
                    "launch_week": tables.week_column(first[seen], labels),
                    "delist_week": tables.week_column(end[seen], labels),
                    "proneness": np.round(listed.proneness[seen], 3),
                }
            ),
            truth=tables.frame(self._truth, names).assign(
                wrong_since=tables.week_column(
                    np.concatenate([week["wrong_since"] for week in self._truth]).astype(np.int64), labels
                )
            ),
            settings=self.settings,
            seed=self.seed,
        )

    def _run(self, reported: bool) -> tuple[Day, ...]:
        """Run the next week, and keep its tables if it is reported."""
        t, settings = self._week, self.settings
        self._set_up_places(t)
        ranged, sku = self._ranged(t), self._sku_on_place(t)[self._place]
        promo = self._promo[t][self._place]
        mean = np.where(ranged, self._expected_units(t), 0.0)
        crowd = stream(self.seed, "shelf crowd", t).gamma(
            settings.dispersion_size, 1 / settings.dispersion_size, size=mean.size
        )
        risks = self._risks(t, sku)
        units, demand, dark_days = (np.zeros(mean.size, dtype=np.int64) for _ in range(3))
        lost, dark = np.zeros(mean.size), np.zeros(mean.size, dtype=np.bool_)
        days = []
        for weekday, share in enumerate(WEEKDAYS):
            number = t * WEEKDAYS.size + weekday
            self.stock, day = run_day(
                self.stock,
                mean * crowd * share,
                settings.basket_units,
                risks,
                self._ordering(t, weekday, ranged, sku),
                customers=stream(self.seed, "shelf customers", number),
                incidents=stream(self.seed, "shelf incidents", number),
            )
            expected = mean * share
            dark = (day.opening_record > 0) & (day.opening < NEARLY_EMPTY * expected)
            dark_days += dark
            lost += np.maximum(expected - day.opening, 0)
            units += day.sold
            demand += day.demand
            days.append(day)
        wrong = (dark_days >= MOST_DAYS) & dark & (self.stock.record > 0)
        self._wrong = wrong
        self._since = np.where(wrong, np.minimum(self._since, t), NEVER)
        usual = np.where(promo, units / settings.promo_uplift, units)
        self._forecast = self._forecast + FORECAST_WEIGHT * (usual - self._forecast)
        self._week += 1
        if reported:
            at = np.flatnonzero(ranged)
            share = np.divide(lost, mean, out=np.zeros(mean.size), where=mean > 0)
            self._keep(t, at, units, promo, sku)
            self._truth.append(
                {
                    **self._keys(at, t),
                    "wrong": wrong[at],
                    "known_out": self.stock.record[at] <= 0,
                    "wrong_since": self._reported_since()[at],
                    "days_empty": dark_days[at].astype(np.int8),
                    "lost_share": share[at].astype(np.float32),
                    "expected_units": mean[at].astype(np.float32),
                    "demand": demand[at].astype(np.int32),
                    "shelf": self.stock.shelf[at].astype(np.int32),
                    "misplaced": self.stock.misplaced[at].astype(np.int32),
                }
            )
        return tuple(days)

    def _keep(self, t: int, at: IntArray, units: IntArray, promo: BoolArray, sku: IntArray) -> None:
        """Keep the rows of sales of the stores that report the week."""
        late = (
            stream(self.seed, "shelf late", t).random(self.settings.stores) < self._rate["late_store_rate"][t]
        )
        shown = at[~late[self._store[at]]]
        if not self.settings.explicit_zeros:
            shown = shown[units[shown] > 0]
        price = self.assortment.price[sku] * np.where(promo, 1 - self.settings.promo_price_cut, 1.0)
        self._sales.append(
            {
                **self._keys(shown, t),
                "units": units[shown].astype(np.int32),
                "price": np.round(price, 2)[shown].astype(np.float32),
                "promo": promo[shown],
                "on_hand": self.stock.record[shown].astype(np.int32),
            }
        )

    def _set_up_places(self, t: int) -> None:
        """Empty the places of SKUs that have left and fill those of new ones."""
        new = self._sku_on_place(t) != (self._sku_on_place(t - 1) if t else -1)
        self._short_until[new] = -1
        places = new[self._place]
        base = self._base(t)
        forecast = np.where(places, base, self._forecast)
        self._forecast = forecast
        self._log_level = shelf_days.drift_levels(
            np.where(places, 0.0, self._log_level), self.settings, self.seed, t
        )
        self._since = np.where(places, NEVER, self._since)
        case = self.assortment.case[self._sku_on_place(t)][self._place]
        first = shelf_days.reorder_level(forecast, self.settings) + case
        self.stock = restock(self.stock, places, np.where(self._ranged(t), first, 0))

    def _expected_units(self, t: int) -> FloatArray:
        """Return the week's expected demand of every place."""
        listed, sku = self.assortment, self._sku_on_place(t)
        department = listed.department[sku]
        by_place = self._season[t, department] * np.where(self._promo[t], self.settings.promo_uplift, 1.0)
        launched = listed.launch[sku] > 0  # what is there in the first week was launched long before it
        by_place *= np.where(launched, shelf_days.launch_ramp(t - listed.launch[sku]), 1.0)
        effect = shelf_days.store_effects(self.settings, self.seed, t)[:, department] * by_place
        return np.asarray(self._base(t) * np.exp(self._log_level) * effect.ravel())

    def _risks(self, t: int, sku: IntArray) -> Risks:
        settings, days = self.settings, WEEKDAYS.size
        rate = {name: values[t] for name, values in self._rate.items()}
        prone = self.assortment.proneness[sku]
        return Risks(
            misplaced=np.minimum(rate["misplaced_share"] * prone, 1.0),
            miscount=np.minimum(rate["miscount_share"] * prone, 1.0),
            theft=np.minimum(rate["theft_rate"] * prone / days, 1.0),
            damage=np.minimum(rate["damage_rate"] * prone / days, 1.0),
            count=float(rate["count_rate"]) / days,
            notice=settings.notice_share,
            found=1 / (days * settings.misplaced_weeks),
            theft_units=settings.theft_units,
        )

    def _ordering(self, t: int, weekday: int, ranged: BoolArray, sku: IntArray) -> Ordering:
        """Return tonight's orders' rules: forecasts with promotions, phase-outs and supplier shortages."""
        settings = self.settings
        today = t * WEEKDAYS.size + weekday
        if weekday == 0:
            self._begin_shortages(t)
        supplied = ~((self._short_from <= today) & (today <= self._short_until))
        leaving = self.assortment.delist[sku] - t <= settings.phase_out_weeks
        promoted = self._promo[t] if weekday < FRIDAY else self._promo[t + 1]
        uplift = np.where(promoted, settings.promo_uplift, 1.0)[self._place]
        return Ordering(
            reorder=shelf_days.reorder_level(self._forecast * uplift, settings),
            case=self.assortment.case[sku],
            supplied=ranged & ~leaving & supplied[self._place],
        )

    def _begin_shortages(self, t: int) -> None:
        """Draw which suppliers begin to miss a SKU this week, on which day, and for how long."""
        rng = stream(self.seed, "shelf shortages", t)
        begins = rng.random(self.settings.skus) < self._rate["shortage_rate"][t]
        first = t * WEEKDAYS.size + rng.integers(0, WEEKDAYS.size, size=self.settings.skus)
        length = rng.geometric(1 / self.settings.shortage_days, size=self.settings.skus)
        begins &= self._short_until < t * WEEKDAYS.size  # one shortage at a time
        self._short_from = np.where(begins, first, self._short_from)
        self._short_until = np.where(begins, first + length - 1, self._short_until)

    def _sku_on_place(self, week: int | None = None) -> IntArray:
        """Return the SKU on each place of a store, in the week that was run last by default."""
        on_place: IntArray = self.assortment.on_place[self._week - 1 if week is None else week]
        return on_place

    def _ranged(self, week: int | None = None) -> BoolArray:
        return np.asarray(self.assortment.ranged[self._sku_on_place(week)].T.ravel())

    def _base(self, week: int) -> FloatArray:
        return np.asarray(self.assortment.base[self._sku_on_place(week)].T.ravel())

    def _reported_since(self) -> IntArray:
        """Return since which reported week each record has been wrong; earlier weeks count as the first."""
        since = np.maximum(self._since - self.settings.lead_in_weeks, 0)
        return np.where(self._since == NEVER, NEVER, since)

    def _launched(self) -> int:
        """Return the number of SKUs launched so far."""
        return int(np.searchsorted(self.assortment.launch, self._week - 1, side="right"))

    def _names(self) -> dict[str, list[str]]:
        first = self.settings.first_week
        return {
            "store_id": tables.ids("S", self.settings.stores, 4),
            "sku_id": tables.ids("K", self._launched(), 6),
            "week": [str(first.shift(k)) for k in range(self.weeks_done)],
        }

    def _keys(self, at: IntArray, week: int) -> Columns:
        return {
            "store_id": self._store[at].astype(np.int32),
            "sku_id": self._sku_on_place(week)[self._place[at]].astype(np.int32),
            "week": np.full(at.size, week - self.settings.lead_in_weeks, dtype=np.int16),
        }

    def _checks_frame(self, checks: list[Columns]) -> pd.DataFrame:
        empty = {**self._keys(np.empty(0, dtype=np.int64), 0), "outcome": np.empty(0, dtype=np.int8)}
        return tables.frame([empty, *checks], {**self._names(), "outcome": list(OUTCOMES)})

    def _refuse_before_first_week(self) -> None:
        if self.weeks_done < 1:
            raise UsageError("no week has been run yet", next_step="call run_week() first")

    def _costs(self, seen: IntArray, sku_ids: list[str]) -> pd.DataFrame:
        """Return what a visit costs, by department, and two weeks of lost margin, by SKU."""
        listed, settings = self.assortment, self.settings
        walk = stream(self.seed, "shelf costs").uniform(1.5, 4.0, size=len(settings.departments))
        stores = np.maximum(listed.ranged[seen].sum(axis=1), 1)
        units = (listed.base[seen] * listed.ranged[seen]).sum(axis=1) / stores
        missed = (MARGIN * listed.price[seen] * units * MISSED_WEEKS).clip(min=0.5).round(2)
        false_alarm = walk[listed.department[seen]].round(2)
        return tables.costs_frame(false_alarm, missed, [sku_ids[k] for k in seen])
