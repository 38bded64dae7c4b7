"""Weeks that were really run and published, evaluated once their labels are in."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.browser import chromium, open_page
from support.chain import run_plainly, write_chain

from ew_pipeline.audit.verify import Finding, verify
from ew_pipeline.backtest.history import read_history, read_kept
from ew_pipeline.backtest.run import EvaluationRequest, document, run_evaluation
from ew_pipeline.cli.evaluate import evaluate
from ew_pipeline.core.console import plain
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.intake.sources import open_source
from ew_pipeline.ledger import Ledger
from ew_pipeline.outputs.realised import realised_calibration

pytestmark = pytest.mark.flow
WEEK, LATER = "2026-W11", "2026-W16"
FEW = ("trailing", "history", "calibrated-history")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_chain(tmp_path_factory.mktemp("chain"), weeks=17, stores=12, skus=40)


@pytest.fixture(scope="module")
def home(tables, tmp_path_factory):
    """A week published twice, and the week that brings its labels."""
    folder = tmp_path_factory.mktemp("evaluated") / "home"
    run_plainly(folder, tables, WEEK, changes={"max_checks_per_store": 1}, override_why="a test")
    run_plainly(folder, tables, WEEK, override_why="a test")
    run_plainly(folder, tables, LATER, override_why="a test")
    return folder


@pytest.fixture(scope="module")
def before(home):
    """Everything that was published, before any evaluation."""
    return published_state(home)


@pytest.fixture(scope="module")
def report(home, before):
    return run_evaluation(EvaluationRequest(policies=FEW), Settings(home=home), Steps(quiet=True))


def ledger_of(home: Path) -> Ledger:
    return Ledger.open(Settings(home=home).ledger_url, home=home)


def published_state(home: Path) -> dict[str, object]:
    with ledger_of(home) as ledger:
        return {
            "publications": ledger.table("publications").to_dict("records"),
            "flags": ledger.table("flags").to_dict("records"),
            "runs": ledger.table("runs").to_dict("records"),
        }


def findings(home: Path) -> list[Finding]:
    with ledger_of(home) as ledger:
        return list(verify(ledger, Settings(home=home)).findings)


def evaluations(home: Path) -> pd.DataFrame:
    with ledger_of(home) as ledger:
        return ledger.table("evaluations")


def test_every_publication_of_a_matured_week_is_evaluated_as_it_stood(report, home):
    assert [(done.measures.week, done.publication.id) for done in report.weeks] == [(WEEK, 1), (WEEK, 2)]
    capped, free = (done.measures.published.decisions for done in report.weeks)
    assert capped.flagged < free.flagged
    assert free.found > 0
    with ledger_of(home) as ledger:
        assert [len(ledger.flags(number)) for number in (1, 2)] == [capped.flagged, free.flagged]
    assert report.left == {}


def test_rows_say_the_rule_its_version_and_the_data(report, home):
    rows = evaluations(home)
    assert rows["label_rule"].tolist() == ["text", "text"]
    assert rows["label_version"].tolist() == ["1", "1"]
    assert rows["basis"].tolist() == ["labels", "labels"]
    assert rows["publication_id"].tolist() == [1, 2]
    assert rows["data_hash"].tolist() == [done.measures.data_hash for done in report.weeks]
    kept = json.loads(rows["metrics"].iloc[1])
    assert set(kept["policies"]) == {"published", "ignore", "trailing", "trailing-sku", *FEW}
    assert (
        kept["policies"]
        == document(report.weeks[1].publication, report.weeks[1].measures, "text")["policies"]
    )
    assert kept["sales"][LATER] == kept["sales"]["2026-W08"] != kept["sales"]["2026-W07"]


def test_what_was_flagged_stays_as_it_was_and_the_audit_passes(report, home, before):
    assert published_state(home) == before
    assert findings(home) == []


def test_a_second_evaluation_adds_nothing(report, home):
    again = run_evaluation(EvaluationRequest(policies=FEW), Settings(home=home), Steps(quiet=True))
    assert again.weeks == ()
    named = run_evaluation(EvaluationRequest(WEEK, policies=FEW), Settings(home=home), Steps(quiet=True))
    assert [(done.evaluation_id, done.new) for done in named.weeks] == [(2, False)]
    assert len(evaluations(home)) == 2


def test_a_new_version_of_the_labels_is_evaluated_beside_the_old(report, home, tmp_path, monkeypatch):
    copy = shutil.copytree(home, tmp_path / "home")
    monkeypatch.setattr("ew_pipeline.backtest.view.LABEL_VERSION", "2")
    again = run_evaluation(EvaluationRequest(policies=FEW), Settings(home=copy), Steps(quiet=True))
    assert [done.publication.id for done in again.weeks] == [1, 2]
    assert evaluations(copy)["label_version"].tolist() == ["1", "1", "2", "2"]


def test_a_rollback_is_evaluated_as_the_publication_it_shows(report, home, tmp_path):
    copy = shutil.copytree(home, tmp_path / "home")
    with ledger_of(copy) as ledger:
        assert ledger.rollback(Week.parse(WEEK), by="ana", why="a test").source_id == 1
    settings = Settings(home=copy)
    assert run_evaluation(EvaluationRequest(policies=FEW), settings, Steps(quiet=True)).weeks == ()
    (done,) = run_evaluation(EvaluationRequest(WEEK, policies=FEW), settings, Steps(quiet=True)).weeks
    assert (done.publication.id, done.new) == (1, False)


def test_scores_that_were_edited_or_pruned_are_named_and_the_others_evaluated(report, home, tmp_path):
    copy = shutil.copytree(home, tmp_path / "home")
    settings = Settings(home=copy)
    with ledger_of(copy) as ledger:
        path = ledger.publication(1).scores
    path.chmod(0o644)
    pd.read_parquet(path).assign(flagged=True).to_parquet(path, index=False)
    asked = EvaluationRequest(label="pair", policies=("trailing",))
    told = run_evaluation(asked, settings, Steps(quiet=True))
    assert [done.publication.id for done in told.weeks] == [2]
    assert "is not what was published" in told.left[WEEK]
    path.unlink()
    with pytest.raises(DataError, match=r"scores of publication 1 .* are not kept any more"):
        run_evaluation(EvaluationRequest(publication=1), settings, Steps(quiet=True))


def test_an_edited_evaluation_is_found_by_the_audit(report, home, tmp_path):
    copy = shutil.copytree(home, tmp_path / "home")
    with sqlite3.connect(copy / "ledger.db") as database:
        database.execute(
            "UPDATE evaluations SET metrics = replace(metrics, '\"found\":', '\"found\":9') WHERE id = 2"
        )
    assert [(found.kind, found.name) for found in findings(copy)] == [("edited", "evaluations 2")]


def test_a_week_that_is_not_mature_says_what_to_type(home, tables):
    with pytest.raises(DataError, match=f"labels of {LATER} are not mature.*sales up to 2026-W21") as caught:
        run_evaluation(EvaluationRequest(LATER), Settings(home=home), Steps(quiet=True))
    assert f"ew evaluate --week {LATER} --sales FILE" in str(caught.value)
    with pytest.raises(UsageError, match="2026-W12 was never published"):
        run_evaluation(EvaluationRequest("2026-W12"), Settings(home=home), Steps(quiet=True))


def test_a_file_of_sales_gives_the_same_figures_as_the_kept_snapshots(
    report, home, tables, tmp_path, monkeypatch
):
    copy = shutil.copytree(home, tmp_path / "home")
    monkeypatch.setattr(
        "ew_pipeline.backtest.history.open_source",
        lambda spec, connection: open_source(tables["sales"] if "://" in spec else spec, connection),
    )
    url = "postgresql://ana:Sekret@db#table=sales"
    asked = EvaluationRequest(
        WEEK, sales=url, listing=tables["listing"], policies=("trailing",), out=tmp_path
    )
    (done,) = run_evaluation(asked, Settings(home=copy), Steps(quiet=True)).weeks
    kept = report.weeks[1].measures
    assert done.new  # the file holds two weeks more of the past, so the data differ
    assert (done.measures.pairs, done.measures.anomalies) == (kept.pairs, kept.anomalies)
    assert plain(done.measures.published.decisions) == plain(kept.published.decisions)
    assert done.page == tmp_path / "evaluation.html"
    recorded = str(evaluations(copy)["metrics"].tolist()) + done.page.read_text(encoding="utf-8")
    assert "ana:***@db" in recorded
    assert "Sekret" not in recorded


def test_kept_sales_are_the_sales(home, tables):
    with ledger_of(home) as ledger:
        kept = read_kept(ledger, Settings(home=home)).history
    file = read_history(tables["sales"], tables["listing"])
    assert kept.panel.weeks == file.panel.weeks[2:16]
    rows = file.panel.rows_of(kept.panel.store_ids[kept.panel.store], kept.panel.sku_ids[kept.panel.sku])
    np.testing.assert_array_equal(kept.panel.units, file.panel.units[rows, 2:16])
    assert kept.zero_rule == file.zero_rule == "listing"


def test_outside_truth_needs_no_later_week(home, tables, tmp_path):
    copy = shutil.copytree(home, tmp_path / "home")
    with ledger_of(copy) as ledger:
        flags = ledger.flags(3)
    flags[["store_id", "sku_id", "week"]].assign(label=1).to_csv(tmp_path / "truth.csv", index=False)
    asked = EvaluationRequest(LATER, truth=str(tmp_path / "truth.csv"), policies=("trailing",))
    (done,) = run_evaluation(asked, Settings(home=copy), Steps(quiet=True)).weeks
    assert done.measures.published.decisions.precision.value == 1.0
    assert (done.measures.label_rule, done.measures.pairs) == ("truth", len(flags))


def test_mlflow_has_a_run_per_evaluation_and_gets_back_what_it_lost(report, home, tmp_path):
    from ew_pipeline.tracking.store import tracking_client

    copy = shutil.copytree(home, tmp_path / "home")
    settings = Settings(home=copy)
    for path in copy.glob("mlflow.db*"):
        path.unlink()
    run_evaluation(EvaluationRequest(WEEK, policies=FEW), settings, Steps(quiet=True))
    client = tracking_client(settings)
    experiment = client.get_experiment_by_name("ew-evaluation")
    runs = sorted(
        client.search_runs([experiment.experiment_id]), key=lambda run: run.data.tags["ew.publication_id"]
    )
    assert [run.data.tags["ew.publication_id"] for run in runs] == ["1", "2"]
    found, own = runs[1].data, report.weeks[1].measures
    assert found.tags["ew.week"] == WEEK
    assert found.tags["ew.data_hash"] == own.data_hash
    assert found.tags["ew.run_id"] == report.weeks[1].publication.run_id
    assert found.tags["ew.code_version"]
    assert found.params["label_rule"] == "text"
    assert found.metrics["cost_ratio/published"] == pytest.approx(own.published.measures.cost_ratio)
    assert found.metrics["saving/history"] == pytest.approx(own.policies["history"].decisions.saving.value)
    assert found.metrics["week_index"] == Week.parse(WEEK).index
    assert {file.path for file in client.list_artifacts(runs[1].info.run_id)} == {
        "cost.png",
        "evaluation.html",
    }


def test_an_evaluation_is_recorded_also_when_mlflow_does_not_answer(report, home, tmp_path):
    copy = shutil.copytree(home, tmp_path / "home")
    settings = Settings(home=copy, MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    asked = EvaluationRequest(label="code", policies=("trailing",))
    told = run_evaluation(asked, settings, Steps(quiet=True))
    assert "http://127.0.0.1:9 does not answer" in told.untracked
    assert [done.new for done in told.weeks] == [True, True]
    assert evaluations(copy)["label_rule"].tolist() == ["text", "text", "code", "code"]


def test_the_report_of_a_later_week_shows_how_the_probabilities_turned_out(report, home, tables, tmp_path):
    copy = shutil.copytree(home, tmp_path / "home")
    with ledger_of(copy) as ledger:
        assert realised_calibration(ledger, Week.parse("2026-W15")) is None  # its labels needed W16
        found = realised_calibration(ledger, Week.parse(LATER))
    assert found.table.count.sum() == report.weeks[1].measures.pairs
    assert found.words == f"Published in {WEEK}, labels text"
    outcome = run_plainly(copy, tables, "2026-W17", override_why="a test")
    assert f"Published in {WEEK}, labels text: {found.table.count.sum()} pairs" in outcome.report.read_text()


def test_the_command_prints_the_week_in_the_form_of_a_backtest(report, home, tmp_path, monkeypatch, capsys):
    copy = shutil.copytree(home, tmp_path / "home")
    monkeypatch.setenv("EW_HOME", str(copy))
    evaluate(week=WEEK, policy=["trailing"], json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["default"], told["weeks"], told["publication"]) == ("published", [WEEK], 2)
    assert {"cost_ratio", "auc", "average_precision"} <= set(told["policies"]["published"])
    evaluate(publication=1, policy=["trailing"])
    printed = capsys.readouterr()
    assert "publication 1" in printed.out
    assert "published *" in printed.out
    assert "publication-1-text/evaluation.html" in printed.err


@pytest.mark.browser
def test_the_page_asks_the_network_for_nothing_and_fits_a_phone(report):
    page = report.weeks[1].page
    own = report.weeks[1].measures.published.decisions
    with chromium() as browser, open_page(browser, page.as_uri(), width=390) as opened:
        assert opened.page.inner_text("h1") == f"{own.found} of {own.flagged} flags were right"
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert opened.page.locator("svg.plot").count() == 5
        assert opened.console == []
        assert opened.requests == [page.as_uri()]
