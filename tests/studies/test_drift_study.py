"""The study of the chart: real fits, small."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from ew_pipeline.core.errors import UsageError
from ew_pipeline.drift.verdicts import assess
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.simulate import simulate_chain
from ew_pipeline.studies.drift.command import drift
from ew_pipeline.studies.drift.figures import draw_like, of_drawn, of_stable
from ew_pipeline.studies.drift.fitted import (
    SCENARIOS,
    STABLE,
    Chain,
    Change,
    Fits,
    as_rows,
    describe,
    draw_week,
)
from ew_pipeline.studies.drift.retail import HISTORY_WEEKS, RetailTask

SMALL = Chain(stores=40, skus=120, rank=2, mean=8.0, anomaly_rate=0.05)


def fitted(change: Change, week: int, number: int):
    drawn = draw_week(SMALL, change, world=0, week=week, scenario=number, seed=0)
    fit = EntrywiseDetector("variational", rank=2, noise="poisson").fit(drawn.sales)
    return describe(fit, drawn.carried_over)


@pytest.fixture(scope="module")
def stable_weeks():
    """Twelve fitted weeks in which nothing changes."""
    return [fitted(Change(), week, 0) for week in range(12)]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        pytest.param(Change(anomaly_rate=0.2), "anomaly drift", id="more anomalies"),
        pytest.param(Change(observed_share=0.5), "composition change", id="fewer pairs"),
        pytest.param(Change(new_skus=0.4), "composition change", id="new assortment"),
    ],
)
def test_fitted_weeks_are_named_after_what_changed(change, verdict, stable_weeks):
    changed = [fitted(change, week, 1) for week in range(3)]
    (event,) = assess(as_rows([*stable_weeks, *changed])).events
    assert event.verdict == verdict


def test_fitted_weeks_without_a_change_raise_nothing(stable_weeks):
    assert assess(as_rows(stable_weeks)).events == ()


def test_drawn_weeks_have_the_level_and_spread_of_the_fitted_ones(stable_weeks):
    drawn = draw_like([stable_weeks], 400, np.random.default_rng(0))

    def log_odds(weeks):
        rates = np.array([week["anomaly_rate"] for week in weeks])
        return np.log(rates / (1 - rates))

    assert log_odds(drawn).mean() == pytest.approx(log_odds(stable_weeks).mean(), abs=0.05)
    assert log_odds(drawn).std() == pytest.approx(log_odds(stable_weeks).std(ddof=1), rel=0.2)
    found = of_stable([stable_weeks], 150, 52.0, np.random.default_rng(1), repeats=2)
    assert (found.fitted, found.repeats) == (False, 2)
    assert found.most <= found.allowed


def test_drawn_changes_are_seen_like_the_fitted_ones_they_were_drawn_from(stable_weeks):
    changed = [fitted(Change(anomaly_rate=0.2), week, 1) for week in range(3)]
    found = of_drawn("anomaly rate", [stable_weeks], [changed], 52.0, np.random.default_rng(2), 20)
    assert (found.simulations, found.verdicts.get("anomaly drift", 0)) == (20, pytest.approx(20, abs=2))
    nothing = of_drawn("anomaly rate", [stable_weeks], [stable_weeks[:3]], 52.0, np.random.default_rng(3), 20)
    assert nothing.verdicts.get("stable", 0) >= 18


def test_a_change_leaves_everything_else_of_the_chain_as_it_was():
    before = draw_week(SMALL, Change(), 0, 3, 0, 0)
    same = draw_week(SMALL, Change(), 0, 3, 0, 0)
    assert np.array_equal(before.sales.counts, same.sales.counts)
    thinner = draw_week(SMALL, Change(observed_share=0.5), 0, 3, 0, 0)
    assert thinner.sales.n_observed < 0.7 * before.sales.n_observed
    assert thinner.carried_over == before.carried_over == 1.0
    renewed = draw_week(SMALL, SCENARIOS["assortment"], 0, 3, 0, 0)
    assert renewed.sales.n_observed == before.sales.n_observed
    assert renewed.carried_over == pytest.approx(0.6, abs=0.12)
    with pytest.raises(UsageError, match="new_skus"):
        draw_week(SMALL, Change(new_skus=2.0), 0, 0, 0, 0)


def test_the_command_fits_resumes_and_holds_the_figures_against_what_is_required(tmp_path):
    app = typer.Typer()
    app.command()(drift)
    size = ["--simulations=1", "--stores=20", "--skus=40", "--baseline=9", "--after=2", "--weeks=20"]
    drawn = "--drawn=5"
    asked = [*size, "--scenarios=observed share", drawn, "--jobs=0", "--json", f"--out={tmp_path}"]
    first = CliRunner().invoke(app, asked)
    assert first.exit_code == 0, first.output
    answer = json.loads(first.stdout)
    assert answer["fits"] == 11
    assert answer["changes"]["observed share"]["verdicts"] == {"composition change": 1}
    assert answer["drawn"]["observed share"]["simulations"] == 5
    measures = [one["measure"] for one in answer["requirements"]]
    assert measures == ["alarms", "observed share", "observed share (drawn)"]
    lines = (tmp_path / "drift.jsonl").read_text().splitlines()
    again = CliRunner().invoke(app, asked)
    assert json.loads(again.stdout) == answer
    assert (tmp_path / "drift.jsonl").read_text().splitlines() == lines


def test_a_retail_chain_is_the_same_before_its_change_and_in_any_number_of_pieces():
    before, after = (
        RetailTask(12, 40, 30.0, Fits("large", "auto", 3), scenario, 0, 3, 5, 4)
        for scenario in (STABLE, "severity")
    )
    stable, changed = (simulate_chain(task.settings(), 7).sales for task in (before, after))
    early = stable["week"].cat.codes < HISTORY_WEEKS + 4
    assert stable[early].equals(changed[early])
    assert not stable["units"].equals(changed["units"])
    longer = simulate_chain(replace(before, last=9).settings(), 7).sales
    assert np.array_equal(longer["units"][: len(stable)], stable["units"])


def test_a_scenario_of_the_other_world_is_refused():
    app = typer.Typer()
    app.command()(drift)
    unknown = CliRunner().invoke(app, ["--world=retail", "--scenarios=rank", "--jobs=0"])
    assert isinstance(unknown.exception, UsageError)
