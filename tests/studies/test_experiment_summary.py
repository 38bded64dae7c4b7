"""Hand-made records with figures one can check by eye."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.studies.experiments.record import RateRecord, Record, ThetaRecord, calibration_counts
from ew_pipeline.studies.experiments.requirements import Requirement, judge
from ew_pipeline.studies.experiments.summary import (
    log_log_slope,
    pooled_calibration,
    summarise,
    summarise_rates,
)

IGNORED = Record(
    case="by hand",
    method="ignore",
    instance=0,
    n=2,
    m=2,
    n_observed=4,
    true_rank=1,
    true_alpha=0.5,
    true_anomaly_rate=0.1,
    true_mean=5.0,
    true_observed_share=0.8,
    cost=0.5,
    cost_ideal=0.1,
    cost_ignore=0.5,
    flagged_share=0.0,
    auc=0.5,
    auc_ideal=0.9,
    cpu_seconds=0.0,
)
THETA = ThetaRecord(
    alpha=0.6,
    anomaly_rate=0.12,
    alpha_interval=(0.55, 0.7),
    anomaly_rate_interval=(0.09, 0.15),
    identified=True,
    at_bound=False,
)


def fitted(cost: float, **changes) -> Record:
    base = replace(
        IGNORED,
        method="default",
        cost=cost,
        flagged_share=0.2,
        auc=0.8,
        error_frobenius=3.0,
        error_max=2.0,
        tier="thorough",
        noise="poisson",
        converged=True,
        theta=THETA,
        cpu_seconds=2.0,
    )
    return replace(base, **changes)


def test_regret_and_cost_against_ignore_by_hand():
    two = summarise([fitted(0.2), fitted(0.4, flagged_share=0.4, cpu_seconds=4.0)])
    assert two.regret == pytest.approx(0.2)
    assert two.regret_se == pytest.approx(0.1)  # sd of (.1, .3) is .1414, over sqrt(2)
    assert two.regret_worst == pytest.approx(0.3)
    assert two.regret_p95 == pytest.approx(0.29)
    assert (two.above_ignore, two.above_ignore_worst) == (pytest.approx(-0.2), pytest.approx(-0.1))
    assert (two.flagged, two.flagged_worst) == (pytest.approx(0.3), 0.4)
    assert (two.cpu_mean, two.cpu_median) == (3.0, 3.0)
    assert two.auc_gap == pytest.approx(0.1)
    assert (two.error_frobenius, two.error_max) == (3.0, 2.0)


def test_theta_is_judged_by_bias_spread_and_coverage_of_the_identified():
    missed = replace(
        THETA, anomaly_rate=0.06, alpha=0.3, alpha_interval=(0.2, 0.6), anomaly_rate_interval=(0.05, 0.08)
    )
    unknown = replace(missed, identified=False)
    two = summarise([fitted(0.2), fitted(0.2, theta=missed)])
    assert two.rate_bias == pytest.approx(-0.01)  # +.02 and -.04
    assert two.rate_rmse == pytest.approx(np.sqrt((0.02**2 + 0.04**2) / 2))
    assert two.alpha_rmse == pytest.approx(np.sqrt((0.1**2 + 0.2**2) / 2))
    assert (two.identified, two.rate_coverage, two.alpha_coverage) == (1.0, 0.5, 0.5)
    half = summarise([fitted(0.2), fitted(0.2, theta=unknown)])
    assert (half.identified, half.rate_coverage, half.alpha_coverage) == (0.5, 1.0, 0.0)


def test_alpha_of_an_instance_without_anomalies_is_not_judged():
    nothing = fitted(0.2, true_anomaly_rate=0.0)
    assert summarise([fitted(0.2), nothing]).alpha_rmse == pytest.approx(0.1)
    assert summarise([nothing]).alpha_rmse is None


def test_ignoring_has_no_theta_and_no_error_of_m():
    ignored = summarise([IGNORED])
    assert (ignored.identified, ignored.rate_bias) == (None, None)
    assert ignored.error_frobenius is None
    assert ignored.regret_se is None
    assert (ignored.regret, ignored.above_ignore) == (pytest.approx(0.4), 0.0)


def test_failures_and_fits_that_did_not_converge_are_counted():
    failed = fitted(0.5, failure="no answer", theta=None, tier=None, converged=None)
    three = summarise([fitted(0.2), fitted(0.2, converged=False), failed])
    assert (three.failures, three.not_converged, three.tiers) == (1, 1, {"thorough": 2})


def rate(gamma: float, z: float, fpr: float, tpr: float, ideal: float = 0.8) -> RateRecord:
    return RateRecord(gamma, z, fpr, tpr, ideal)


def test_algorithm_2_by_hand():
    within = fitted(0.2, rates=(rate(0.1, 0.0, 0.11, 0.75), rate(0.1, 1.0, 0.1, 0.7)))
    above = fitted(0.2, rates=(rate(0.1, 0.0, 0.13, 0.75), rate(0.1, 1.0, 0.101, 0.74)))
    (row,) = summarise_rates([within, above])
    assert row.gamma == 0.1
    assert row.plug_in_fpr == pytest.approx(1.2)
    assert row.exceeded == 0.5
    assert row.tpr_loss == pytest.approx(0.08)
    assert row.tpr_loss_to_plug_in == pytest.approx(0.03)
    assert summarise_rates([replace(within, true_anomaly_rate=0.0)]) == []


def test_calibration_pools_the_pairs_of_all_instances():
    honest = calibration_counts(np.full(100, 0.25), np.arange(100) < 25)
    boastful = calibration_counts(np.full(100, 0.75), np.arange(100) < 50)
    rows = pooled_calibration([fitted(0.2, calibration=honest), fitted(0.2, calibration=boastful)])
    assert [(row.count, row.predicted, row.realised) for row in rows] == [
        (100, pytest.approx(0.25), 0.25),
        (100, pytest.approx(0.75), 0.5),
    ]
    assert [row.gap for row in rows] == [pytest.approx(0.0), pytest.approx(-0.25)]
    assert pooled_calibration([IGNORED]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.integers(0, 2**32 - 1))
def test_calibration_loses_no_pair_and_no_probability(values, seed):
    p = np.array(values)
    labels = np.random.default_rng(seed).random(p.size) < p
    rows = pooled_calibration([fitted(0.2, calibration=calibration_counts(p, labels))])
    assert sum(row.count for row in rows) == p.size
    assert sum(row.count * row.predicted for row in rows) == pytest.approx(p.sum())
    assert sum(row.count * row.realised for row in rows) == pytest.approx(labels.sum())
    assert [row.predicted for row in rows] == sorted(row.predicted for row in rows)


def test_deciles_of_many_different_probabilities_are_of_about_equal_size():
    p = np.random.default_rng(0).beta(0.5, 4.0, size=20_000)
    rows = pooled_calibration([fitted(0.2, calibration=calibration_counts(p, p > 0.5))])
    assert len(rows) == 10
    assert all(1600 < row.count < 2400 for row in rows)


def test_the_slope_of_one_over_n_is_minus_one():
    assert log_log_slope([50, 100, 200], [0.04, 0.02, 0.01]) == pytest.approx(-1.0)
    assert log_log_slope([50, 100], [0.04, 0.0]) is None


def test_a_record_survives_its_way_through_json():
    import json

    record = fitted(
        1 / 3,
        rates=(rate(0.05, 1.0, 0.04, 0.5),),
        calibration=calibration_counts(np.array([0.1, 0.9]), np.array([False, True])),
    )
    assert Record.from_json(json.loads(json.dumps(asdict(record)))) == record
    assert Record.from_json(json.loads(json.dumps(asdict(IGNORED)))) == IGNORED


def test_a_requirement_is_met_at_its_bound_and_not_beyond():
    upper, both = Requirement("x", "x", 0.3), Requirement("x", "x", 0.95, low=0.85)
    assert [v.met for value in (0.3, 0.31, None) for v in judge([upper], {"x": value})] == [True, False, None]
    assert [v.met for value in (0.85, 0.95, 0.84, 0.96) for v in judge([both], {"x": value})] == [
        True,
        True,
        False,
        False,
    ]
