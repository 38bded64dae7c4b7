"""The chain obeys its own tables, its truth shows in the sales, and each knob moves its own thing."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.simulate import ChainSettings, SimulatedChain, StoreFormat, simulate_chain
from ew_pipeline.simulate.settings import iso_weeks

TABLES = ("sales", "listing", "costs", "checks", "stores", "skus", "truth")
KEYS = ["store_id", "sku_id", "week"]
CHANGE = 8


def simulate(seed: int = 1, **overrides) -> SimulatedChain:
    return simulate_chain(ChainSettings.small(**overrides), seed)


@pytest.fixture(scope="module")
def chain() -> SimulatedChain:
    return simulate(late_store_rate=0.05, assortment_churn=0.02)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with text instead of categories, whose lists may differ between two chains."""
    return frame.astype({name: "object" for name in frame.columns if frame[name].dtype == "category"})


def assert_same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Same columns, types and values (pandas' own assertion takes seconds on large categories)."""
    assert list(left.dtypes.items()) == list(right.dtypes.items())
    assert left.equals(right)


def before_change(chain: SimulatedChain, table: str) -> pd.DataFrame:
    frame: pd.DataFrame = getattr(chain, table)
    early = set(iso_weeks("2026-W01", CHANGE))
    return plain(frame[frame["week"].isin(early)]).reset_index(drop=True)


def change_at(before: float, after: float):
    return lambda t: before if t < CHANGE else after


def units_and_truth(chain: SimulatedChain) -> pd.DataFrame:
    return plain(chain.sales).merge(plain(chain.truth), on=KEYS, validate="one_to_one")


def early_and_late(chain: SimulatedChain, values: pd.Series, weeks: pd.Series) -> tuple[float, float]:
    early = weeks.isin(iso_weeks("2026-W01", CHANGE))
    return float(values[early].mean()), float(values[~early].mean())


# ---------------------------------------------------------------- shape of the tables


def test_columns_are_those_of_the_contract(chain):
    assert list(chain.sales) == ["store_id", "sku_id", "week", "units", "price", "promo"]
    assert list(chain.listing) == ["store_id", "sku_id", "first_week", "last_week"]
    assert list(chain.costs) == ["store_id", "sku_id", "cost_false_alarm", "cost_missed"]
    assert list(chain.checks) == ["store_id", "sku_id", "week", "outcome", "checked_by", "source"]
    assert list(chain.stores) == ["store_id", "format", "region", "size"]
    assert list(chain.skus) == ["sku_id", "department", "launch_week", "delist_week"]
    assert list(chain.truth) == ["store_id", "sku_id", "week", "phantom", "expected_units"]


def test_same_seed_same_tables_other_seed_others(chain):
    again = simulate(late_store_rate=0.05, assortment_churn=0.02)
    for table in TABLES:
        assert_same(getattr(chain, table), getattr(again, table))
    other = simulate(2, late_store_rate=0.05, assortment_churn=0.02)
    assert not chain.sales["units"].equals(other.sales["units"])


def test_rows_are_unique_and_small(chain):
    for table in (chain.sales, chain.truth, chain.checks):
        assert not table.duplicated(KEYS).any()
    assert not chain.listing.duplicated(["store_id", "sku_id"]).any()
    columns_only = chain.sales.memory_usage(index=False) / len(chain.sales)
    assert columns_only.sum() < 16  # bytes per row: a year of 100 x 1000 is 50 MB, not 500


def test_units_are_low_counts_with_a_long_tail():
    units = simulate(stores=60, skus=400, weeks=4).sales["units"]
    assert 2 <= units.median() <= 4
    assert units.quantile(0.99) > 8 * units.median()


def test_weeks_follow_the_iso_calendar_over_a_long_year():
    assert iso_weeks("2026-W52", 3) == ["2026-W52", "2026-W53", "2027-W01"]
    chain = simulate(weeks=3, start_week="2026-W52")
    assert list(chain.sales["week"].unique()) == ["2026-W52", "2026-W53", "2027-W01"]
    assert (chain.sales["week"] <= "2026-W53").mean() == pytest.approx(2 / 3, abs=0.05)


# ---------------------------------------------------------------- ranging, life cycles, late stores


def test_sales_only_of_listed_pairs_inside_their_weeks(chain):
    rows = plain(chain.sales).merge(plain(chain.listing), on=["store_id", "sku_id"], how="left")
    assert rows["first_week"].notna().all()
    assert (rows["week"] >= rows["first_week"]).all()
    assert (rows["week"] <= rows["last_week"].fillna("9999-W99")).all()


def test_every_listed_pair_of_a_reporting_store_has_a_row_every_week(chain):
    listing = plain(chain.listing)
    for week, rows in plain(chain.sales).groupby("week"):
        live = listing[(listing["first_week"] <= week) & ~(listing["last_week"] < week)]
        reporting = live[live["store_id"].isin(rows["store_id"].unique())]
        assert len(reporting) == len(rows)


def test_listing_agrees_with_the_life_cycles(chain):
    rows = plain(chain.listing).merge(plain(chain.skus), on="sku_id")
    assert (rows["first_week"] == rows["launch_week"]).all()
    gone = rows[rows["delist_week"].notna()]
    assert len(gone) > 0
    assert (gone["last_week"] < gone["delist_week"]).all()
    assert rows.loc[rows["delist_week"].isna(), "last_week"].isna().all()


def test_delisted_skus_are_replaced_in_their_department(chain):
    skus = plain(chain.skus)
    for week in iso_weeks("2026-W01", 16):
        live = skus[(skus["launch_week"] <= week) & ~(skus["delist_week"] <= week)]
        assert len(live) == 150
    gone = skus.loc[skus["delist_week"].notna(), "department"].value_counts()
    new = skus.loc[skus["launch_week"] > "2026-W01", "department"].value_counts()
    pd.testing.assert_series_equal(gone.sort_index(), new.sort_index())


def test_larger_formats_range_more(chain):
    listed = plain(chain.listing).groupby("store_id").size()
    by_format = plain(chain.stores).set_index("store_id")["format"]
    share = listed.groupby(by_format).mean() / len(chain.skus)
    assert share["hypermarket"] > share["supermarket"] + 0.1 > share["convenience"] + 0.3


def test_late_stores_are_absent_from_sales_and_checks_but_not_from_the_truth(chain):
    possible = {(s, w) for s in chain.stores["store_id"] for w in iso_weeks("2026-W01", 16)}
    reported = set(plain(chain.sales)[["store_id", "week"]].itertuples(index=False, name=None))
    late = possible - reported
    assert 4 <= len(late) <= 36  # 384 store-weeks at 5%
    in_truth = set(plain(chain.truth)[["store_id", "week"]].itertuples(index=False, name=None))
    assert late <= in_truth
    checked = set(plain(chain.checks)[["store_id", "week"]].itertuples(index=False, name=None))
    assert not late & checked


def test_zeros_can_be_left_out_and_nothing_else_changes():
    full, sparse = simulate(), simulate(explicit_zeros=False)
    assert (full.sales["units"] == 0).any()
    positive = full.sales[full.sales["units"] > 0].reset_index(drop=True)
    assert_same(positive, sparse.sales)
    assert_same(full.truth, sparse.truth)


# ---------------------------------------------------------------- demand


def test_expected_units_of_a_week_are_low_rank():
    everything = tuple(StoreFormat(f"f{k}", 1.0, 1.0 + k, 1 - 1e-12) for k in range(2))
    chain = simulate(formats=everything, latent_factors=2, weeks=2)
    week = plain(chain.truth)[lambda rows: rows["week"] == "2026-W02"]
    dense = week.pivot(index="store_id", columns="sku_id", values="expected_units").to_numpy(np.float64)
    assert dense.shape == (24, 150)
    singular = np.linalg.svd(dense, compute_uv=False)
    assert singular[4] < 1e-5 * singular[0]  # the truth is stored in single precision
    assert singular[3] > 1e-3 * singular[0]


def test_healthy_pairs_sell_what_is_expected(chain):
    rows = units_and_truth(chain)
    healthy = rows[~rows["phantom"]]
    assert healthy["units"].sum() / healthy["expected_units"].sum() == pytest.approx(1, abs=0.02)


def test_promotions_cut_the_price_and_lift_demand():
    rows = units_and_truth(simulate(promo_rate=0.1, store_shock=0.0, season_amplitude=0.0))
    rows = rows[~rows["week"].isin(["2026-W15"])]  # a holiday
    per_pair = rows.groupby(["store_id", "sku_id", "promo"])[["price", "expected_units"]].mean().unstack()
    lift = (per_pair["expected_units"][True] / per_pair["expected_units"][False]).median()
    cut = (per_pair["price"][True] / per_pair["price"][False]).median()
    assert lift == pytest.approx(1.8, rel=0.01)
    assert cut == pytest.approx(0.75, rel=0.01)


def test_holidays_lift_demand_and_seasons_move_departments_apart():
    flat = {"promo_rate": 0.0, "store_shock": 0.0, "assortment_churn": 0.0}
    totals = plain(simulate(season_amplitude=0.0, **flat).truth).groupby("week")["expected_units"].sum()
    assert totals["2026-W15"] > 1.1 * totals["2026-W14"]
    assert totals["2026-W14"] == pytest.approx(totals["2026-W01"], rel=1e-5)
    seasonal = simulate(season_amplitude=0.4, holiday_uplift=0.0, **flat)
    rows = plain(seasonal.truth).merge(plain(seasonal.skus), on="sku_id")
    by = rows.groupby(["department", "week"])["expected_units"].sum().unstack()
    change = by["2026-W14"] / by["2026-W01"]
    assert change.max() - change.min() > 0.1


def test_launches_ramp_up():
    chain = simulate(assortment_churn=0.05, store_shock=0.0, season_amplitude=0.0, promo_rate=0.0)
    rows = plain(chain.truth).merge(plain(chain.skus), on="sku_id")
    born = rows[rows["launch_week"] == "2026-W03"]
    total = born[born["delist_week"].isna()].groupby("week")["expected_units"].sum()
    assert total["2026-W03"] / total["2026-W06"] == pytest.approx(0.4, rel=1e-3)
    assert total["2026-W05"] / total["2026-W06"] == pytest.approx(0.8, rel=1e-3)


# ---------------------------------------------------------------- phantoms


def test_phantoms_take_the_share_of_sales_that_depth_says():
    # Every event is under way from the first week and is never repaired.
    rows = units_and_truth(
        simulate(phantom_rate=0.3, phantom_depth=0.7, phantom_weeks=1e9, checks_per_store=0, weeks=8)
    )
    phantom = rows[rows["phantom"] & (rows["week"] == "2026-W01")]
    assert phantom["units"].sum() / phantom["expected_units"].sum() == pytest.approx(0.3, abs=0.06)


def test_total_loss_leaves_nothing_except_in_the_week_of_onset():
    rows = units_and_truth(simulate(phantom_depth=1.0, phantom_rate=0.1, checks_per_store=0))
    phantom = rows[rows["phantom"]].sort_values(["store_id", "sku_id", "week"])
    assert (phantom.loc[phantom["week"] == "2026-W01", "units"] == 0).all()
    # From the second week of an event on the pair sells nothing; in the first, the days before the onset.
    weeks = {week: t for t, week in enumerate(iso_weeks("2026-W01", 16))}
    index = phantom["week"].map(weeks)
    same_pair = phantom[["store_id", "sku_id"]].eq(phantom[["store_id", "sku_id"]].shift()).all(axis=1)
    goes_on = same_pair & (index - index.shift() == 1)
    onset = phantom[~goes_on & (index > 0)]
    share = onset["units"].sum() / onset["expected_units"].sum()
    assert share == pytest.approx(3 / 7, abs=0.05)  # a day of 0..6, uniform
    # A repaired pair may fall again at once: a new onset hidden behind the old event, 4% of the repaired.
    assert (phantom.loc[goes_on, "units"] > 0).mean() < 0.03


def test_events_last_as_long_as_told():
    never_new = [0.3] + [0.0] * 15
    chain = simulate(
        phantom_rate=never_new,
        phantom_weeks=4.0,
        checks_per_store=0,
        random_checks_per_store=0,
        assortment_churn=0.0,
    )
    active = plain(chain.truth).groupby("week")["phantom"].sum().to_numpy()
    survival = active[1:6].sum() / active[:5].sum()
    assert survival == pytest.approx(0.75, abs=0.03)


# ---------------------------------------------------------------- checks and costs


def test_checks_find_the_truth_and_skipped_ones_have_no_name(chain):
    rows = plain(chain.checks).merge(plain(chain.truth), on=KEYS, validate="one_to_one")
    assert set(rows["outcome"]) == {"confirmed", "healthy", "not_checked"}
    made = rows[rows["outcome"] != "not_checked"]
    assert ((made["outcome"] == "confirmed") == made["phantom"]).all()
    assert (rows["checked_by"].isna() == (rows["outcome"] == "not_checked")).all()
    assert not ((rows["source"] == "random") & (rows["outcome"] == "not_checked")).any()


def test_checks_per_store_are_bounded_and_flags_beat_chance(chain):
    rows = plain(chain.checks)
    per_store = rows.groupby(["store_id", "week", "source"]).size().unstack(fill_value=0)
    assert per_store["flag"].max() == 3
    assert (per_store["random"] == 1).all()
    made = rows[rows["outcome"] != "not_checked"]
    confirmed = (made["outcome"] == "confirmed").groupby(made["source"]).mean()
    assert confirmed["flag"] > 3 * 0.04
    assert (rows.loc[rows["week"] == "2026-W01", "source"] == "random").all()  # no level to fall from yet


def test_a_confirmed_check_repairs_the_record():
    chain = simulate(phantom_rate=[0.2] + [0.0] * 15, phantom_weeks=1e9, checks_per_store=10)
    found = plain(chain.checks)[lambda rows: rows["outcome"] == "confirmed"]
    assert len(found) > 50
    later = found.merge(plain(chain.truth), on=["store_id", "sku_id"], suffixes=("_check", ""))
    after = later[later["week"] > later["week_check"]]
    assert not after["phantom"].any()
    assert later.loc[later["week"] == later["week_check"], "phantom"].all()


def test_no_checks_give_an_empty_table_of_the_same_kind(chain):
    empty = simulate(checks_per_store=0, random_checks_per_store=0).checks
    assert len(empty) == 0
    assert list(empty) == list(chain.checks)


def test_costs_have_a_default_and_a_row_for_every_sku(chain):
    assert chain.costs["sku_id"].isna().sum() == 1
    assert set(chain.costs["sku_id"].dropna()) == set(chain.skus["sku_id"])
    assert (chain.costs[["cost_false_alarm", "cost_missed"]] > 0).all(axis=None)


# ---------------------------------------------------------------- drift knobs


def test_phantom_rate_follows_its_schedule():
    chain = simulate(phantom_rate=change_at(0.04, 0.08), skus=400, weeks=16)
    early, late = early_and_late(chain, chain.truth["phantom"], chain.truth["week"])
    assert early == pytest.approx(0.04, abs=0.003)
    assert late == pytest.approx(0.08, abs=0.004)


def test_phantom_depth_follows_its_schedule():
    chain = simulate(phantom_depth=change_at(1.0, 0.0), phantom_rate=0.2, phantom_weeks=1.0)
    rows = units_and_truth(chain)
    phantom = rows[rows["phantom"]]
    last = phantom[phantom["week"] == "2026-W16"]
    first = phantom[phantom["week"] == "2026-W01"]
    assert first["units"].sum() == 0
    assert last["units"].sum() / last["expected_units"].sum() == pytest.approx(1, abs=0.15)


def test_demand_level_follows_its_schedule():
    base, doubled = simulate(), simulate(demand_level=change_at(1.0, 2.0))
    ratio = doubled.truth["expected_units"] / base.truth["expected_units"]
    early = base.truth["week"].isin(iso_weeks("2026-W01", CHANGE))
    np.testing.assert_allclose(ratio[early], 1)
    np.testing.assert_allclose(ratio[~early], 2, rtol=1e-6)
    later = ~base.sales["week"].isin(iso_weeks("2026-W01", CHANGE))
    assert doubled.sales["units"][later].sum() / base.sales["units"][later].sum() == pytest.approx(
        2, rel=0.05
    )


def test_dispersion_follows_its_schedule():
    chain = simulate(dispersion_size=change_at(math.inf, 2.0), phantom_rate=0.0, skus=400)
    rows = units_and_truth(chain)
    mean = rows["expected_units"]
    excess = ((rows["units"] - mean) ** 2 - mean) / mean**2  # 1/s0 on average
    weight = mean**2 / (mean + mean**2 / 2) ** 2 * mean**2
    early = rows["week"].isin(iso_weeks("2026-W01", CHANGE))
    assert np.average(excess[early], weights=weight[early]) == pytest.approx(0.0, abs=0.02)
    assert np.average(excess[~early], weights=weight[~early]) == pytest.approx(0.5, abs=0.05)


def test_late_stores_follow_their_schedule():
    chain = simulate(late_store_rate=change_at(0.0, 0.4))
    stores = plain(chain.sales).groupby("week")["store_id"].nunique()
    assert (stores[:CHANGE] == 24).all()
    assert stores[CHANGE:].mean() == pytest.approx(24 * 0.6, abs=2.5)


def test_churn_follows_its_schedule():
    skus = plain(simulate(assortment_churn=change_at(0.0, 0.1)).skus)
    first_change = iso_weeks("2026-W01", 16)[CHANGE]
    assert set(skus.loc[skus["launch_week"] < first_change, "launch_week"]) == {"2026-W01"}
    assert len(skus) - 150 == pytest.approx(8 * 15, abs=35)


@pytest.mark.parametrize(
    ("knob", "usual", "other"),
    [
        ("phantom_rate", 0.04, 0.2),
        ("phantom_depth", 0.9, 0.3),
        ("demand_level", 1.0, 3.0),
        ("dispersion_size", 5.0, 1.0),
        ("late_store_rate", 0.01, 0.5),
        ("assortment_churn", 0.003, 0.2),
    ],
)
def test_a_change_at_a_week_leaves_the_weeks_before_as_they_were(knob, usual, other):
    steady, changed = simulate(**{knob: usual}), simulate(**{knob: change_at(usual, other)})
    for table in ("sales", "truth", "checks"):
        assert_same(before_change(steady, table), before_change(changed, table))
    assert not plain(steady.sales).equals(plain(changed.sales))


def test_schedules_may_be_constants_arrays_or_functions():
    values = np.linspace(0.02, 0.1, 16)
    tables = [
        simulate(phantom_rate=schedule).truth
        for schedule in (values, list(values), lambda t: float(values[t]))
    ]
    assert_same(tables[0], tables[1])
    assert_same(tables[0], tables[2])


# ---------------------------------------------------------------- files and failures


def test_write_and_read_round_trip(chain, tmp_path: Path):
    paths = chain.write(tmp_path / "chain")
    assert set(paths) == set(TABLES)
    for name, path in paths.items():
        assert path == tmp_path / "chain" / f"{name}.parquet"
        assert_same(pd.read_parquet(path), getattr(chain, name))


def test_a_week_of_sales_becomes_a_sales_matrix(chain):
    matrix = SalesMatrix.from_long(chain.sales, week="2026-W05")
    rows = chain.sales[chain.sales["week"] == "2026-W05"]
    assert matrix.n_observed == len(rows)
    assert matrix.counts.sum() == rows["units"].sum()
    assert matrix.week == "2026-W05"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"stores": 0}, "stores"),
        ({"start_week": "2026-34"}, "2026-34"),
        ({"start_week": "2025-W53"}, "2025-W53"),
        ({"phantom_rate": 1.2}, "phantom_rate in week 0"),
        ({"phantom_rate": [0.1, 0.2]}, "phantom_rate"),
        ({"phantom_depth": lambda t: -1.0 if t == 3 else 0.5}, "phantom_depth in week 3"),
        ({"late_store_rate": float("nan")}, "late_store_rate"),
        ({"dispersion_size": 0.0}, "dispersion_size"),
        ({"phantom_weeks": 0.5}, "phantom_weeks"),
        ({"departments": ()}, "departments"),
        ({"formats": (StoreFormat("kiosk", 1.0, 1.0, 1.5),)}, "formats"),
    ],
)
def test_wrong_settings_are_refused_and_named(wrong, named):
    with pytest.raises(UsageError, match=named):
        ChainSettings.small(**wrong)


def test_a_negative_seed_is_refused():
    with pytest.raises(UsageError, match="seed"):
        simulate(-1)
