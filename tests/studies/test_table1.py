"""Table 1 of section 4.1 and the claims around it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ew_pipeline.method.costs import Costs
from ew_pipeline.method.paper.rate import expected_rates, greedy_rate_solution
from ew_pipeline.studies.cost import expected_cost, ideal_flags, regret
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance
from ew_pipeline.studies.experiments.instance import InstanceTask, run_instance
from ew_pipeline.studies.experiments.printed import TABLE_1 as PRINTED
from ew_pipeline.studies.experiments.record import Record
from ew_pipeline.studies.experiments.regret import representative

METHODS = ("variational", "fast", "paper", "paper-practical", "drmf", "stable-pcp", "rmc", "ignore")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    settings = EnsembleSettings(n=30, m=30, rank=2)
    return [
        Record.from_json(run_instance(InstanceTask("small", settings, method, seed=0, instance=k)))
        for k in range(2)
        for method in METHODS
    ]


def test_paper_figures_are_the_printed_ones():
    assert [(row.method, row.regret, row.error_frobenius, row.error_max) for row in PRINTED] == [
        ("EW", 0.06, 237.1, 27.4),
        ("Stable PCP", 0.70, 314.3, 43.6),
        ("DRMF", 0.69, 391.2, 60.4),
        ("RMC", 0.90, 1099.0, 123.1),
    ]


def test_every_printed_row_says_what_differs():
    assert all(row.difference.startswith(row.method) for row in PRINTED)


def test_the_ensemble_is_the_one_of_section_4():
    instances = [draw_instance(EnsembleSettings(), np.random.default_rng(k)) for k in range(30)]
    assert {i.sales.shape for i in instances} == {(100, 100)}
    ranks = [i.truth.rank for i in instances]
    assert (min(ranks), max(ranks)) == (1, 10)
    assert all(0 <= i.truth.anomaly_rate <= 0.3 and 0 <= i.truth.alpha <= 1 for i in instances)
    assert all(0.5 <= i.truth.observed_share <= 1 and 1 <= i.truth.rates.mean() <= 10 for i in instances)
    assert all(i.costs_missed.max() <= 10 and i.costs_false_alarm.max() <= 10 for i in instances)


def test_the_representative_setting_is_the_one_of_the_figure():
    setting = representative(200)
    assert (setting.n, setting.m, setting.rank, setting.mean) == (200, 200, 3, 5.0)
    assert (setting.observed_share, setting.anomaly_rate, setting.alpha) == (0.8, 0.04, 0.2)


def test_the_ideal_policy_beats_all_methods_on_every_instance(records):
    assert {record.method for record in records} == set(METHODS)
    assert all(record.regret >= 0 for record in records)


def test_the_ideal_policy_ranks_better_than_all_methods_on_average(records):
    for method in METHODS:
        gaps = [r.auc_ideal - r.auc for r in records if r.method == method]
        assert np.mean(gaps) > -0.01


def test_swapping_the_two_costs_as_section_2_does_costs_about_036_even_with_the_true_f():
    regrets = []
    for k in range(200):
        drawn = draw_instance(EnsembleSettings(), np.random.default_rng(k))
        f, c0, c1 = drawn.truth.healthy_probability, drawn.costs_false_alarm, drawn.costs_missed
        regrets.append(regret(ideal_flags(f, c1, c0), f, c0, c1))
    assert np.mean(regrets) == pytest.approx(0.367, abs=0.03)


def test_untuned_baselines_as_printed_are_worse_than_flagging_nothing():
    ignored = [
        Record.from_json(run_instance(InstanceTask("ensemble", EnsembleSettings(), "ignore", 0, k))).regret
        for k in range(200)
    ]
    assert np.mean(ignored) == pytest.approx(0.282, abs=0.04)
    assert all(row.regret > np.mean(ignored) for row in PRINTED if row.method != "EW")


def test_no_policy_within_gamma_finds_more_than_pi_star_of_gamma():
    rng = np.random.default_rng(1)
    f = draw_instance(EnsembleSettings(n=20, m=20), rng).truth.healthy_probability
    _, best = expected_rates(greedy_rate_solution(f, f, 0.1), f)
    for _ in range(200):
        guess = (rng.random(f.size) < rng.random()).astype(float) * (rng.random(f.size) < (1 - f))
        fpr, tpr = expected_rates(guess, f)
        assert fpr > 0.1 or tpr <= best


def test_regret_is_zero_only_for_the_ideal_decision():
    drawn = draw_instance(EnsembleSettings(n=20, m=20), np.random.default_rng(2))
    f, c0, c1 = drawn.truth.healthy_probability, drawn.costs_false_alarm, drawn.costs_missed
    flags = ideal_flags(f, c0, c1)
    assert regret(flags, f, c0, c1) == 0.0
    wrong = flags.copy()
    wrong[np.argmax(np.abs(f * c0 - (1 - f) * c1))] ^= True
    assert regret(wrong, f, c0, c1) > 0.0
    assert expected_cost(flags, f, c0, c1) < expected_cost(~flags, f, c0, c1)
    np.testing.assert_array_equal(f <= Costs(c0, c1).threshold, flags)


def test_fixing_a_parameter_of_the_ensemble_leaves_the_others_as_they_were():
    free = draw_instance(EnsembleSettings(n=20, m=20), np.random.default_rng(3))
    fixed = draw_instance(replace(EnsembleSettings(n=20, m=20), observed_share=0.6), np.random.default_rng(3))
    assert (free.truth.alpha, free.truth.rank) == (fixed.truth.alpha, fixed.truth.rank)
