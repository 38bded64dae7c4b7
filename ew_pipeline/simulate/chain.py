"""Run the chain week by week and hand back its tables, with the truth in a table of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from ew_pipeline.core.errors import UsageError
from ew_pipeline.simulate import events, population, tables
from ew_pipeline.simulate.population import IntArray, Pairs, Skus, Stores, stream
from ew_pipeline.simulate.settings import ChainSettings, iso_weeks
from ew_pipeline.simulate.tables import Columns

TABLES = ("sales", "listing", "costs", "checks", "stores", "skus", "truth")


@dataclass(frozen=True, eq=False)
class SimulatedChain:
    """The tables of the contract, and the truth. ``settings`` and ``seed`` make it again.

    Attributes
    ----------
    sales
        store_id, sku_id, week, units, price, promo. Rows for ranged pairs of stores that reported.
    listing
        store_id, sku_id, first_week, last_week (inclusive; missing: still ranged at the end).
    costs
        store_id, sku_id, cost_false_alarm, cost_missed. A missing id stands for all: one row for the whole
        chain, then one per SKU.
    checks
        store_id, sku_id, week, outcome (confirmed, healthy, not_checked), checked_by, source (flag, random).
    stores
        store_id, format, region, size.
    skus
        sku_id, department, launch_week, delist_week (first week without it; missing: still on sale).
    truth
        store_id, sku_id, week, phantom (active at any time of the week), expected_units (mean if healthy).
        All ranged pairs of all weeks, those of late stores included.
    """

    sales: pd.DataFrame
    listing: pd.DataFrame
    costs: pd.DataFrame
    checks: pd.DataFrame
    stores: pd.DataFrame
    skus: pd.DataFrame
    truth: pd.DataFrame
    settings: ChainSettings
    seed: int

    def write(self, folder: Path) -> dict[str, Path]:
        """Write every table as ``folder/<name>.parquet``; returns the paths by name."""
        return tables.write({name: getattr(self, name) for name in TABLES}, folder)


@dataclass(frozen=True, eq=False)
class _Week:
    """What one week leaves behind, in small types: a year of a large chain has to fit in memory."""

    sales: Columns
    truth: Columns
    checks: Columns


def simulate_chain(settings: ChainSettings, seed: int) -> SimulatedChain:
    """Simulate ``settings.weeks`` weeks. The same settings and seed give the same tables."""
    if seed < 0:
        raise UsageError(f"seed = {seed} is negative", next_step="use a seed of 0 or more")
    stores = population.draw_stores(settings, seed)
    skus = population.draw_skus(settings, seed)
    pairs = population.draw_pairs(settings, stores, skus, seed)
    weeks = _run(settings, stores, skus, pairs, seed)

    store_ids = tables.ids("S", settings.stores, 4)
    sku_ids = tables.ids("K", skus.launch.size, 6)
    labels = iso_weeks(settings.start_week, settings.weeks)
    names = {"store_id": store_ids, "sku_id": sku_ids, "week": labels}
    checks = tables.frame([w.checks for w in weeks], names)
    return SimulatedChain(
        sales=tables.frame([w.sales for w in weeks], names),
        listing=tables.listing(pairs, skus, names),
        costs=tables.costs(settings, skus, pairs, sku_ids, seed),
        checks=tables.name_checks(checks),
        stores=pd.DataFrame(
            {
                "store_id": store_ids,
                "format": tables.category(stores.format, [f.name for f in settings.formats]),
                "region": tables.category(stores.region, tables.ids("R", settings.regions, 1)),
                "size": np.round(stores.size, 3),
            }
        ),
        skus=pd.DataFrame(
            {
                "sku_id": sku_ids,
                "department": tables.category(skus.department, settings.departments),
                "launch_week": tables.week_column(skus.launch, labels),
                "delist_week": tables.week_column(skus.delist, labels),
            }
        ),
        truth=tables.frame([w.truth for w in weeks], names),
        settings=settings,
        seed=seed,
    )


def _run(settings: ChainSettings, stores: Stores, skus: Skus, pairs: Pairs, seed: int) -> list[_Week]:
    promo = population.draw_promotions(settings, skus, seed)
    sku_effect = population.sku_effects(settings, skus, promo, seed)
    late_rate, s0 = settings.by_week("late_store_rate"), settings.by_week("dispersion_size")
    rate, depth = settings.by_week("phantom_rate"), settings.by_week("phantom_depth")
    phantoms = events.Phantoms.none(pairs.store.size)
    level = np.full(pairs.store.size, np.nan)
    weeks = []
    for t in range(settings.weeks):
        on_sale = np.flatnonzero(((skus.launch <= t) & (t < skus.delist))[pairs.sku])
        store, sku = pairs.store[on_sale], pairs.sku[on_sale]
        phantoms, left = events.step_phantoms(
            phantoms,
            on_sale,
            first_week=t == 0,
            target_share=float(rate[t]),
            depth=float(depth[t]),
            mean_weeks=settings.phantom_weeks,
            rng=stream(seed, "phantoms", t),
        )
        store_effect = population.store_effects(settings, stores, seed, t)
        expected = pairs.base[on_sale] * store_effect[store] * sku_effect[sku, t]
        units = _draw_units(expected * left, float(s0[t]), stream(seed, "units", t))
        late = stream(seed, "late", t).random(settings.stores) < late_rate[t]

        reported = np.flatnonzero(~late[store])
        pair = on_sale[reported]
        checks = events.draw_checks(
            pair,
            store[reported],
            units[reported],
            np.nan_to_num(level[pair], nan=0.0),
            phantoms.active[pair],
            flags_per_store=settings.checks_per_store,
            random_per_store=settings.random_checks_per_store,
            skipped_share=settings.check_skipped_share,
            rng=stream(seed, "checks", t),
        )
        level[pair] = events.update_level(level[pair], units[reported])

        shown = reported if settings.explicit_zeros else reported[units[reported] > 0]
        price = skus.price * np.where(promo[:, t], 1 - settings.promo_price_cut, 1.0)
        weeks.append(
            _Week(
                sales={
                    **_keys(store[shown], sku[shown], t),
                    "units": units[shown].astype(np.int32),
                    "price": np.round(price, 2)[sku[shown]].astype(np.float32),
                    "promo": promo[sku[shown], t],
                },
                truth={
                    **_keys(store, sku, t),
                    "phantom": phantoms.active[on_sale],
                    "expected_units": expected.astype(np.float32),
                },
                checks={
                    **_keys(pairs.store[checks.pair], pairs.sku[checks.pair], t),
                    "outcome": checks.outcome.astype(np.int8),
                    "checked_by": checks.clerk.astype(np.int8),
                    "source": checks.source.astype(np.int8),
                },
            )
        )
        # A confirmed record is put right before the next week begins.
        phantoms = events.repair(phantoms, checks.pair[checks.outcome == events.CONFIRMED])
    return weeks


def _draw_units(mean: npt.NDArray[np.float64], s0: float, rng: np.random.Generator) -> IntArray:
    if np.isinf(s0):
        return rng.poisson(mean)
    return rng.poisson(mean * rng.gamma(s0, 1 / s0, size=mean.size))


def _keys(store: IntArray, sku: IntArray, week: int) -> Columns:
    return {
        "store_id": store.astype(np.int32),
        "sku_id": sku.astype(np.int32),
        "week": np.full(store.size, week, dtype=np.int16),
    }
