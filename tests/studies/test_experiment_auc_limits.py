"""AUC against the ideal policy, ROC curves, and the worst fifth, on records one can check by eye."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.backtest.metrics import true_positive_rate_at
from ew_pipeline.studies.experiments import auc, limits
from ew_pipeline.studies.experiments.record import ROC_GRID, Record, roc_on_grid

BASE = Record(
    case="ensemble",
    method="default",
    instance=0,
    n=10,
    m=10,
    n_observed=80,
    true_rank=2,
    true_alpha=0.5,
    true_anomaly_rate=0.1,
    true_mean=5.0,
    true_observed_share=0.8,
    cost=0.2,
    cost_ideal=0.1,
    cost_ignore=0.5,
    flagged_share=0.1,
    auc=0.8,
    auc_ideal=0.81,
    cpu_seconds=1.0,
)


def test_a_perfect_ranking_finds_all_at_once_and_a_constant_one_as_much_as_it_flags():
    anomalous = np.arange(50) < 10
    assert roc_on_grid(anomalous.astype(float), anomalous) == (1.0,) * len(ROC_GRID)
    np.testing.assert_allclose(roc_on_grid(np.zeros(50), anomalous), ROC_GRID)
    assert roc_on_grid(np.arange(50.0), np.zeros(50, dtype=bool)) is None


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=2, max_size=60))
def test_the_curve_is_read_where_algorithm_2_would_spend_the_rate(pairs):
    scores, labels = np.array([s for s, _ in pairs], dtype=float), np.array([y for _, y in pairs])
    found = roc_on_grid(scores, labels)
    if labels.all() or not labels.any():
        assert found is None
        return
    expected = [true_positive_rate_at(rate, scores, labels) for rate in ROC_GRID]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_auc_by_hand():
    records = [
        replace(BASE, instance=0, auc=0.80, auc_ideal=0.81),
        replace(BASE, instance=1, auc=0.70, auc_ideal=0.75),
        replace(BASE, instance=2, auc=None, auc_ideal=None),  # no anomaly happened
        replace(BASE, instance=0, method="stable-pcp", auc=0.6, auc_ideal=0.81),
        replace(BASE, instance=1, method="stable-pcp", auc=0.65, auc_ideal=0.75),
        replace(BASE, case="n = 10", roc=tuple(ROC_GRID)),
        replace(BASE, case="n = 10", instance=1, roc=(1.0,) * len(ROC_GRID)),
    ]
    study = auc.build(records)
    ours, rival = study.methods["default"], study.methods["stable-pcp"]
    assert (ours.instances, ours.mean) == (2, pytest.approx(0.75))
    assert ours.gap == pytest.approx(0.03)
    assert ours.gap_worst == pytest.approx(0.05)
    assert (ours.close_to_ideal, ours.below_default) == (0.5, None)
    assert rival.below_default == 1.0
    assert study.scatter["ideal"] == [(0.80, 0.81), (0.70, 0.75)]
    assert study.scatter["stable-pcp"] == [(0.80, 0.6), (0.70, 0.65)]
    np.testing.assert_allclose(study.curves["default"], (1 + np.array(ROC_GRID)) / 2)
    assert study.curve_instances == 2


def ten_with_regret_growing_with_alpha() -> list[Record]:
    """Regret .1, .2, …, 1; alpha likewise; rank the other way round; all else equal."""
    return [
        replace(BASE, instance=k, cost=0.1 + (k + 1) / 10, true_alpha=(k + 1) / 10, true_rank=10 - k)
        for k in range(10)
    ]


def test_the_worst_fifth_is_told_apart_by_what_drives_the_regret():
    found = limits.contrast(ten_with_regret_growing_with_alpha(), "regret")
    assert (found.instances, found.worst) == (10, 2)
    assert found.share == pytest.approx(1.9 / 5.5)
    by = {c.parameter: c for c in found.contrasts}
    assert (by["alpha"].worst_mean, by["alpha"].other_mean) == (pytest.approx(0.95), pytest.approx(0.45))
    assert (by["alpha"].reading, by["rank"].reading) == ("higher", "lower")
    # sd of (.9, 1) is .0707, over sqrt(2) .05; sd of .1 … .8 is .2449, over sqrt(8) .0866
    assert by["alpha"].difference == pytest.approx(0.5 / np.hypot(0.05, 0.08660), rel=1e-3)
    assert by["mean demand"].reading == "no clear difference"
    assert (sum(by["alpha"].worst_counts), sum(by["alpha"].all_counts)) == (2, 10)
    assert by["alpha"].worst_counts[-1] == 2


def test_every_instance_of_the_ensemble_falls_into_a_bin():
    ends = {p.name: (p.edges[0], p.edges[-1]) for p in limits.PARAMETERS}
    assert ends["alpha"] == (0.0, 1.0)
    assert ends["anomaly rate"] == (0.0, pytest.approx(0.3))
    assert ends["observed share"] == (0.5, 1.0)
    assert ends["mean demand"] == (1.0, 10.0)
    assert ends["rank"][0] < 1
    assert ends["rank"][1] > 10


def test_instances_without_an_anomaly_have_no_auc_gap_and_still_a_regret():
    records = ten_with_regret_growing_with_alpha()
    records[9] = replace(records[9], auc=None, auc_ideal=None)
    assert limits.contrast(records, "AUC gap").instances == 9
    assert limits.contrast(records, "regret").instances == 10
