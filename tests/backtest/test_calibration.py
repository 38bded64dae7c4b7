"""A calibration is learnt where labels teach something, refused where they do not, and is plain text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

from ew_pipeline.backtest.calibration import NOTHING, Calibration, LabelledWeek, learn, sample_rows
from ew_pipeline.backtest.logistic import fit_logistic
from ew_pipeline.core.errors import DataError


def week(
    number: int, n: int = 600, slope: float = 2.0, rate: float = -2.0, rival: str = "bad"
) -> LabelledWeek:
    """Labels that depend on one feature; the label-free rival knows it, or nothing."""
    rng, n = np.random.default_rng(number), 600
    x = rng.normal(size=n)
    truth = expit(rate + slope * x)
    anomaly = rng.random(n) < truth
    known = {"bad": np.full(n, 0.6), "perfect": truth, "oracle": anomaly.astype(float)}[rival]
    return LabelledWeek(
        week=f"w{number:02d}",
        features={"few": {"x": x}, "many": {"x": x, "noise": rng.normal(size=n)}},
        sku=np.array([f"K{k % 10}" for k in range(n)]),
        anomaly=anomaly,
        weight=np.ones(n),
        rivals={"free": known},
    )


def weeks(count: int = 8, **kwargs: object) -> list[LabelledWeek]:
    return [week(k, **kwargs) for k in range(count)]  # type: ignore[arg-type]


def test_labels_that_teach_something_are_learnt():
    learnt = learn(weeks(), "text", "free")
    assert learnt.accepted
    assert learnt.gain > 0.2
    assert learnt.weeks == tuple(f"w{k:02d}" for k in range(8))
    fresh = week(99)
    p = learnt.probability(fresh.features, fresh.sku, fresh.rivals)
    assert p.mean() == pytest.approx(fresh.anomaly.mean(), abs=0.04)
    assert p[fresh.anomaly].mean() > 2 * p[~fresh.anomaly].mean()


def test_a_calibration_that_does_not_beat_the_label_free_form_is_refused():
    learnt = learn(weeks(rival="oracle"), "text", "free")
    assert not learnt.accepted
    assert learnt.chosen == "free"
    assert "costs" in learnt.reason
    fresh = week(99, rival="oracle")
    np.testing.assert_array_equal(
        learnt.probability(fresh.features, fresh.sku, fresh.rivals), fresh.rivals["free"]
    )


def test_nothing_is_flagged_where_anomalies_are_rare_and_the_label_free_form_does_harm():
    learnt = learn(weeks(rate=-9.0, slope=0.1), "text", "free")
    assert not learnt.accepted
    assert learnt.chosen == NOTHING
    assert "are needed" in learnt.reason
    fresh = week(99)
    assert not learnt.probability(fresh.features, fresh.sku, fresh.rivals).any()


def test_without_labels_the_label_free_form_is_used():
    learnt = learn([], "text", "free")
    assert (learnt.accepted, learnt.chosen, learnt.weeks) == (False, "free", ())
    assert "no past week has labels" in learnt.reason


def test_one_labelled_week_is_learnt_on_one_half_and_judged_on_the_other():
    learnt = learn(weeks(1), "text", "free")
    assert learnt.accepted
    assert learnt.weeks == ("w00",)
    assert learn(weeks(1, rival="oracle"), "text", "free").chosen == "free"
    assert learn(weeks(1, rate=-9.0, slope=0.1), "text", "free").chosen == NOTHING


def test_the_record_survives_json_and_predicts_the_same():
    learnt = learn(weeks(), "text", "free")
    read = Calibration.from_json(learnt.to_json())
    assert read == learnt
    fresh = week(99)
    np.testing.assert_array_equal(
        read.probability(fresh.features, fresh.sku, fresh.rivals),
        learnt.probability(fresh.features, fresh.sku, fresh.rivals),
    )


def test_a_changed_record_is_refused():
    raw = json.loads(learn(weeks(), "text", "free").to_json())
    raw["model"]["intercept"] += 1.0
    with pytest.raises(DataError, match="was changed"):
        Calibration.from_json(json.dumps(raw))


def test_the_version_is_that_of_the_content():
    assert learn(weeks(), "text", "free").version == learn(weeks(), "text", "free").version
    assert learn(weeks(), "text", "free").version != learn(weeks(7), "text", "free").version


def test_a_sku_with_many_past_anomalies_is_more_suspect():
    def one(number: int) -> LabelledWeek:
        w = week(number, slope=0.0)
        bad = w.sku == "K3"
        rng = np.random.default_rng(number)
        return LabelledWeek(
            w.week,
            w.features,
            w.sku,
            rng.random(w.anomaly.size) < np.where(bad, 0.5, 0.05),
            w.weight,
            w.rivals,
        )

    learnt = learn([one(k) for k in range(8)], "text", "free")
    fresh = week(99, slope=0.0)
    p = learnt.probability(fresh.features, fresh.sku, fresh.rivals)
    assert p[fresh.sku == "K3"].mean() > 3 * p[fresh.sku != "K3"].mean()
    assert learnt.sku_rates["K3"] > learnt.overall_rate


def test_missing_features_are_named():
    learnt = learn(weeks(), "text", "free")
    fresh = week(99)
    with pytest.raises(DataError, match="needs features that are not there: x"):
        learnt.probability({"few": {}, "many": {}}, fresh.sku, fresh.rivals)


def test_a_sample_keeps_the_anomalies_and_its_weights_undo_the_choice():
    anomaly = np.zeros(5000, dtype=bool)
    anomaly[:100] = True
    rows, weight = sample_rows(anomaly, 1000)
    assert rows.size == 1000
    assert anomaly[rows].sum() == 100
    assert weight.sum() == pytest.approx(5000)
    assert weight[anomaly[rows]].sum() == pytest.approx(100)
    rows, weight = sample_rows(anomaly, 9000)
    assert rows.size == 5000
    assert set(weight) == {1.0}


def test_logistic_finds_the_maximum_from_separable_data_too():
    x = np.linspace(-1, 1, 40)[:, None]
    fit = fit_logistic(x, (x[:, 0] > 0).astype(float), np.ones(40), ridge=0.01)
    assert fit.probability(np.array([[0.9]]))[0] > 0.99
    assert fit.probability(np.array([[-0.9]]))[0] < 0.01


def test_logistic_recovers_coefficients_and_weights_count_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3)) * [1.0, 5.0, 0.2] + [0.0, 3.0, 0.0]
    y = (rng.random(20_000) < expit(-1 + x @ [1.0, 0.2, -3.0])).astype(float)
    fit = fit_logistic(x, y, np.ones(20_000), 1e-3)
    np.testing.assert_allclose(fit.coefficients / fit.scale, [1.0, 0.2, -3.0], rtol=0.1)
    twice = fit_logistic(np.vstack([x, x[:100]]), np.r_[y, y[:100]], np.ones(20_100), 1e-3)
    weight = np.ones(20_000)
    weight[:100] = 2.0
    np.testing.assert_allclose(
        fit_logistic(x, y, weight, 1e-3).coefficients, twice.coefficients, rtol=1e-4, atol=1e-6
    )
