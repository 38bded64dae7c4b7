"""Rank, noise and family: the truth is found where it is clear."""

import numpy as np
import pytest

from ew_pipeline.method import selection
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.selection import (
    candidate_ranks,
    choose_family,
    choose_noise,
    held_out_masks,
    held_out_scores,
    is_sparse,
    rank_path,
    rival_fit,
)
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

FAMILIES = ("exponential", "thinning", "zero", "uniform_onset")


def observations(seed=0, **settings):
    settings = {"n": 60, "m": 60, "rank": 3, "mean": 20.0, "observed_share": 1.0, **settings}
    return Observations.of(draw_instance(EnsembleSettings(**settings), np.random.default_rng(seed)).sales)


def path(data, family="exponential", ranks=(1, 2, 3, 4, 5), negative_binomial=False):
    return rank_path(
        data, exposure_family(family), ranks, np.random.default_rng(0), negative_binomial=negative_binomial
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_the_true_rank_is_found_on_clean_dense_data(seed):
    found = path(observations(seed, anomaly_rate=0.05, alpha=0.1))
    assert found.best.rank == 3
    assert found.curve.best == 3
    assert found.curve.ranks == tuple(sorted(found.fits))


def test_the_path_stops_after_two_ranks_that_do_not_improve():
    found = path(observations(n=40, m=40, rank=1, anomaly_rate=0.0), ranks=(1, 2, 3, 4, 5, 7, 10))
    assert found.best.rank == 1
    assert tuple(found.fits) == (1, 2, 3)


def test_held_out_entries_find_the_true_rank():
    data = observations(n=50, m=50, anomaly_rate=0.05, alpha=0.1)
    masks = held_out_masks(data.counts.size, 1, np.random.default_rng(0))
    curve = held_out_scores(
        data,
        exposure_family("exponential"),
        (1, 2, 3, 4),
        masks,
        np.random.default_rng(0),
        negative_binomial=False,
    )
    assert curve.best == 3


def test_held_out_masks_are_disjoint_tenths():
    masks = held_out_masks(1000, 3, np.random.default_rng(0))
    assert [mask.sum() for mask in masks] == [100, 100, 100]
    assert np.sum(masks, axis=0).max() == 1


def noise_chosen(data, noise="auto"):
    chosen = choose_noise(data, exposure_family("exponential"), (1, 2), np.random.default_rng(0), noise)
    return "negative_binomial" if chosen.negative_binomial else "poisson"


@pytest.mark.parametrize("seed", [0, 1])
def test_poisson_is_kept_on_poisson_data(seed):
    data = observations(seed, n=40, m=40, rank=2, mean=8.0, anomaly_rate=0.1, alpha=0.2)
    assert noise_chosen(data) == "poisson"


@pytest.mark.parametrize("seed", [0, 1])
def test_negative_binomial_is_chosen_on_overdispersed_data(seed):
    data = observations(
        seed,
        n=40,
        m=40,
        rank=2,
        mean=8.0,
        anomaly_rate=0.1,
        alpha=0.1,
        noise="negative_binomial",
        dispersion_size=4.0,
    )
    assert noise_chosen(data) == "negative_binomial"
    assert noise_chosen(data, "poisson") == "poisson"


def test_noise_that_is_asked_for_is_not_questioned():
    data = observations(n=20, m=20, rank=1, mean=8.0, anomaly_rate=0.1, alpha=0.2)
    assert noise_chosen(data, "negative_binomial") == "negative_binomial"


def family_choice(data, ranks=(1,), negative_binomial=False):
    found = path(data, ranks=ranks, negative_binomial=negative_binomial)
    return choose_family(data, tuple(exposure_family(f) for f in FAMILIES), found)


@pytest.mark.parametrize(("family", "alpha"), [("exponential", 0.5), ("thinning", 0.4), ("zero", None)])
def test_the_family_is_found_where_it_is_clear(family, alpha):
    data = observations(n=80, m=80, rank=1, mean=40.0, anomaly_rate=0.15, alpha=alpha, family=family)
    choice = family_choice(data)
    assert choice.family.name == family
    assert max(choice.scores, key=choice.scores.get) == family


def test_families_that_cannot_be_right_are_not_tried():
    """No sales at all is the limit of small alpha; a uniform onset is far from it; noise hides it."""
    deep = observations(n=30, m=30, rank=1, mean=30.0, anomaly_rate=0.15, family="zero")
    assert set(family_choice(deep).scores) == {"exponential", "thinning", "zero"}
    shallow = observations(n=30, m=30, rank=1, mean=30.0, anomaly_rate=0.15, alpha=0.5)
    assert set(family_choice(shallow).scores) == {"exponential", "thinning", "uniform_onset"}
    noisy = family_choice(shallow, negative_binomial=True)
    assert set(noisy.scores) == {"exponential", "thinning"}


def test_overdispersed_data_must_tell_families_apart_more_clearly(monkeypatch):
    data = observations(n=80, m=80, rank=1, mean=40.0, anomaly_rate=0.15, alpha=0.4, family="thinning")
    choice = family_choice(data, negative_binomial=True)
    gain = choice.scores["thinning"] - choice.scores["exponential"]
    for needed, family in ((gain - 1.0, "thinning"), (gain + 1.0, "exponential")):
        monkeypatch.setattr(selection, "FAMILY_NATS_IN_NOISE", needed)
        assert family_choice(data, negative_binomial=True).family.name == family


def test_the_first_family_stays_where_nothing_tells_them_apart():
    data = observations(n=20, m=20, rank=1, mean=5.0, anomaly_rate=0.0, alpha=0.5)
    choice = family_choice(data)
    assert choice.family.name == "exponential"


def test_a_family_needs_anomalies_that_are_beyond_doubt(monkeypatch):
    data = observations(n=50, m=50, rank=1, mean=30.0, anomaly_rate=0.15, alpha=0.4, family="thinning")
    assert family_choice(data).family.name == "thinning"
    monkeypatch.setattr(selection, "CLEAR_NATS", 1e9)
    assert family_choice(data).family.name == "exponential"


def test_the_uniform_onset_is_scored_and_left_to_the_sampler():
    data = observations(n=80, m=80, rank=1, mean=40.0, anomaly_rate=0.15, family="uniform_onset")
    choice = family_choice(data)
    assert max(choice.scores, key=choice.scores.get) == "uniform_onset"
    assert choice.family.name == "exponential"


def test_a_path_under_another_family_keeps_its_ranks():
    data = observations(n=30, m=30, rank=1, mean=30.0, anomaly_rate=0.15, alpha=0.4, family="thinning")
    found = path(data, ranks=(1, 2))
    other = found.under(data, exposure_family("thinning"))
    assert tuple(other.fits) == tuple(found.fits)
    assert other.best.score > found.best.score


def test_the_null_model_loses_to_anomalies_and_wins_without():
    family = exposure_family("exponential")
    gains = []
    for rate in (0.15, 0.0):
        data = observations(n=40, m=40, rank=1, mean=8.0, anomaly_rate=rate, alpha=0.1)
        best = path(data, ranks=(1,)).best
        null = rival_fit(data, family, best, negative_binomial=False, anomalies=False)
        gains.append(best.score - null.score)
    assert gains[0] > 50.0
    assert gains[1] < 5.0


@pytest.mark.parametrize(
    ("shape", "n_observed", "max_rank", "expected"),
    [
        ((100, 100), 10_000, 10, (1, 2, 3, 4, 5, 7, 10)),
        ((100, 100), 10_000, 4, (1, 2, 3, 4)),
        ((100, 3), 300, 10, (1, 2, 3)),
        ((1, 50), 50, 10, (1,)),
        ((100, 100), 500, 10, (1, 2, 3)),  # 2.5 entries per line carry few factors
    ],
)
def test_candidate_ranks_fit_the_matrix(shape, n_observed, max_rank, expected):
    assert candidate_ranks(shape, n_observed, max_rank) == expected


def test_sparse_is_few_entries_per_row_and_column():
    assert is_sparse(observations(n=40, m=40, observed_share=0.1, anomaly_rate=0.0))
    assert not is_sparse(observations(n=40, m=40, observed_share=1.0, anomaly_rate=0.0))
