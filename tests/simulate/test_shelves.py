"""Goods are conserved, orders follow the record, records go wrong only by errors, and checks repair them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ew_pipeline.core.errors import UsageError
from ew_pipeline.simulate import ShelfChain, ShelfSettings, Shelves, simulate_shelves
from ew_pipeline.simulate.settings import iso_weeks
from ew_pipeline.simulate.shelf_days import (
    Day,
    Ordering,
    Risks,
    Stock,
    run_day,
)
from ew_pipeline.simulate.shelves import WEEKDAYS

TABLES = ("sales", "listing", "costs", "checks", "stores", "skus", "truth")
PAIR = ["store_id", "sku_id"]
KEYS = [*PAIR, "week"]
TRUTH = [
    "wrong",
    "known_out",
    "wrong_since",
    "days_empty",
    "lost_share",
    "expected_units",
    "demand",
    "shelf",
    "misplaced",
]
CHANGE = 6
SMALL = {"stores": 8, "skus": 30, "weeks": 12, "lead_in_weeks": 8}
ERRORS = {"theft_rate": 0.3, "damage_rate": 0.3, "misplaced_share": 0.3, "miscount_share": 0.3}


def settings(**overrides) -> ShelfSettings:
    return ShelfSettings(**{**SMALL, **overrides})


def simulate(seed: int = 1, **overrides) -> ShelfChain:
    return simulate_shelves(settings(**overrides), seed)


@pytest.fixture(scope="module")
def chain() -> ShelfChain:
    return simulate(churn=0.02, late_store_rate=0.05, theft_rate=0.03)


@pytest.fixture(scope="module")
def median_4() -> ShelfChain:
    return simulate_shelves(ShelfSettings.median_4(), 3)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows with text instead of categories."""
    return frame.astype({name: "object" for name in frame.columns if frame[name].dtype == "category"})


def text(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# ---------------------------------------------------------------- one place, day by day, by hand


class Told:
    """A generator that says what it is told: demand, or luck (.99 = nothing happens)."""

    def __init__(self, demand: int = 0, **luck: float) -> None:
        names = (
            "misplaced",
            "found",
            "miscount",
            "miscount_units",
            "theft",
            "theft_units",
            "damage",
            "count",
        )
        self.demand, self.luck = demand, np.array([[luck.get(name, 0.99)] for name in names])

    def poisson(self, mean):
        return text(self.demand)

    def random(self, shape):
        assert shape == self.luck.shape
        return self.luck


RISKS = Risks(
    misplaced=np.full(1, 0.5),
    miscount=np.full(1, 0.5),
    theft=np.full(1, 0.5),
    damage=np.full(1, 0.5),
    count=0.5,
    notice=0.0,
    found=0.5,
    theft_units=4.0,
)


def day_of(
    stock: Stock, demand: int, supplied: bool = True, notice: float = 0.0, **luck: float
) -> tuple[Stock, Day]:
    ordering = Ordering(reorder=text(3), case=text(6), supplied=np.array([supplied]))
    risks = replace(RISKS, notice=notice)
    return run_day(stock, np.ones(1), 1.0, risks, ordering, Told(demand), Told(**luck))


def stock_of(shelf: int, record: int, arriving: tuple[int, int] = (0, 0), misplaced: int = 0) -> Stock:
    return Stock(text(shelf), text(misplaced), text(record), np.array(arriving)[:, None])


def held(stock: Stock) -> tuple[int, int, int, list[int]]:
    return int(stock.shelf[0]), int(stock.misplaced[0]), int(stock.record[0]), stock.on_order[:, 0].tolist()


def test_one_place_over_five_days_by_hand():
    stock = stock_of(5, 5, (6, 0))
    # Monday: the case of 6 arrives and is put in the wrong place. 2 are sold of 5. Record 11 - 2.
    stock, day = day_of(stock, demand=2, misplaced=0.0)
    assert held(stock) == (3, 6, 9, [0, 0])
    # Tuesday: 7 are wanted, the shelf has 3. The record shows 6: nothing is ordered.
    stock, day = day_of(stock, demand=7)
    assert int(day.sold[0]) == 3
    assert held(stock) == (0, 6, 6, [0, 0])
    # Wednesday: the pallet is found, 4 are sold; a thief wants 4 and gets the last 2. Record 2: a case.
    stock, day = day_of(stock, demand=4, found=0.0, theft=0.0, theft_units=0.6)
    assert (int(day.found[0]), int(day.stolen[0])) == (6, 2)
    assert held(stock) == (0, 0, 2, [0, 12])
    # Thursday: a count says 0. Ordered already: 12 on order.
    stock, day = day_of(stock, demand=1, count=0.0)
    assert held(stock) == (0, 0, 0, [12, 0])
    # Friday: 12 arrive, 6 more are booked; 1 is sold, 1 breaks. Record 18 - 1, stock 12 - 2.
    stock, day = day_of(stock, demand=1, damage=0.0, miscount=0.0, miscount_units=0.75)
    assert int(day.booked[0]) == 12 + 7
    assert held(stock) == (10, 0, 18, [0, 0])


def test_orders_are_made_on_the_record_and_not_on_the_shelf():
    believed_full, believed_empty = stock_of(0, 9), stock_of(9, 0)
    assert int(day_of(believed_full, 0)[1].ordered[0]) == 0
    assert int(day_of(believed_empty, 0)[1].ordered[0]) == 12  # whole cases, up to 3 + 6
    assert int(day_of(stock_of(0, 4), 0)[1].ordered[0]) == 0
    assert int(day_of(stock_of(0, 3), 0)[1].ordered[0]) == 6


def test_what_is_on_order_counts_and_a_short_supplier_sends_nothing():
    assert int(day_of(stock_of(0, 0, (0, 6)), 0)[1].ordered[0]) == 0
    assert int(day_of(stock_of(0, 0), 0, supplied=False)[1].ordered[0]) == 0


def test_customers_who_miss_goods_on_record_lead_to_a_count():
    missed = day_of(stock_of(1, 9), demand=3, notice=0.5, count=0.8)  # 1 - .5 (count) * .5² (two missed)
    assert bool(missed[1].counted[0])
    assert held(missed[0])[:3] == (0, 0, 0)
    assert not day_of(stock_of(1, 9), demand=3, notice=0.5, count=0.9)[1].counted[0]
    assert not day_of(stock_of(3, 9), demand=3, notice=0.5, count=0.8)[1].counted[0]  # nobody missed any
    assert not day_of(stock_of(0, 0), demand=3, notice=0.5, count=0.8)[1].counted[0]  # known out of stock


# ---------------------------------------------------------------- goods and records of a whole chain


def test_goods_are_conserved_and_never_negative():
    shelves = Shelves(settings(churn=0.0, **ERRORS), 4)
    for _ in range(4):
        before = shelves.stock
        days = shelves.run_week()
        after = shelves.stock
        moved = sum(day.delivered - day.sold - day.stolen - day.damaged for day in days)
        np.testing.assert_array_equal(before.shelf + before.misplaced + moved, after.shelf + after.misplaced)
        booked = before.record + sum(day.booked - day.sold for day in days)
        quiet = ~np.any([day.counted for day in days], axis=0)
        np.testing.assert_array_equal(booked[quiet], after.record[quiet])
        assert min(after.shelf.min(), after.misplaced.min()) >= 0
    assert all(
        sum(int(getattr(day, name).sum()) for day in days) > 0 for name in ("stolen", "damaged", "found")
    )


def test_what_was_ordered_arrives_after_the_lead_time():
    shelves = Shelves(settings(churn=0.0, lead_days=3), 0)
    days = [day for _ in range(2) for day in shelves.run_week()]
    for early, late in zip(days[:-3], days[3:], strict=True):
        np.testing.assert_array_equal(early.ordered, late.delivered)


def test_units_are_those_sold_and_never_exceed_the_shelf():
    shelves = Shelves(settings(**ERRORS), 2)
    for _ in range(3):
        days = shelves.run_week()
        for day in days:
            np.testing.assert_array_equal(day.sold, np.minimum(day.demand, day.opening))
    chain = shelves.chain()
    last = plain(chain.sales).query("week == week.max()")
    assert last["units"].sum() == sum(int(day.sold.sum()) for day in days)
    rows = plain(chain.sales).merge(plain(chain.truth), on=KEYS)
    assert (rows["units"] <= rows["demand"]).all()
    assert (rows["units"] < rows["demand"]).any()


def test_without_errors_the_record_is_the_stock_and_nothing_is_wrong():
    chain = simulate_shelves(ShelfSettings.nothing_wrong(**SMALL, churn=0.02, shortage_rate=0.05), 5)
    rows = plain(chain.sales).merge(plain(chain.truth), on=KEYS)
    np.testing.assert_array_equal(rows["on_hand"], rows["shelf"])
    assert not chain.truth["wrong"].any()
    assert (chain.truth["misplaced"] == 0).all()
    assert 0.005 < chain.truth["known_out"].mean() < 0.5  # suppliers are short all the same


@pytest.mark.parametrize("error", ERRORS)
def test_each_error_alone_makes_records_wrong(error):
    chain = simulate_shelves(ShelfSettings.nothing_wrong(**{**SMALL, error: 0.3}), 5)
    assert chain.truth["wrong"].any()


# ---------------------------------------------------------------- the truth


def test_wrong_means_stock_on_record_and_an_empty_shelf_on_most_days():
    shelves = Shelves(settings(churn=0.0, theft_rate=0.06), 7)
    for _ in range(3):
        days = shelves.run_week()
    truth = plain(shelves.chain().truth).query("week == week.max()").reset_index(drop=True)
    ranged = shelves._ranged()
    record = shelves.stock.record[ranged]
    expected = truth["expected_units"].to_numpy()
    empty = np.array(
        [
            (day.opening_record[ranged] > 0) & (day.opening[ranged] < 0.1 * expected * share)
            for day, share in zip(days, WEEKDAYS, strict=True)
        ]
    )
    by_hand = (empty.sum(axis=0) >= 4) & empty[-1] & (record > 0)
    np.testing.assert_array_equal(truth["wrong"].to_numpy(dtype=bool), by_hand)
    assert 0.02 < by_hand.mean() < 0.5
    np.testing.assert_array_equal(truth["days_empty"], empty.sum(axis=0))
    np.testing.assert_array_equal(truth["known_out"].to_numpy(dtype=bool), record <= 0)
    assert not (truth["wrong"] & truth["known_out"]).any()


def test_wrong_records_sell_nearly_nothing_and_say_since_when(median_4):
    truth = median_4.truth
    rows = median_4.sales.merge(truth, on=KEYS)
    sold = rows["units"].groupby(rows["wrong"]).sum() / rows["expected_units"].groupby(rows["wrong"]).sum()
    assert sold[True] < 0.1 < 0.85 < sold[False]
    lost = 1 - rows["lost_share"]
    explained = (rows["expected_units"] * lost).sum() / rows["units"].sum()
    assert explained == pytest.approx(1, abs=0.06)
    assert truth["wrong_since"].notna().equals(truth["wrong"])
    codes = truth.assign(
        at=truth["week"].cat.codes.astype(int), since=truth["wrong_since"].cat.codes.astype(int)
    )
    before = codes.assign(at=codes["at"] + 1)[[*PAIR, "at", "wrong", "since"]]
    pairs = codes.merge(before, on=[*PAIR, "at"], suffixes=("", "_before"))
    runs = pairs[pairs["wrong"] & pairs["wrong_before"]]
    assert (runs["since"] == runs["since_before"]).all()
    new = pairs[pairs["wrong"] & ~pairs["wrong_before"]]
    assert (new["since"] == new["at"]).all()


def test_shares_of_wrong_records_of_the_named_settings(median_4):
    assert 0.04 < median_4.truth["wrong"].mean() < 0.08
    assert median_4.truth["expected_units"].median() == pytest.approx(4, abs=0.4)
    by_half = median_4.truth["wrong"].groupby(median_4.truth["week"].cat.codes < 30).mean()
    assert by_half.min() > 0.8 * by_half.max()  # the chain starts with old errors
    slow = simulate_shelves(ShelfSettings.median_1_5(weeks=30), 3)
    assert 0.015 < slow.truth["wrong"].mean() < 0.04
    assert slow.truth["expected_units"].median() == pytest.approx(1.5, abs=0.15)


def test_demand_is_overdispersed_around_what_is_expected(median_4):
    truth = median_4.truth
    assert truth["demand"].sum() / truth["expected_units"].sum() == pytest.approx(1, abs=0.02)
    some = truth[truth["expected_units"].between(9, 11)]
    excess = ((some["demand"] - some["expected_units"]) ** 2).mean() / some["expected_units"].mean()
    assert 2 < excess < 5  # 1 would be Poisson


def test_some_skus_are_worse_than_others_when_asked():
    alike, differ = (
        simulate(3, stores=20, skus=100, weeks=20, sku_onset_ratio=ratio, churn=0.0) for ratio in (1.0, 10.0)
    )
    assert (alike.skus["proneness"] == 1).all()
    proneness = differ.skus["proneness"].to_numpy()
    assert proneness.mean() == pytest.approx(1, abs=0.25)
    assert proneness.max() / proneness.min() == pytest.approx(10, rel=0.01)
    prone = proneness > 1
    assert 0.1 < prone.mean() < 0.3
    truth = plain(differ.truth)
    begins = truth["wrong"].astype(bool) & (truth["wrong_since"] == truth["week"])
    onset = begins.groupby(truth["sku_id"]).mean().to_numpy()
    assert 5 < onset[prone].mean() / onset[~prone].mean() < 15
    assert differ.truth["wrong"].mean() == pytest.approx(alike.truth["wrong"].mean(), rel=0.4)


# ---------------------------------------------------------------- tables


def test_columns_are_those_of_the_contract(chain):
    assert list(chain.sales) == [*KEYS, "units", "price", "promo", "on_hand"]
    assert list(chain.listing) == [*PAIR, "first_week", "last_week"]
    assert list(chain.costs) == [*PAIR, "cost_false_alarm", "cost_missed"]
    assert list(chain.checks) == [*KEYS, "outcome"]
    assert list(chain.stores) == ["store_id"]
    assert list(chain.skus) == ["sku_id", "department", "launch_week", "delist_week", "proneness"]
    assert list(chain.truth) == [*KEYS, *TRUTH]
    for table in (chain.sales, chain.truth):
        assert not table.duplicated(KEYS).any()
    assert (chain.sales["price"][chain.sales["promo"]].mean()) > 0
    assert (chain.costs[["cost_false_alarm", "cost_missed"]] > 0).all(axis=None)


def test_rows_are_those_of_listed_pairs_of_reporting_stores(chain):
    listing = plain(chain.listing)
    assert listing["first_week"].nunique() > 1
    assert listing["last_week"].notna().any()
    rows = plain(chain.truth).merge(listing, on=PAIR, how="left")
    assert (rows["first_week"] <= rows["week"]).all()
    assert (rows["week"] <= rows["last_week"].fillna("9999-W99")).all()
    ends = listing["last_week"].fillna("9999-W99")
    weeks = rows["week"].unique()
    expected = sum(((listing["first_week"] <= week) & (week <= ends)).sum() for week in weeks)
    assert expected == len(rows)
    late = plain(chain.truth).merge(plain(chain.sales), on=KEYS, how="left")["units"].isna()
    assert 0.01 < late.mean() < 0.15
    assert set(listing["sku_id"]) == set(plain(chain.skus)["sku_id"]) == set(chain.costs["sku_id"].dropna())


def test_a_launched_sku_starts_with_goods_and_little_demand(chain):
    truth = plain(chain.truth)
    first = truth.merge(plain(chain.listing), on=PAIR).query("week == first_week and week > '2026-W01'")
    later = truth[truth["sku_id"].isin(first["sku_id"])].query("week == week.max()")
    assert len(first) > 5
    assert not first["wrong"].any()
    assert first["expected_units"].mean() < 0.7 * later["expected_units"].mean()


def test_write_and_read_again(chain, tmp_path: Path):
    paths = chain.write(tmp_path)
    assert set(paths) == set(TABLES)
    again = pd.read_parquet(paths["sales"])
    assert again["on_hand"].equals(chain.sales["on_hand"])


# ---------------------------------------------------------------- draws


def test_same_seed_same_tables_other_seed_others(chain):
    again = simulate(churn=0.02, late_store_rate=0.05, theft_rate=0.03)
    for table in TABLES:
        assert getattr(chain, table).equals(getattr(again, table)), table
    other = simulate(2, churn=0.02, late_store_rate=0.05, theft_rate=0.03)
    assert not chain.sales["units"].equals(other.sales["units"])


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("theft_rate", 0.01, 0.5),
        ("damage_rate", 0.01, 0.9),
        ("misplaced_share", 0.03, 0.8),
        ("miscount_share", 0.01, 0.8),
        ("count_rate", 0.1, 0.9),
        ("shortage_rate", 0.01, 0.9),
        ("churn", 0.0, 0.3),
        ("demand_level", 1.0, 3.0),
        ("late_store_rate", 0.01, 0.9),
    ],
)
def test_a_change_at_a_week_leaves_the_weeks_before_as_they_were(name, before, after):
    steady = simulate(**{name: before})
    changed = simulate(**{name: lambda t: before if t < CHANGE else after})
    early = set(iso_weeks("2026-W01", CHANGE))

    def seen(chain: ShelfChain, table: str, in_early: bool) -> pd.DataFrame:
        rows = plain(getattr(chain, table))
        return rows[rows["week"].isin(early) == in_early].reset_index(drop=True)

    for table in ("sales", "truth"):
        pd.testing.assert_frame_equal(seen(steady, table, True), seen(changed, table, True))
    assert not seen(steady, "sales", False).equals(seen(changed, "sales", False))


def test_more_weeks_leave_the_first_ones_as_they_were():
    short, long = simulate(weeks=5), simulate(weeks=9)
    first = plain(long.truth)[plain(long.truth)["week"].isin(iso_weeks("2026-W01", 5))]
    pd.testing.assert_frame_equal(plain(short.truth), first)


# ---------------------------------------------------------------- checks


def test_a_check_says_what_was_wrong_and_repairs_the_record():
    chosen = settings(churn=0.0, theft_rate=0.06, weeks=8)
    shelves, left_alone = Shelves(chosen, 6), Shelves(chosen, 6)
    for _ in range(4):
        shelves.run_week()
        left_alone.run_week()
    truth = plain(shelves.chain().truth).query("week == week.max()")
    wrong, fine = truth[truth["wrong"].astype(bool)], truth[~truth["wrong"].astype(bool)].head(10)
    answers = shelves.check(pd.concat([wrong, fine])[PAIR])
    outcome = plain(answers).merge(truth, on=KEYS)
    assert len(outcome) == len(wrong) + 10
    assert (outcome["outcome"] == np.where(outcome["wrong"].astype(bool), "confirmed", "healthy")).all()

    for _ in range(3):
        shelves.run_week()
        left_alone.run_week()
    checked, other = shelves.chain(), left_alone.chain()
    pd.testing.assert_frame_equal(plain(checked.checks), plain(answers))
    rows = plain(checked.truth).merge(plain(other.truth), on=KEYS, suffixes=("", "_alone"))
    last = rows.query("week == week.max()").merge(plain(answers)[[*PAIR, "outcome"]], on=PAIR, how="left")
    found = last[last["outcome"] == "confirmed"]
    assert found["wrong_alone"].mean() > 0.4
    assert found["wrong"].mean() < 0.5 * found["wrong_alone"].mean()
    untouched = last[last["outcome"].isna()]
    for name in ("wrong", "shelf", "demand", "expected_units"):
        assert untouched[name].equals(untouched[f"{name}_alone"].rename(name)), name


def test_a_repaired_record_is_the_stock_and_an_unrepaired_one_is_not():
    shelves = Shelves(settings(theft_rate=0.06), 6)
    shelves.run_week()
    truth = plain(shelves.chain().truth)
    pairs = truth[truth["wrong"].astype(bool)][PAIR]
    before = shelves.stock
    assert set(shelves.check(pairs, repair=False)["outcome"]) == {"confirmed"}
    assert shelves.stock is before
    assert set(shelves.check(pairs)["outcome"]) == {"confirmed"}
    after = shelves.stock
    changed = (before.record != after.record) | (before.misplaced != after.misplaced)
    assert changed.sum() == len(pairs)
    for stock in (after.record, after.shelf):
        np.testing.assert_array_equal(stock[changed], (before.shelf + before.misplaced)[changed])


def test_a_run_of_wrong_weeks_ends_with_a_check_even_if_the_next_delivery_is_misplaced():
    thieves_first = {"theft_rate": [0.1, 0.0], "misplaced_share": [0.0, 0.95]}
    shelves = Shelves(settings(weeks=2, lead_days=1, **thieves_first), 6)
    shelves.run_week()
    first = plain(shelves.chain().truth)
    wrong = first[first["wrong"].astype(bool)][PAIR]
    shelves.check(wrong.head(len(wrong) // 2))
    shelves.run_week()
    last = plain(shelves.chain().truth).query("week == week.max() and wrong")
    last = last.merge(wrong, on=PAIR)
    checked = last.merge(wrong.head(len(wrong) // 2), on=PAIR)
    assert 0 < len(checked) < len(last)
    assert (checked["wrong_since"] == checked["week"]).all()
    assert (last["wrong_since"] < last["week"]).sum() == len(last) - len(checked)


def test_answers_about_past_weeks_follow_the_truth(chain):
    rows = plain(chain.truth).sample(50, random_state=0)
    answers = chain.answer_checks(rows[KEYS])
    confirmed = answers.merge(rows, on=KEYS)
    assert ((confirmed["outcome"] == "confirmed") == confirmed["wrong"].astype(bool)).all()


def test_shelves_that_are_not_there_are_refused(chain):
    nowhere = pd.DataFrame({"store_id": ["S9999"], "sku_id": ["K000001"], "week": ["2026-W03"]})
    with pytest.raises(UsageError, match="S9999/K000001"):
        chain.answer_checks(nowhere)
    shelves = Shelves(settings(weeks=1), 0)
    with pytest.raises(UsageError, match="no week"):
        shelves.check(nowhere)
    with pytest.raises(UsageError, match="no week"):
        shelves.chain()
    shelves.run_week()
    with pytest.raises(UsageError, match="S9999/K000001"):
        shelves.check(nowhere)
    with pytest.raises(UsageError, match="have been run"):
        shelves.run_week()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stores", 0),
        ("median_units", 0.0),
        ("theft_rate", 1.5),
        ("count_rate", [0.1, 0.2]),
        ("season_amplitude", 1.0),
        ("sku_onset_ratio", 0.5),
        ("departments", ()),
        ("start_week", "2026-W60"),
    ],
)
def test_wrong_settings_are_refused(name, value):
    with pytest.raises(UsageError):
        settings(**{name: value})
