"""What is priced: learnt from past weeks where there are enough, and otherwise said why not."""

from __future__ import annotations

import html
import shutil

import numpy as np
import pandas as pd
import pytest
from support.chain import run_plainly
from support.chain_of_weeks import as_frame, simulated

from ew_pipeline.audit.explain import explain_pair
from ew_pipeline.audit.replay import replay
from ew_pipeline.backtest import view
from ew_pipeline.backtest.calibration import Calibration
from ew_pipeline.backtest.policies import Calibrated, History
from ew_pipeline.backtest.registry import CALIBRATED
from ew_pipeline.backtest.view import PastView, RuleLabels
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.expect.fit import fit_segments
from ew_pipeline.intake.assemble import prepare
from ew_pipeline.intake.snapshot import load_snapshot
from ew_pipeline.ledger import Ledger
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.tracking.facts import week_facts
from ew_pipeline.tracking.model import load_model
from ew_pipeline.weekly.fit_cache import FitCache
from ew_pipeline.weekly.price import fit_past_weeks, price

PANEL, _ = simulated(stores=14, skus=20, weeks=32, mean=1.5)  # little is sold: labels teach something
FRAME = as_frame(PANEL)
WEEK = PANEL.weeks[30]
AUTO = {"probability": "auto"}
pytestmark = pytest.mark.flow


def write(frame: pd.DataFrame, folder) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "sales.parquet", index=False)
    return {"sales": str(folder / "sales.parquet")}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write(FRAME, tmp_path_factory.mktemp("sales"))


@pytest.fixture(scope="module")
def published(tmp_path_factory, tables):
    """(home, outcome) of a late week of a chain with a year of sales."""
    home = tmp_path_factory.mktemp("home")
    outcome = run_plainly(home, tables, WEEK, changes=AUTO)
    assert outcome.status == "published", outcome.result.held
    return home, outcome


def ledger_of(home):
    return Ledger.open(Settings(home=home).ledger_url, home=home)


def of_policy(policy, scores, t=30):
    """What a policy of the backtest says of the scored pairs."""
    view = PastView(PANEL, t, RuleLabels("pair"))
    by_row = np.full(PANEL.n_pairs, np.nan)
    by_row[view.pairs] = policy.score(view).probability
    return by_row[PANEL.rows_of(scores["store_id"].astype(str), scores["sku_id"].astype(str))]


def test_a_late_week_prices_what_the_backtest_evaluates(published):
    _, outcome = published
    result = outcome.result
    assert result.pricing.calibrated
    expected = of_policy(Calibrated(CALIBRATED), result.scores)
    np.testing.assert_allclose(result.scores["anomaly_probability"], expected, rtol=1e-9)
    assert (result.scores["posterior"] != result.scores["anomaly_probability"]).any()


def test_levels_and_fits_of_past_weeks_are_timed_apart_from_what_is_done_with_them(published):
    _, outcome = published
    timed = list(outcome.result.timings)
    parts = ["assemble the matrix", "level from history", "fit the detector"]
    assert [name for name in timed if name in parts] == parts
    at = timed.index("fit past weeks")
    assert timed[at + 1] == "price the evidence"


@pytest.mark.parametrize("threads", [1, 4])
def test_a_price_fits_nothing_after_past_weeks_were_fitted(published, tmp_path, threads, monkeypatch):
    home, outcome = published
    result, settings = outcome.result, Settings(home=home)
    prepared = prepare(load_snapshot(result.provenance.data_hash, settings), result.week, result.config)
    fitted = fit_segments(prepared, result.config, tmp_path)
    fits = FitCache(tmp_path / "fits")
    past = fit_past_weeks(prepared.past, result.week, result.config, fits, threads=threads)
    assert past.weeks == len(result.pricing.calibration.weeks)
    assert (fits.made, fits.found) == (past.weeks + 1, 0)
    by_itself = price(prepared, fitted, result.config)

    def refuse(*_):
        raise AssertionError("the evidence of a week was gathered again")

    monkeypatch.setattr(view, "gather", refuse)
    priced = price(prepared, fitted, result.config, past)
    assert priced.pricing == by_itself.pricing == result.pricing
    np.testing.assert_allclose(priced.probability[0], by_itself.probability[0], rtol=1e-9)


def test_the_record_is_kept_and_named_wherever_the_result_is(published):
    home, outcome = published
    pricing = outcome.result.pricing
    kept = Calibration.from_json((outcome.result.folder / "calibration.json").read_text())
    assert kept == pricing.calibration
    with ledger_of(home) as ledger:
        assert set(ledger.segments(outcome.run_id)["calibration"]) == {pricing.version}
        recorded = ledger.run(outcome.run_id).pricing
        assert "calibration.json" in ledger.publication(outcome.publication.id).files
        assert ledger.verify() == []
    facts = week_facts(outcome.result)
    assert (facts.params["priced.form"], facts.params["calibration.version"]) == (
        pricing.form,
        pricing.version,
    )
    assert facts.metrics["calibration.cost.history"] == kept.costs["history"]
    assert recorded["form"] == pricing.form
    assert recorded["calibration"]["version"] == pricing.version
    assert recorded["calibration"]["costs"] == pytest.approx(dict(kept.costs))
    assert pricing.words in html.unescape(outcome.report.read_text())


def test_the_saved_model_says_what_was_priced(published):
    _, outcome = published
    saved = load_model(outcome.result.segments[0].model)
    assert (saved.priced.form, saved.priced.calibration) == (
        outcome.result.pricing.form,
        outcome.result.pricing.version,
    )
    week = FRAME[FRAME["week"] == WEEK]
    said = week.assign(**saved.predict(week)).set_index(["store_id", "sku_id"])["anomaly_probability"]
    scores = outcome.result.scores.astype({"store_id": str, "sku_id": str}).set_index(["store_id", "sku_id"])
    pd.testing.assert_series_equal(said.sort_index(), scores["anomaly_probability"].sort_index())
    assert saved.predict(week.assign(units=week["units"] + 1))["anomaly_probability"].isna().all()


def test_an_explanation_gives_the_priced_probability_and_where_it_comes_from(published):
    home, outcome = published
    for pairs in (outcome.result.flags, outcome.result.scores[~outcome.result.scores["flagged"]]):
        pair = pairs.iloc[0]
        with ledger_of(home) as ledger:
            said = explain_pair(
                ledger, Settings(home=home), str(pair["store_id"]), str(pair["sku_id"]), Week.parse(WEEK)
            )
        assert said.score.anomaly_probability == pair["anomaly_probability"]
        assert any(outcome.result.pricing.words in step for step in said.steps)
        assert said.provenance["calibration"] == outcome.result.pricing.version
        assert len(said.history) <= 16


def test_a_replay_prices_the_same_without_the_cache(published):
    home, outcome = published
    shutil.move(home / "cache", home / "elsewhere")
    with ledger_of(home) as ledger:
        found = replay(ledger, Settings(home=home), outcome.run_id)
    shutil.move(home / "elsewhere", home / "cache")
    assert found.equal
    assert {"anomaly_probability", "posterior", "calibration"} <= {one.what for one in found.comparisons}
    assert max(one.largest for one in found.comparisons) == 0.0


def test_the_week_after_finds_its_past_weeks_fitted_and_gets_the_same_without(published, tables, monkeypatch):
    home, _ = published
    fits = home / "cache" / "fits"
    before = set(fits.iterdir())
    late = PANEL.weeks[31]
    quick = run_plainly(home, tables, late, changes=AUTO, shadow=True)
    assert len(set(fits.iterdir()) - before) == 2  # its own, and of the week whose labels have just matured
    shutil.rmtree(fits)
    monkeypatch.setenv("EW_THREADS", "1")
    slow = run_plainly(home, tables, late, changes=AUTO, shadow=True)
    pd.testing.assert_frame_equal(slow.result.scores, quick.result.scores)
    assert slow.result.pricing == quick.result.pricing


@pytest.fixture(scope="module")
def early(tables, tmp_path_factory):
    """(home, outcome) of a week without labels before it, with the cross-section beside."""
    home = tmp_path_factory.mktemp("early")
    changes = {**AUTO, "cross_section": True}
    return home, run_plainly(home, tables, PANEL.weeks[9], changes=changes, shadow=True)


def test_with_few_weeks_the_pairs_own_past_is_priced_without_labels(early):
    _, outcome = early
    pricing = outcome.result.pricing
    assert (pricing.form, pricing.calibrated) == ("history", False)
    assert "no past week has labels yet" in pricing.words
    expected = of_policy(History(), outcome.result.scores, t=9)
    np.testing.assert_allclose(outcome.result.scores["anomaly_probability"], expected, rtol=1e-9)


def test_the_week_alone_is_fitted_beside_and_tracked_wherever_the_result_is(early):
    home, outcome = early
    result, alone = outcome.result, outcome.result.cross_section
    settings = result.config.detector
    detector = EntrywiseDetector(
        "variational", rank=settings.rank, noise=settings.noise, anomaly=settings.anomaly, random_state=0
    )
    fit = detector.fit(PANEL.sales(9))
    assert alone.theta == fit.theta_
    scores = result.scores
    p, low = fit.posterior_, fit.sales.counts < fit.expected_sales_
    flags = (p * scores["cost_missed"] >= (1 - p) * scores["cost_false_alarm"]).to_numpy() & low
    assert (alone.flags, alone.both) == (flags.sum(), (flags & scores["flagged"].to_numpy()).sum())
    with ledger_of(home) as ledger:
        assert ledger.run(outcome.run_id).pricing["cross_section"]["flags"] == alone.flags
    facts = week_facts(result)
    assert facts.metrics["cross_section.flags"] == alone.flags
    assert facts.metrics["cross_section.anomaly_rate"] == fit.theta_.anomaly_rate
    assert facts.params["priced.form"] == "history"
    assert f"would flag {alone.flags} pairs" in outcome.report.read_text()


@pytest.mark.parametrize(
    ("changes", "week", "words"),
    [
        ({}, 3, "3 weeks before"),
        ({"history": False}, 20, "history is switched off"),
        ({"max_calibrated_pairs": 100}, 20, "more than max_calibrated_pairs"),
    ],
    ids=["new chain", "no history", "too large"],
)
def test_where_the_past_cannot_be_used_the_posterior_is_priced_and_says_why(
    changes, week, words, tables, tmp_path
):
    outcome = run_plainly(tmp_path, tables, PANEL.weeks[week], changes={**AUTO, **changes}, shadow=True)
    pricing, scores = outcome.result.pricing, outcome.result.scores
    assert pricing.form == "posterior"
    assert words in pricing.words
    np.testing.assert_array_equal(scores["anomaly_probability"], scores["posterior"])
    assert pricing.words in html.unescape(outcome.report.read_text())


def test_segments_share_one_calibration_of_the_chain(tables, tmp_path):
    department = np.where(FRAME["sku_id"] < "K10", "dairy", "bakery")
    split = write(FRAME.assign(department=department), tmp_path)
    changes = {**AUTO, "segment_by": "department"}
    outcome = run_plainly(tmp_path / "home", split, PANEL.weeks[9], changes=changes, shadow=True)
    assert {part.name for part in outcome.result.segments} == {"bakery", "dairy"}
    expected = of_policy(History(), outcome.result.scores, t=9)
    np.testing.assert_allclose(outcome.result.scores["anomaly_probability"], expected, rtol=1e-9)


def test_a_calibration_that_was_asked_for_by_name_and_cannot_be_had_holds_the_week(tables, tmp_path):
    outcome = run_plainly(tmp_path, tables, PANEL.weeks[7], changes={"probability": "calibrated"})
    assert outcome.status == "held"
    assert [check.name for check in outcome.result.held] == ["priced as asked"]


def test_a_configuration_of_the_first_version_prices_what_it_did_then():
    recorded = RunConfig().model_dump()
    del recorded["probability"]
    recorded["detector"]["probability"] = "drop"
    assert RunConfig.model_validate(recorded).probability == "drop"
