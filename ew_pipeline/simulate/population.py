"""Who sells what: stores, SKU life cycles, ranging, base demand, promotions and costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from ew_pipeline.simulate.settings import ChainSettings, FloatArray, iso_year_weeks

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MARGIN = 0.3
LAUNCH_RAMP = (0.4, 0.6, 0.8)  # share of its later demand that a new SKU meets in its first weeks
NEVER = np.iinfo(np.int64).max


def stream(seed: int, name: str, week: int = 0) -> np.random.Generator:
    """A generator for one purpose and one week, independent of how much the others have drawn."""
    return np.random.default_rng([seed, *name.encode(), week])


@dataclass(frozen=True, eq=False)
class Stores:
    """Per store: index of its format and region, and its size."""

    format: IntArray
    region: IntArray
    size: FloatArray


@dataclass(frozen=True, eq=False)
class Skus:
    """Per SKU: department, price, popularity, first week on sale and first week no longer on sale.

    ``delist`` is ``NEVER`` for a SKU still on sale at the end.
    """

    department: IntArray
    price: FloatArray
    popularity: FloatArray
    launch: IntArray
    delist: IntArray


@dataclass(frozen=True, eq=False)
class Pairs:
    """The ranged pairs, by store and then SKU, with their expected units before effects of the week."""

    store: IntArray
    sku: IntArray
    base: FloatArray


def draw_stores(settings: ChainSettings, seed: int) -> Stores:
    rng = stream(seed, "stores")
    share = np.array([f.share for f in settings.formats])
    kind = rng.choice(share.size, size=settings.stores, p=share / share.sum())
    typical = np.array([f.size for f in settings.formats])[kind]
    return Stores(
        format=kind,
        region=rng.integers(0, settings.regions, size=settings.stores),
        size=typical * rng.lognormal(0, 0.25, size=settings.stores),
    )


def draw_skus(settings: ChainSettings, seed: int) -> Skus:
    """Life cycles first: each week some SKUs leave, and as many of the same departments arrive."""
    department = list(stream(seed, "departments").integers(0, len(settings.departments), size=settings.skus))
    launch = [0] * settings.skus
    delist = [NEVER] * settings.skus
    on_sale = np.arange(settings.skus)
    churn = settings.by_week("assortment_churn")
    for t in range(1, settings.weeks):
        leaves = stream(seed, "churn", t).random(on_sale.size) < churn[t]
        for slot in np.flatnonzero(leaves):
            delist[on_sale[slot]] = t
            department.append(department[on_sale[slot]])
            launch.append(t)
            delist.append(NEVER)
            on_sale[slot] = len(launch) - 1
    rng = stream(seed, "skus")
    normal = rng.standard_normal((len(launch), 2))  # row by row: a later SKU leaves the earlier ones alone
    return Skus(
        department=np.array(department, dtype=np.int64),
        price=np.round(3.5 * np.exp(0.7 * normal[:, 0]), 2) + 0.1,
        popularity=np.exp(0.8 * normal[:, 1]),
        launch=np.array(launch, dtype=np.int64),
        delist=np.array(delist, dtype=np.int64),
    )


def draw_pairs(settings: ChainSettings, stores: Stores, skus: Skus, seed: int) -> Pairs:
    """Which store ranges which SKU, and its base demand (see the package for the formula).

    A format ranges a SKU with log odds logit(its ranged share) + the SKU's standardised log popularity.
    """
    ranged_share = np.array([f.ranged_share for f in settings.formats])
    popular = np.log(skus.popularity) / 0.8
    plan_rng, local_rng, affinity_rng = (stream(seed, s) for s in ("plan", "local", "affinity"))
    n, total = settings.stores, skus.launch.size
    odds = expit(logit(ranged_share)[None, :] + popular[:, None])  # SKU x format
    plan = plan_rng.random(odds.shape) < odds
    local_draw = local_rng.random((total, n, 2), dtype=np.float32)
    local = local_draw[:, :, 0] < settings.local_ranging
    ranged = np.where(local, local_draw[:, :, 1] < odds[:, stores.format], plan[:, stores.format])
    store, sku = np.nonzero(ranged.T)

    affinity = affinity_rng.gamma(4, 0.25, size=(len(settings.formats), len(settings.departments)))
    a = stream(seed, "store factors").gamma(0.5, 1.0, size=(n, settings.latent_factors))
    b = stream(seed, "sku factors").gamma(0.5, 1.0, size=(total, settings.latent_factors))
    base = affinity[stores.format[store], skus.department[sku]]
    for k in range(settings.latent_factors):
        base += a[store, k] * b[sku, k]
    base *= stores.size[store] * skus.popularity[sku]
    initial = base[skus.launch[sku] == 0]  # the level must not depend on what is launched later
    if initial.size:
        base *= settings.median_units / np.median(initial)
    return Pairs(store=store, sku=sku, base=base)


def draw_promotions(settings: ChainSettings, skus: Skus, seed: int) -> BoolArray:
    """SKU x week: is the SKU on promotion, in every store that ranges it."""
    starts = np.zeros((skus.launch.size, settings.weeks), dtype=np.bool_)
    for t in range(settings.weeks):
        starts[:, t] = stream(seed, "promotions", t).random(skus.launch.size) < settings.promo_rate
    promo = starts.copy()
    for later in range(1, min(settings.promo_weeks, settings.weeks)):
        promo[:, later:] |= starts[:, :-later]
    return promo


def sku_effects(settings: ChainSettings, skus: Skus, promo: BoolArray, seed: int) -> FloatArray:
    """SKU x week: demand level, season and holidays of the department, promotions, launch ramp."""
    rng = stream(seed, "season")
    departments = len(settings.departments)
    phase = rng.uniform(0, 1, size=departments)
    amplitude = settings.season_amplitude * rng.uniform(0.3, 1, size=departments)
    feeling = rng.uniform(0, 2, size=departments)
    number = np.array([week for _, week in iso_year_weeks(settings.start_week, settings.weeks)])
    season = 1 + amplitude[:, None] * np.sin(2 * np.pi * (number[None, :] / 52 - phase[:, None]))
    holiday = np.isin(number, settings.holiday_weeks)
    season *= 1 + settings.holiday_uplift * feeling[:, None] * holiday[None, :]
    effects = season[skus.department] * settings.by_week("demand_level")[None, :]
    effects *= np.where(promo, settings.promo_uplift, 1.0)
    new = np.flatnonzero(skus.launch > 0)  # what is on sale in the first week was launched before it
    for age, share in enumerate(LAUNCH_RAMP):
        inside = new[skus.launch[new] + age < settings.weeks]
        effects[inside, skus.launch[inside] + age] *= share
    return np.asarray(effects, dtype=np.float64)


def store_effects(settings: ChainSettings, stores: Stores, seed: int, week: int) -> FloatArray:
    """Weather and local events of one week, with mean 1."""
    rng = stream(seed, "weather", week)
    sd = settings.store_shock
    region = rng.normal(0, sd / 2, size=settings.regions)[stores.region]
    own = rng.normal(0, sd, size=settings.stores)
    return np.asarray(np.exp(region + own - 0.625 * sd**2), dtype=np.float64)


def costs_of_skus(
    settings: ChainSettings, skus: Skus, pairs: Pairs, seed: int
) -> tuple[FloatArray, FloatArray]:
    """(false alarm, missed) per SKU: minutes at the shelf by department; margin lost until found."""
    walk = stream(seed, "costs").uniform(1.5, 4.0, size=len(settings.departments))
    stores_of = np.bincount(pairs.sku, minlength=skus.launch.size)
    units = np.bincount(pairs.sku, weights=pairs.base, minlength=skus.launch.size)
    mean_units = units / np.maximum(stores_of, 1)
    missed: FloatArray = MARGIN * skus.price * mean_units * settings.phantom_weeks / 2
    return walk[skus.department].round(2), missed.clip(min=0.5).round(2)
