"""What a saved model says: the published number for the published sales, the plug-in for others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline import EntrywiseDetector, SalesMatrix
from ew_pipeline.core.errors import DataError
from ew_pipeline.method.anomalies import BUILT_IN
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.noise import Poisson
from ew_pipeline.method.paper.posterior import drop_probability, healthy_probability
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.theta import Theta
from ew_pipeline.tracking.model import SavedModel


def tiny(**changes: object) -> DetectorFit:
    """Two stores, two SKUs; S2 does not range K2. Expected sales 2 x 3 = 6 there."""
    sales = SalesMatrix.from_dense(
        [[4, 0], [2, 9]], [[True, True], [True, False]], store_ids=["S1", "S2"], sku_ids=["K1", "K2"]
    )
    made = DetectorFit(
        sales=sales,
        posterior_=np.array([0.1, 0.9, 0.3]),
        expected_sales_=np.array([4.5, 3.0, 2.5]),
        expected_cv_=np.full(3, 0.1),
        cavity_sales_=np.array([5.0, 6.0, 3.0]),
        cavity_cv_=np.array([0.2, 0.2, 0.2]),
        theta_=Theta(0.2, 0.1, (0.1, 0.3), (0.05, 0.2), at_bound=False, identified=True),
        rank_=1,
        noise_="poisson",
        anomaly_="exponential",
        dispersion_size_=np.inf,
        mode_="paper",
        mode_reason_="as asked",
        converged_=True,
        factors_=LowRankFactors(np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])),
        anomaly_model=BUILT_IN["exponential"],
        null_gain_=10.0,
    )
    return replace(made, **changes)


def ask(fit: DetectorFit, level: object = None, /, **columns: object) -> pd.DataFrame:
    return SavedModel(fit, level, {}, "").predict(pd.DataFrame(columns))


def plug_in(units: float, mean: float) -> float:
    return float(1.0 - healthy_probability(units, mean, 0.2, 0.1, Poisson(), BUILT_IN["exponential"]))


def test_the_sales_of_the_fit_get_what_was_published():
    answer = ask(tiny(), store_id=["S2", "S1", "S1"], sku_id=["K1", "K2", "K1"], units=[2, 0, 4])
    assert answer["anomaly_probability"].tolist() == [0.3, 0.9, 0.1]
    assert answer["expected_units"].tolist() == [2.5, 3.0, 4.5]


def test_other_sales_of_a_fitted_pair_are_compared_with_what_it_would_sell_unseen():
    answer = ask(tiny(), store_id=["S1"], sku_id=["K1"], units=[1])
    assert answer.iloc[0].tolist() == [pytest.approx(plug_in(1, 5.0)), 5.0]


def test_a_pair_that_was_not_observed_is_compared_with_the_factors():
    answer = ask(tiny(), store_id=["S2"], sku_id=["K2"], units=[0])
    assert answer.iloc[0].tolist() == [pytest.approx(plug_in(0, 6.0)), 6.0]


def test_unknown_and_missing_ids_have_no_answer():
    answer = ask(
        tiny(), store_id=["S9", "S1", None, "S1"], sku_id=["K1", "K9", "K1", None], units=[1, 1, 1, 1]
    )
    assert answer.isna().all(axis=None)


def test_missing_units_still_have_expected_units():
    answer = ask(tiny(), store_id=["S1"], sku_id=["K1"], units=[np.nan])
    assert np.isnan(answer["anomaly_probability"].iloc[0])
    assert answer["expected_units"].iloc[0] == 5.0


def test_a_model_with_history_needs_the_level_of_a_pair_it_has_not_seen():
    pair = {"store_id": ["S2"], "sku_id": ["K2"], "units": [0]}
    level = np.ones(3)
    assert ask(tiny(mode_="large"), level, **pair).isna().all(axis=None)
    assert ask(tiny(mode_="large"), level, **pair, level=[2.0])["expected_units"].iloc[0] == 12.0
    assert ask(tiny(mode_="paper"), level, **pair)["expected_units"].iloc[0] == 6.0  # knows no level


def test_the_drop_is_asked_for_when_the_drop_is_priced():
    dropped = tiny(probability="drop")
    answer = ask(dropped, store_id=["S1", "S1"], sku_id=["K1", "K1"], units=[4, 1])
    assert answer["anomaly_probability"].iloc[0] == dropped.anomaly_probability_[0]
    assert answer["anomaly_probability"].iloc[1] == pytest.approx(float(drop_probability(1, 5.0, 0.04)))


def test_ids_are_compared_as_text_and_the_index_is_kept():
    fit = tiny()
    numbered = replace(fit, sales=replace(fit.sales, store_ids=np.array(["1", "2"])))
    frame = pd.DataFrame({"store_id": [2, 1], "sku_id": pd.Categorical(["K1", "K1"]), "units": [2, 4]})
    answer = SavedModel(numbered, None, {}, "").predict(frame.set_index(pd.Index(["x", "y"])))
    assert answer["anomaly_probability"].to_dict() == {"x": 0.3, "y": 0.1}


@pytest.mark.parametrize("units", [-1, 0.5, np.inf])
def test_units_that_were_never_sold_are_refused(units):
    with pytest.raises(DataError, match=r"1 units are not whole numbers .*\(rows 1\)"):
        ask(tiny(), store_id=["S1", "S1"], sku_id=["K1", "K2"], units=[1, units])


def test_a_frame_without_units_is_refused():
    with pytest.raises(DataError, match="no column units"):
        ask(tiny(), store_id=["S1"], sku_id=["K1"])


def test_an_empty_frame_has_an_empty_answer():
    assert ask(tiny(), store_id=[], sku_id=[], units=[]).shape == (0, 2)


def test_the_plug_in_agrees_with_the_fit_where_both_know_the_answer(fit, sales):
    """Other units are priced by the same predictive as the fit's own, so that the two join smoothly."""
    one = EntrywiseDetector(mode="variational", rank=fit.rank_).fit(sales)
    shifted = replace(one, sales=replace(sales, counts=sales.counts + 1))
    asked = SavedModel(shifted, None, {}, "").predict(pd.DataFrame(sales.to_long()))
    gap = np.abs(asked["anomaly_probability"].to_numpy() - one.posterior_)
    assert np.median(gap) < 1e-3
    assert np.quantile(gap, 0.99) < 0.05


@given(st.permutations(range(30)))
def test_the_order_of_the_rows_does_not_matter(fit, order):
    frame = pd.DataFrame(fit.sales.to_long()).head(30)
    model = SavedModel(fit, None, {}, "")
    pd.testing.assert_frame_equal(model.predict(frame.iloc[order]), model.predict(frame).iloc[order])
