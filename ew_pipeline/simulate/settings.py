"""What a simulated chain looks like, and how it may drift."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import UsageError

FloatArray = npt.NDArray[np.float64]
Schedule = float | Sequence[float] | npt.NDArray[np.floating] | Callable[[int], float]
"""A value that may change: a constant, one value per week, or a function of the week's index 0, 1, …"""


@dataclass(frozen=True)
class StoreFormat:
    """A kind of store: its share of all stores, typical size, and the share of SKUs it ranges."""

    name: str
    share: float
    size: float
    ranged_share: float


DEFAULT_FORMATS = (
    StoreFormat("hypermarket", 0.15, 2.4, 0.95),
    StoreFormat("supermarket", 0.50, 1.0, 0.75),
    StoreFormat("convenience", 0.35, 0.5, 0.35),
)
DEFAULT_DEPARTMENTS = (
    "bakery",
    "beverages",
    "dairy",
    "frozen",
    "household",
    "personal care",
    "produce",
    "snacks",
)


@dataclass(frozen=True, eq=False)
class ChainSettings:
    """Settings of ``simulate_chain``. The fields typed ``Schedule`` may change from week to week.

    Parameters
    ----------
    stores, skus, weeks, start_week
        ``skus`` is the number on sale in any one week; with churn more exist over the whole time.
    formats, departments, regions, latent_factors
        The structure of demand and of ranging.
    median_units
        Median over ranged pairs of the expected weekly units before any effect of the week.
    demand_level
        Factor on all expected sales of a week (Schedule).
    dispersion_size
        s0 of the negative binomial: variance M + M^2/s0; ``math.inf`` is Poisson (Schedule).
    season_amplitude, holiday_weeks, holiday_uplift
        A yearly wave with a phase per department; ISO week numbers of holidays, and their mean uplift,
        which each department feels differently.
    promo_rate, promo_weeks, promo_price_cut, promo_uplift
        Probability that a SKU starts a chain-wide promotion in a week, its length, the cut in price and the
        factor on demand.
    store_shock
        Standard deviation of the log of a store's weekly effect; its region's is half of it.
    local_ranging
        Probability that a store decides on a SKU itself instead of following its format's plan.
    late_store_rate
        Probability that a store's data for a week are missing (Schedule).
    assortment_churn
        Share of the SKUs on sale replaced by new ones at the start of a week (Schedule).
    phantom_rate
        Share of ranged pairs with a phantom active in a week, p_A (Schedule). A falling target is reached
        no faster than events are repaired.
    phantom_depth
        Mean share of its sales that a pair loses to an event, 1 - alpha (Schedule, at the event's start).
        The share of a single event is Beta(depth, 1 - depth): most events take nearly everything.
    phantom_weeks
        Mean length of an event that no check finds, in weeks (geometric, at least 1).
    checks_per_store, random_checks_per_store, check_skipped_share
        Store checks each week: pairs that sold at most half of their trailing level, worst first;
        pairs taken at random; and the share of the flagged ones that nobody walks to. A confirmed check
        repairs the record before the next week.
    explicit_zeros
        Whether a ranged pair of a reporting store that sold nothing has a row with 0 in the sales.
    """

    stores: int = 100
    skus: int = 1000
    weeks: int = 52
    start_week: str = "2026-W01"
    formats: tuple[StoreFormat, ...] = DEFAULT_FORMATS
    departments: tuple[str, ...] = DEFAULT_DEPARTMENTS
    regions: int = 4
    latent_factors: int = 3
    median_units: float = 3.0
    demand_level: Schedule = 1.0
    dispersion_size: Schedule = 5.0
    season_amplitude: float = 0.2
    holiday_weeks: tuple[int, ...] = (15, 22, 47, 51, 52)
    holiday_uplift: float = 0.3
    promo_rate: float = 0.02
    promo_weeks: int = 2
    promo_price_cut: float = 0.25
    promo_uplift: float = 1.8
    store_shock: float = 0.06
    local_ranging: float = 0.15
    late_store_rate: Schedule = 0.01
    assortment_churn: Schedule = 0.003
    phantom_rate: Schedule = 0.04
    phantom_depth: Schedule = 0.9
    phantom_weeks: float = 4.0
    checks_per_store: int = 3
    random_checks_per_store: int = 1
    check_skipped_share: float = 0.15
    explicit_zeros: bool = True

    @classmethod
    def small(cls, **overrides: object) -> ChainSettings:
        """24 stores, 150 SKUs, 16 weeks: a demonstration in a fraction of a second."""
        chosen: dict[str, object] = {"stores": 24, "skus": 150, "weeks": 16, "latent_factors": 2}
        return cls(**{**chosen, **overrides})  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        for name in ("stores", "skus", "weeks", "regions", "promo_weeks"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("latent_factors", "checks_per_store", "random_checks_per_store"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "not negative")
        for name in ("promo_rate", "promo_price_cut", "local_ranging", "check_skipped_share"):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "in [0, 1]")
        for name in ("holiday_uplift", "promo_uplift", "store_shock"):
            require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "finite, not negative")
        require(0 < self.median_units < math.inf, "median_units", self.median_units, "positive")
        require(0 <= self.season_amplitude < 1, "season_amplitude", self.season_amplitude, "in [0, 1)")
        require(self.phantom_weeks >= 1, "phantom_weeks", self.phantom_weeks, "at least 1")
        require(len(self.departments) > 0, "departments", self.departments, "at least one name")
        require(
            sum(f.share for f in self.formats) > 0
            and all(f.share >= 0 and f.size > 0 and 0 < f.ranged_share < 1 for f in self.formats),
            "formats",
            self.formats,
            "formats with shares >= 0 (not all 0), size > 0 and 0 < ranged_share < 1",
        )
        iso_weeks(self.start_week, 1)
        self.by_week("late_store_rate", high=1)
        self.by_week("assortment_churn", high=1)
        self.by_week("phantom_rate", high=1)
        self.by_week("phantom_depth", high=1)
        self.by_week("demand_level", high=1e6)
        require(bool(self.by_week("dispersion_size").min() > 0), "dispersion_size", 0, "positive")

    def by_week(self, name: str, high: float = math.inf) -> FloatArray:
        """The schedule ``name`` as one value per week, each in [0, high]."""
        return values_by_week(name, getattr(self, name), self.weeks, high)


def iso_weeks(start_week: str, count: int) -> list[str]:
    """``count`` ISO weeks in order, the first being ``start_week``, written like 2026-W34."""
    return [f"{year}-W{week:02d}" for year, week in iso_year_weeks(start_week, count)]


def iso_year_weeks(start_week: str, count: int) -> list[tuple[int, int]]:
    """The same as (year, week number)."""
    match = re.fullmatch(r"(\d{4})-W(\d{2})", start_week)
    try:
        if match is None:
            raise ValueError
        monday = datetime.date.fromisocalendar(int(match[1]), int(match[2]), 1)
    except ValueError:
        raise UsageError(
            f"start_week = {start_week!r} is not an ISO week", next_step="write it like 2026-W34"
        ) from None
    calendar = ((monday + datetime.timedelta(weeks=t)).isocalendar() for t in range(count))
    return [(day.year, day.week) for day in calendar]


def values_by_week(name: str, schedule: Schedule, weeks: int, high: float = math.inf) -> FloatArray:
    """Return a schedule as one value per week, each in [0, high]."""
    if callable(schedule):
        values = np.array([schedule(t) for t in range(weeks)], dtype=np.float64)
    else:
        values = np.asarray(schedule, dtype=np.float64)
        if values.ndim == 0:
            values = np.full(weeks, float(values))
    require(values.shape == (weeks,), name, schedule, f"one number, or one for each of {weeks} weeks")
    wrong = ~((values >= 0) & (values <= high))  # also true for NaN
    if wrong.any():
        t = int(np.flatnonzero(wrong)[0])
        require(False, f"{name} in week {t}", values[t], f"in [0, {high:g}]")
    return values


def require(condition: bool, name: str, value: object, wanted: str) -> None:
    if not condition:
        raise UsageError(
            f"simulated chain: {name} = {value!r}; it must be {wanted}", next_step="correct the settings"
        )
