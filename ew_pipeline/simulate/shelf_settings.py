"""Settings of a chain by shelves: who sells what, how shelves are filled, what goes wrong with records."""

from __future__ import annotations

from dataclasses import dataclass

from ew_pipeline.core.week import Week
from ew_pipeline.simulate.settings import (
    DEFAULT_DEPARTMENTS,
    FloatArray,
    Schedule,
    require,
    values_by_week,
)

RATES = ("late_store_rate", "churn", "shortage_rate", "theft_rate", "damage_rate")
SHARES = ("misplaced_share", "miscount_share", "count_rate")
PROBABILITIES = ("notice_share", "promo_rate", "event_rate")


@dataclass(frozen=True, eq=False)
class ShelfSettings:
    """Settings of ``simulate_shelves``. Fields typed ``Schedule`` may change from week to week.

    The defaults are the setting "median 4": 4 to 8% of the pair-weeks have a wrong record.

    Parameters
    ----------
    stores, skus, weeks, start_week
        ``skus`` is the number on sale in any one week; with churn more exist over the whole time.
    lead_in_weeks
        Weeks simulated before ``start_week`` and not reported, so that the chain starts with old errors.
    departments, ranged_share
        Names of the departments; probability that a store ranges a SKU.
    median_units
        Median over ranged pairs of the expected weekly demand, before effects of the week.
    demand_level
        Factor on all expected demand of a week (Schedule).
    dispersion_size, basket_units
        A pair's demand of a week varies by a gamma factor of this shape. Each customer takes ``basket_units``
        on average (geometric, at least 1).
    level_drift
        Standard deviation of the weekly change in the log of a pair's demand, which returns to its mean.
    season_amplitude, store_shock, event_rate
        A yearly wave with a phase per department; standard deviation of the log of a store's weekly effect;
        probability of an event that halves or raises a department's demand in a store for a week.
    promo_rate, promo_weeks, promo_price_cut, promo_uplift
        Probability that a SKU starts a chain-wide promotion in a week, its length, the cut in price and the
        factor on demand. Stores order for it from the Friday before.
    churn, phase_out_weeks
        Share of the SKUs that are replaced in a week (Schedule). They are no longer ordered for so many weeks
        before they leave.
    lead_days, safety
        Days from an order to its delivery. The reorder level covers the forecast demand of these days and one
        more, plus ``safety`` standard deviations.
    shortage_rate, shortage_days
        Probability that a supplier begins to miss a SKU in a week (Schedule), and for how many days on
        average.
    theft_rate, theft_units
        Thefts per pair and week (Schedule) and units per theft (geometric mean). The record does not know.
    damage_rate
        Single units per pair and week that leave the shelf without being recorded (Schedule).
    misplaced_share, misplaced_weeks
        Share of deliveries that are put in the wrong place (Schedule) and mean weeks until they are found.
    miscount_share
        Share of deliveries booked with a wrong number, too high as often as too low (Schedule).
    count_rate
        Share of pairs counted in a week (Schedule). A count sets the record right. A negative record is
        counted within days.
    notice_share
        Probability that a customer's unit that the shelf lacks, and the record does not, leads to a count: an
        empty place of a fast seller is noticed sooner.
    sku_onset_ratio, prone_share
        How many times as often things go wrong with some SKUs than with the others, and the share of these
        SKUs. The mean over all SKUs stays as it is; a ratio of 1 makes all SKUs alike.
    late_store_rate
        Probability that a store's data for a week are missing (Schedule).
    explicit_zeros
        Whether a ranged pair of a reporting store that sold nothing has a row with 0 in the sales.
    """

    stores: int = 40
    skus: int = 150
    weeks: int = 60
    start_week: str = "2026-W01"
    lead_in_weeks: int = 20
    departments: tuple[str, ...] = DEFAULT_DEPARTMENTS
    ranged_share: float = 0.9
    median_units: float = 4.0
    demand_level: Schedule = 1.0
    dispersion_size: float = 8.0
    basket_units: float = 1.1
    level_drift: float = 0.02
    season_amplitude: float = 0.2
    store_shock: float = 0.06
    event_rate: float = 0.01
    promo_rate: float = 0.02
    promo_weeks: int = 2
    promo_price_cut: float = 0.25
    promo_uplift: float = 1.8
    churn: Schedule = 0.002
    phase_out_weeks: int = 2
    lead_days: int = 2
    safety: float = 1.5
    shortage_rate: Schedule = 0.008
    shortage_days: float = 14.0
    theft_rate: Schedule = 0.012
    theft_units: float = 4.0
    damage_rate: Schedule = 0.015
    misplaced_share: Schedule = 0.045
    misplaced_weeks: float = 4.0
    miscount_share: Schedule = 0.01
    count_rate: Schedule = 0.08
    notice_share: float = 0.02
    sku_onset_ratio: float = 1.0
    prone_share: float = 0.2
    late_store_rate: Schedule = 0.01
    explicit_zeros: bool = True

    @classmethod
    def median_4(cls, **overrides: object) -> ShelfSettings:
        """The defaults: median weekly demand of 4 units, 4 to 8% of the pair-weeks wrong."""
        return cls(**overrides)  # type: ignore[arg-type]

    @classmethod
    def median_1_5(cls, **overrides: object) -> ShelfSettings:
        """Slow sales and fewer wrong records: a median of 1.5 units, 1.5 to 4% of the pair-weeks wrong."""
        chosen: dict[str, object] = {
            "median_units": 1.5,
            "theft_rate": 0.004,
            "damage_rate": 0.005,
            "misplaced_share": 0.02,
        }
        return cls(**{**chosen, **overrides})  # type: ignore[arg-type]

    @classmethod
    def nothing_wrong(cls, **overrides: object) -> ShelfSettings:
        """No theft, damage, misplaced pallet or wrong count: every record equals the stock."""
        errors = ("theft_rate", "damage_rate", "misplaced_share", "miscount_share")
        return cls(**{**dict.fromkeys(errors, 0.0), **overrides})  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        for name in ("stores", "skus", "weeks", "promo_weeks", "lead_days"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("lead_in_weeks", "phase_out_weeks", "safety", "level_drift", "store_shock"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "not negative")
        for name in (
            "notice_share",
            "prone_share",
            "ranged_share",
            "promo_rate",
            "promo_price_cut",
            "event_rate",
        ):
            require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "in [0, 1]")
        for name in ("median_units", "dispersion_size", "promo_uplift"):
            require(getattr(self, name) > 0, name, getattr(self, name), "positive")
        for name in ("basket_units", "theft_units", "shortage_days", "misplaced_weeks", "sku_onset_ratio"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(0 <= self.season_amplitude < 1, "season_amplitude", self.season_amplitude, "in [0, 1)")
        require(len(self.departments) > 0, "departments", self.departments, "at least one name")
        for name in (*RATES, *SHARES):
            self.by_week(name, high=1)
        self.by_week("demand_level", high=1e6)
        _ = self.first_week

    def by_week(self, name: str, high: float = 1e6) -> FloatArray:
        """Return the schedule ``name`` as one value per reported week, each in [0, high]."""
        return values_by_week(name, getattr(self, name), self.weeks, high)

    @property
    def first_week(self) -> Week:
        """The first reported week."""
        return Week.parse(self.start_week)

    @property
    def all_weeks(self) -> int:
        """The number of simulated weeks, those before the first reported one included."""
        return self.lead_in_weeks + self.weeks
