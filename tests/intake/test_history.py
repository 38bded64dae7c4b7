"""The level of a pair: from the past alone, steady where little is sold, deaf to a spell of lost sales."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.intake.history import trailing_level, trailing_mean
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.simulate import ChainSettings, simulate_chain

WEEKS = [f"2026-W{w:02d}" for w in range(1, 11)]
NOW = WEEKS[-1]


def table(rates: np.ndarray, seed: int = 0, weeks: list[str] = WEEKS) -> pd.DataFrame:
    """Poisson sales of a chain whose pairs have fixed rates."""
    rng = np.random.default_rng(seed)
    i, j = np.indices(rates.shape).reshape(2, -1)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "store_id": [f"S{k:02d}" for k in i],
                    "sku_id": [f"K{k:02d}" for k in j],
                    "week": week,
                    "units": rng.poisson(rates[i, j]),
                    "promo": False,
                }
            )
            for week in weeks
        ],
        ignore_index=True,
    )


RATES = np.outer(np.linspace(0.5, 2.0, 12), np.linspace(2.0, 20.0, 15))


OWN = RATES * np.random.default_rng(5).gamma(4.0, 0.25, RATES.shape)  # pairs with levels of their own


@pytest.fixture(scope="module")
def own_sales() -> pd.DataFrame:
    return table(OWN)


@pytest.fixture(scope="module")
def sales() -> pd.DataFrame:
    return table(RATES)


def _rows(frame: pd.DataFrame, store: str, sku: str) -> pd.Series:
    return (frame["store_id"] == store) & (frame["sku_id"] == sku)


def grid(level: np.ndarray) -> np.ndarray:
    return level.reshape(RATES.shape)


def test_the_level_of_steady_pairs_is_their_rate(sales):
    error = grid(trailing_level(sales, NOW)) / RATES - 1
    assert np.sqrt(np.mean(error**2)) < 0.08  # eight weeks alone would leave 1/sqrt(8 * 12) = .10


def test_shrinking_beats_the_plain_mean(sales):
    shrunk, plain = grid(trailing_level(sales, NOW)), grid(trailing_mean(sales, NOW, weeks=8))
    assert np.mean((shrunk / RATES - 1) ** 2) < 0.5 * np.mean((plain / RATES - 1) ** 2)


def test_the_week_itself_and_later_ones_are_not_looked_at(sales):
    changed = sales.copy()
    changed.loc[changed["week"] >= WEEKS[-2], "units"] = 10_000
    np.testing.assert_array_equal(trailing_level(changed, WEEKS[-2]), trailing_level(sales, WEEKS[-2]))
    np.testing.assert_array_equal(trailing_mean(changed, WEEKS[-2]), trailing_mean(sales, WEEKS[-2]))


def test_weeks_before_the_window_are_not_looked_at(sales):
    changed = sales.copy()
    changed.loc[changed["week"] < WEEKS[4], "units"] = 10_000
    np.testing.assert_array_equal(trailing_level(changed, NOW, weeks=5), trailing_level(sales, NOW, weeks=5))


def test_the_order_is_that_of_the_sales_matrix(sales):
    shuffled = sales.sample(frac=1.0, random_state=0)
    matrix = SalesMatrix.from_long(shuffled, NOW)
    plain = trailing_mean(shuffled, NOW)
    one = (sales["store_id"] == "S03") & (sales["sku_id"] == "K07") & sales["week"].isin(WEEKS[-6:-1])
    at = int(np.flatnonzero((matrix.rows == 3) & (matrix.cols == 7))[0])
    assert plain[at] == pytest.approx(sales.loc[one, "units"].mean())
    np.testing.assert_allclose(trailing_level(shuffled, NOW), trailing_level(sales, NOW), rtol=1e-9)


def test_a_spell_of_lost_sales_hardly_lowers_the_level(own_sales):
    spell = _rows(own_sales, "S09", "K12") & (own_sales["week"] >= WEEKS[5])
    spoiled = own_sales.assign(units=own_sales["units"].where(~spell, 0))
    clean = grid(trailing_level(own_sales, NOW))[9, 12]
    assert grid(trailing_mean(spoiled, NOW, weeks=8))[9, 12] < 0.6 * clean
    assert grid(trailing_level(spoiled, NOW))[9, 12] > 0.85 * clean


def test_a_pair_that_differs_from_what_its_store_and_sku_suggest_keeps_its_own_level(own_sales):
    level = grid(trailing_level(own_sales, NOW))
    assert np.corrcoef(np.log(level / RATES).ravel(), np.log(OWN / RATES).ravel())[0, 1] > 0.9


def test_what_moved_the_whole_sku_is_not_put_down_to_the_pair(own_sales):
    wave = (own_sales["sku_id"] == "K05") & own_sales["week"].isin(WEEKS[7:9])
    waved = own_sales.assign(units=own_sales["units"].where(~wave, 3 * own_sales["units"]))
    seen_in_the_wave_only = waved[~_rows(waved, "S06", "K05") | (waved["week"] >= WEEKS[7])]
    whole, part = (grid(trailing_level(frame, NOW)) for frame in (waved, seen_in_the_wave_only))
    assert part[6, 5] == pytest.approx(whole[6, 5], rel=0.3)


def test_promotions_are_left_out(sales):
    promoted = sales.copy()
    some = (promoted["sku_id"] == "K05") & promoted["week"].isin(WEEKS[3:5])
    promoted.loc[some, "units"] *= 10
    assert grid(trailing_level(promoted, NOW))[:, 5].mean() > 1.3 * RATES[:, 5].mean()
    promoted.loc[some, "promo"] = True
    assert grid(trailing_level(promoted, NOW))[:, 5].mean() == pytest.approx(RATES[:, 5].mean(), rel=0.1)


def test_a_new_pair_has_the_level_its_store_and_sku_suggest(sales):
    new = (sales["store_id"] == "S11") & (sales["sku_id"] == "K14")
    known = sales[~new | (sales["week"] == NOW)]
    assert grid(trailing_level(known, NOW))[11, 14] == pytest.approx(RATES[11, 14], rel=0.2)
    assert np.isnan(grid(trailing_mean(known, NOW))[11, 14])


def test_a_new_sku_has_a_positive_level(sales):
    known = sales[(sales["sku_id"] != "K14") | (sales["week"] == NOW)]
    level = grid(trailing_level(known, NOW))
    assert (level > 0).all()
    assert np.isfinite(level).all()


def test_a_given_prior_is_worth_that_many_weeks(sales):
    own, little = (grid(trailing_level(sales, NOW, prior_weeks=w)) for w in (1e6, 1e-6))
    s = np.linalg.svd(own, compute_uv=False)
    assert s[3] / s[0] < 1e-4  # nothing but the expectation, whose rank is three
    plain = grid(trailing_mean(sales, NOW, weeks=8))
    assert np.median(np.abs(little / plain - 1)) < 0.1


def test_sales_of_zero_everywhere_give_a_positive_level(sales):
    nothing = sales.assign(units=0)
    level = trailing_level(nothing, NOW)
    assert (level > 0).all()


def test_levels_are_read_only(sales):
    assert not trailing_level(sales, NOW).flags.writeable
    assert not trailing_mean(sales, NOW).flags.writeable


def test_a_week_without_a_past_or_without_rows_is_refused(sales):
    with pytest.raises(DataError, match="no week before 2026-W01"):
        trailing_level(sales, WEEKS[0])
    with pytest.raises(DataError, match="no row is of week 2027-W01"):
        trailing_level(sales, "2027-W01")


@pytest.mark.parametrize("wrong", [{"weeks": 0}, {"prior_weeks": 0.0}, {"rank": 0}])
def test_settings_that_make_no_sense_are_refused(sales, wrong):
    with pytest.raises(UsageError):
        trailing_level(sales, NOW, **wrong)


def test_the_simulated_chain_is_read_with_its_categories_promotions_and_new_skus():
    chain = simulate_chain(ChainSettings.small(assortment_churn=0.02), 0)
    week = str(chain.sales["week"].max())
    level = trailing_level(chain.sales, week)
    sales = SalesMatrix.from_long(chain.sales, week)
    assert level.shape == (sales.n_observed,)
    assert np.corrcoef(np.log(level), np.log(sales.counts + 0.5))[0, 1] > 0.6
