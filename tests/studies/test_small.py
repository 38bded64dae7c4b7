"""`ew bench small`, and how much work small fits may take: counted, never timed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from ew_pipeline import EntrywiseDetector
from ew_pipeline.cli.main import app
from ew_pipeline.method import selection
from ew_pipeline.method.sampler import ensemble
from ew_pipeline.method.sampler.chain import MOST_FOR_LONG_CHAINS, SamplerBudget
from ew_pipeline.method.variational import tier
from ew_pipeline.studies.bench.small import Fits, of_weeks, requirements
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance


def test_the_command_prints_all_figures_with_what_is_required():
    options = ["--instances", "1", "--pairs", "2000", "--stores", "8", "--skus", "20", "--json"]
    result = CliRunner().invoke(app, ["bench", "small", *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["tiers"]) == {"variational", "thorough"}
    assert set(found["weeks"]) == {"with a level from history", "alone"}
    assert all(week["reason"] for week in found["weeks"].values())
    for figures in found["sampler"].values():
        assert figures["sweeps"] == 2 * 6  # two chains of six trajectories
        assert figures["passes"] >= figures["sweeps"] * 5
        assert figures["cpu_ns"] > 0.0
    assert len(found["requirements"]) == 6


def test_requirements_fail_where_a_figure_is_over_its_limit():
    tiers_seen = {"variational": Fits(0.2, 0.2, 0.2, 1), "thorough": Fits(1.6, 1.6, 1.6, 1)}
    table = [*requirements(tiers_seen, {1: {"cpu_ns": 120.0}}), *of_weeks({"alone": {"cpu_s": 4.0}})]
    assert [line.passed for line in table] == [True, False, False, True]


@pytest.fixture
def work(monkeypatch):
    """Fits and sweeps of the exploration, gradient passes of the chains."""
    counted = {"fits": 0, "sweeps": 0, "chains": 0, "passes": 0}

    def counting(module, name, add):
        original = getattr(module, name)

        def counted_call(*args, **kwargs):
            result = original(*args, **kwargs)
            add(result)
            return result

        monkeypatch.setattr(module, name, counted_call)

    def add_fit(fit):
        counted["fits"] += 1
        counted["sweeps"] += fit.n_sweeps

    def add_chain(chain):
        counted["chains"] += 1
        counted["passes"] += chain.passes

    for module in (selection, tier):
        counting(module, "fit_variational", add_fit)
    counting(ensemble, "run_chain", add_chain)
    return counted


def test_a_poisson_week_takes_a_counted_number_of_fits_sweeps_and_passes(work):
    """Seven ranks, three rival noises, three families with one null model; chains of two or three ranks."""
    settings = EnsembleSettings(n=60, m=60, rank=3, mean=8.0, observed_share=0.8, anomaly_rate=0.1, alpha=0.2)
    EntrywiseDetector("thorough").fit(draw_instance(settings, np.random.default_rng(3)).sales)
    assert 8 <= work["fits"] <= 15
    assert work["sweeps"] <= 1500
    budget = SamplerBudget()
    assert work["chains"] in (2, 4, 6)
    assert 0.8 < work["passes"] / (work["chains"] * budget.passes) < 1.2


def test_chains_are_shorter_where_many_entries_pin_the_factors_down():
    short, long = (SamplerBudget.for_entries(MOST_FOR_LONG_CHAINS + more) for more in (1, 0))
    assert long == SamplerBudget()
    assert short.passes < 0.6 * long.passes
