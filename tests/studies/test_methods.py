"""One contract for every method of the experiments: flags and a ranking for each pair, and nothing peeked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ew_pipeline.core.errors import FitError
from ew_pipeline.studies.cost import expected_cost
from ew_pipeline.studies.ensemble import EnsembleSettings, SyntheticInstance, draw_instance
from ew_pipeline.studies.experiments.instance import (
    IDEAL,
    METHODS,
    NEAR_BAYES,
    ORACLE,
    TOLD,
    Answer,
)

TUNED = [name for name in METHODS if name.startswith(("drmf", "stable-pcp", "rmc"))]
KNOWING = [*TUNED, IDEAL, ORACLE, TOLD, *(name for name in METHODS if name.startswith(NEAR_BAYES))]
SETTINGS = EnsembleSettings(n=10, m=12, rank=2, mean=6.0, observed_share=0.9, anomaly_rate=0.15, alpha=0.1)


@pytest.fixture(scope="module")
def drawn() -> SyntheticInstance:
    return draw_instance(SETTINGS, np.random.default_rng(4))


@pytest.fixture(scope="module")
def answers(drawn) -> dict[str, Answer]:
    return {name: method(drawn, 7) for name, method in METHODS.items()}


def cost(drawn: SyntheticInstance, flags: np.ndarray) -> float:
    return expected_cost(flags, drawn.truth.healthy_probability, drawn.costs_false_alarm, drawn.costs_missed)


@pytest.mark.parametrize("name", METHODS)
def test_one_flag_and_one_finite_score_per_observed_pair(name, drawn, answers):
    answer = answers[name]
    assert answer.flags.dtype == np.bool_
    assert answer.flags.shape == answer.suspicion.shape == (drawn.sales.n_observed,)
    assert np.isfinite(answer.suspicion).all()
    assert answer.suspicion.min() >= 0.0
    assert answer.rates is None or answer.rates.shape == drawn.sales.shape


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_answer(name, drawn, answers):
    again = METHODS[name](drawn, 7)
    np.testing.assert_array_equal(again.flags, answers[name].flags)
    np.testing.assert_array_equal(again.suspicion, answers[name].suspicion)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in KNOWING])
def test_the_truth_changes_nothing_for_a_method_that_is_not_told_it(name, drawn, answers):
    truth = drawn.truth
    other = replace(
        truth,
        rank=truth.rank + 1,
        alpha=0.9,
        anomaly_rate=0.01,
        rates=truth.rates * 2,
        anomalous=~truth.anomalous,
        healthy_probability=1 - truth.healthy_probability,
    )
    again = METHODS[name](replace(drawn, truth=other), 7)
    np.testing.assert_array_equal(again.flags, answers[name].flags)
    np.testing.assert_array_equal(again.suspicion, answers[name].suspicion)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_cheaper_than_the_ideal_policy(name, drawn, answers):
    assert cost(drawn, answers[name].flags) >= cost(drawn, answers[IDEAL].flags)


@pytest.mark.parametrize("name", TUNED)
def test_a_share_tuned_in_hindsight_never_costs_more_than_flagging_nothing(name, drawn, answers):
    assert cost(drawn, answers[name].flags) <= cost(drawn, answers["ignore"].flags)
    assert answers[name].tuned_share is not None


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, n=1, rank=1),
        replace(SETTINGS, m=1, rank=1),
        replace(SETTINGS, observed_share=0.15),
        replace(SETTINGS, mean=1e-9),
    ],
    ids=["one store", "one SKU", "stores without any pair", "nothing sold"],
)
def test_small_and_empty_chains_are_answered_or_refused_as_a_fit(name, settings):
    odd = draw_instance(settings, np.random.default_rng(1))
    try:
        answer = METHODS[name](odd, 7)
    except FitError:
        return
    assert answer.flags.shape == answer.suspicion.shape == (odd.sales.n_observed,)
    assert np.isfinite(answer.suspicion).all()
