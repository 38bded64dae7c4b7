"""What a probability is worth on a simulated chain, against sums by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ew_pipeline.backtest.oracles import oracle
from ew_pipeline.simulate import ChainSettings, ShelfSettings, simulate_chain, simulate_shelves
from ew_pipeline.studies.worlds import WORLDS, oracles_of, priced_rows, probability_of, worth


def test_worth_by_hand():
    rows = pd.DataFrame(
        {
            "is_wrong": [True, True, False, False],
            "cost_false_alarm": [2.0, 2.0, 2.0, 1.0],
            "cost_missed": [10.0, 4.0, 6.0, 1.0],
        }
    )
    found = worth(rows, np.array([0.9, 0.1, 0.5, 0.2]))
    assert found.nothing == 14
    assert found.cost == 4 + 2  # the second is missed, the third is a false alarm
    assert found.real == 8
    assert found.claimed == pytest.approx((0.9 * 10 - 0.1 * 2) + (0.5 * 6 - 0.5 * 2))
    assert (found.flagged, found.precision, found.recall) == (0.5, 0.5, 0.5)
    assert found.cost_ratio == pytest.approx(6 / 14)


@pytest.mark.parametrize("kind", ["chain", "shelves"])
def test_rows_are_reported_pairs_without_promotion_with_their_costs(kind):
    if kind == "chain":
        chain = simulate_chain(ChainSettings.small(weeks=8), 1)
    else:
        chain = simulate_shelves(ShelfSettings(stores=6, skus=20, weeks=8, promo_rate=0.1), 1)
    rows = priced_rows(chain, 3)
    assert rows["week"].nunique() == 3
    assert not rows["promo"].any()
    assert rows["cost_missed"].notna().all()
    sales = chain.sales[chain.sales["week"].isin(rows["week"].unique()) & ~chain.sales["promo"]]
    assert len(rows) == len(sales) < len(chain.sales) * 3 / 8
    one = chain.costs[chain.costs["sku_id"] == str(rows["sku_id"].iloc[7])]
    assert rows["cost_missed"].iloc[7] == one["cost_missed"].iloc[0]


def test_probabilities_are_those_of_the_rows():
    chain = simulate_shelves(ShelfSettings(stores=6, skus=20, weeks=8), 1)
    rows = priced_rows(chain, 4).sample(40, random_state=1)
    found = oracle(chain)
    table = pd.DataFrame(found.probability, index=found.pairs, columns=list(found.weeks))
    expected = [table.loc[(row.store_id, row.sku_id), row.week] for row in rows.itertuples()]
    np.testing.assert_array_equal(probability_of(found, rows), expected)


def test_worlds_have_names_and_oracles():
    assert len(WORLDS) == 7
    chain = simulate_shelves(ShelfSettings(stores=4, skus=10, weeks=4, sku_onset_ratio=10.0), 1)
    assert [told for _, told in oracles_of(chain)] == ["-", "record", "record, SKU"]
