"""A whole week on real components: SQLite, MLflow, Great Expectations, the detector."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from support.chain import LAST_WEEK, QUICK, run_plainly, write_chain

from ew_pipeline.core import steps as stepping
from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.intake.contract import ContractRejected
from ew_pipeline.ledger import Ledger
from ew_pipeline.outputs.scores import write_scores
from ew_pipeline.weekly import run
from ew_pipeline.weekly.request import change_config, read_config
from flows.follow import follow_drift

WEEK = Week.parse(LAST_WEEK)
pytestmark = pytest.mark.flow


def ledger_of(home: Path) -> Ledger:
    return Ledger.open(Settings(home=home).ledger_url, home=home)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_chain(tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="module")
def published(tmp_path_factory, tables):
    """(home, outcome) of two weeks in a row, the last of them."""
    home = tmp_path_factory.mktemp("home")
    run_plainly(home, tables, week="2026-W07")
    return home, run_plainly(home, tables, tracked=True)


def test_the_week_is_published_with_its_files(published):
    home, outcome = published
    assert outcome.status == "published"
    assert outcome.exit_code == 0
    live = home / "reports" / LAST_WEEK
    assert outcome.report == live / "report.html"
    assert {"report.html", "check_list.csv", "check_list.json", "check_list.parquet"} <= {
        path.name for path in live.iterdir()
    }
    assert (live / "data_docs" / "index.html").is_file()


def test_the_ledger_holds_exactly_the_flagged_pairs_and_is_whole(published):
    home, outcome = published
    with ledger_of(home) as ledger:
        flags = ledger.flags(outcome.publication.id)
        assert ledger.verify() == []
    wanted = outcome.result.flags
    assert len(flags) == len(wanted) > 0
    assert list(zip(flags["store_id"], flags["sku_id"], strict=True)) == list(
        zip(wanted["store_id"].astype(str), wanted["sku_id"].astype(str), strict=True)
    )
    assert (flags["run_id"] == outcome.run_id).all()
    assert flags["reasons"].str.len().min() > 0


def test_only_pairs_below_expectation_are_flagged_and_saving_is_what_the_rule_says(published):
    _, outcome = published
    scores = outcome.result.scores
    p = scores["anomaly_probability"]
    saving = p * scores["cost_missed"] - (1 - p) * scores["cost_false_alarm"]
    assert saving.to_numpy() == pytest.approx(scores["expected_saving"].to_numpy())
    flagged = scores["flagged"]
    assert (scores.loc[flagged, "units"] < scores.loc[flagged, "expected_units"]).all()
    assert (scores.loc[flagged, "expected_saving"] >= 0).all()
    low = scores["units"] < scores["expected_units"]
    assert not (scores.loc[~flagged & low, "expected_saving"] > 1e-9).any()


def test_the_check_list_of_a_store_counts_from_one_without_gaps(published):
    _, outcome = published
    for _, flags in outcome.result.flags.groupby("store_id", observed=True):
        assert sorted(flags["store_rank"]) == list(range(1, len(flags) + 1))
        assert flags.sort_values("store_rank")["expected_saving"].is_monotonic_decreasing


def test_a_rerun_with_the_same_inputs_changes_nothing_and_says_so(published, tables):
    home, outcome = published
    with ledger_of(home) as ledger:
        before = ledger.publications(WEEK)
    again = run_plainly(home, tables)
    assert (again.status, again.run_id, again.exit_code) == ("unchanged", outcome.run_id, 0)
    with ledger_of(home) as ledger:
        assert ledger.publications(WEEK) == before


def test_live_files_that_were_lost_come_back_with_the_rerun(published, tables):
    home, outcome = published
    outcome.report.unlink()
    assert run_plainly(home, tables).report.is_file()


def test_the_week_before_is_what_changes_are_shown_against(published):
    _, outcome = published
    assert "2026-W07" in outcome.report.read_text()


def test_it_is_tracked_and_the_flags_name_the_run(published):
    home, outcome = published
    assert outcome.result.provenance.mlflow_run_id
    with ledger_of(home) as ledger:
        flags = ledger.flags(outcome.publication.id)
    assert set(flags["mlflow_run_id"]) == {outcome.result.provenance.mlflow_run_id}


def test_new_inputs_supersede_and_the_old_publication_stays_readable(tmp_path, tables):
    first = run_plainly(tmp_path, tables)
    costs = pd.read_parquet(tables["costs"]).assign(cost_missed=lambda frame: frame["cost_missed"] * 3)
    costs.to_parquet(tmp_path / "costs.parquet", index=False)
    second = run_plainly(tmp_path, tables, costs=str(tmp_path / "costs.parquet"))
    assert second.status == "published"
    with ledger_of(tmp_path) as ledger:
        old, new = ledger.publications(WEEK)
        assert (new.version, new.supersedes, new.run_id) == (2, old.id, second.run_id)
        assert len(ledger.flags(old.id)) == len(first.result.flags)
        assert ledger.current(WEEK).id == new.id
        assert ledger.verify() == []
    assert len(second.result.flags) > len(first.result.flags)


def test_explicit_zeros_and_zeros_of_the_listing_give_identical_flags(published, tables, tmp_path):
    _, listed = published
    sales = pd.read_parquet(tables["sales"])
    sold = sales[sales["units"] > 0]
    assert len(sold) < len(sales)
    sold.to_parquet(tmp_path / "sold.parquet", index=False)
    implied = run_plainly(tmp_path / "implied", tables, sales=str(tmp_path / "sold.parquet"))
    explicit = run_plainly(tmp_path / "explicit", tables, listing=None, changes={"zero_rule": "explicit"})
    assert implied.result.coverage.pairs_zero_filled > 0
    assert explicit.result.coverage.zero_rule == "explicit"
    for other in (implied, explicit):
        pd.testing.assert_frame_equal(other.result.scores, listed.result.scores)


def test_threads_do_not_change_a_number(tables, tmp_path, monkeypatch):
    scores = []
    for threads in ("1", "2"):
        monkeypatch.setenv("EW_THREADS", threads)
        changes = {"segment_by": "department", "detector": {**QUICK["detector"], "rank": 1}}
        outcome = run_plainly(tmp_path / threads, tables, skus=tables["skus"], changes=changes)
        scores.append(outcome.result.scores)
        assert len(outcome.result.segments) > 1
    pd.testing.assert_frame_equal(scores[0], scores[1])


def test_a_cap_keeps_the_best_checks_of_each_store(published, tables, tmp_path):
    _, free = published
    capped = run_plainly(tmp_path, tables, changes={"max_checks_per_store": 2})
    best = free.result.flags[free.result.flags["store_rank"] <= 2]
    kept = capped.result.flags
    assert set(zip(kept["store_id"], kept["sku_id"], strict=True)) == set(
        zip(best["store_id"], best["sku_id"], strict=True)
    )


def test_a_held_week_is_kept_and_shown_but_not_published(tables, tmp_path):
    held = run_plainly(tmp_path, tables, changes={"gate": {**QUICK["gate"], "min_pairs": 10_000}})
    assert (held.status, int(held.exit_code)) == ("held", 4)
    assert held.report.is_file()
    assert "--override" in held.publish_anyway
    words = shlex.split(held.publish_anyway)
    kept = read_config(Path(words[words.index("--config") + 1]))
    assert change_config(RunConfig(), kept).hash == held.result.config.hash  # publishes what was computed
    with ledger_of(tmp_path) as ledger:
        assert ledger.current(WEEK) is None
        assert ledger.run(held.run_id).status == "held"
    assert not (tmp_path / "reports" / LAST_WEEK).exists()


def test_an_override_publishes_and_records_who_and_why(tables, tmp_path, monkeypatch):
    monkeypatch.setenv("EW_ACTOR", "ana")
    gate = {"gate": {**QUICK["gate"], "min_pairs": 10_000}}
    outcome = run_plainly(tmp_path, tables, changes=gate, override_why="small pilot region")
    assert outcome.status == "published"
    with ledger_of(tmp_path) as ledger:
        override = ledger.current(WEEK).override
    assert (override.who, override.why) == ("ana", "small pilot region")


def test_a_shadow_run_is_tracked_and_never_published(published, tables):
    home, outcome = published
    changes = {"detector": {**QUICK["detector"], "rank": 3}}
    shadow = run_plainly(home, tables, tracked=True, shadow=True, changes=changes)
    assert (shadow.status, int(shadow.exit_code)) == ("shadow", 0)
    assert shadow.result.provenance.mlflow_run_id
    with ledger_of(home) as ledger:
        assert ledger.current(WEEK).run_id == outcome.run_id
        assert ledger.run(shadow.run_id).status == "shadow"


def test_a_promoted_configuration_is_what_the_next_run_uses(tables, tmp_path):
    shadow = run_plainly(tmp_path, tables, shadow=True, changes={"max_checks_per_store": 1})
    with ledger_of(tmp_path) as ledger:
        ledger.promote(shadow.run_id, by="ana", why="one check is what stores manage")
    outcome = run_plainly(tmp_path, tables)
    assert outcome.result.config.max_checks_per_store == 1


def test_a_rejected_batch_publishes_nothing_and_every_key_is_kept(tables, tmp_path):
    sales = pd.read_parquet(tables["sales"])
    twice = sales[(sales["week"] == LAST_WEEK).to_numpy()].head(7)
    pd.concat([sales, twice]).to_parquet(tmp_path / "twice.parquet", index=False)
    with pytest.raises(ContractRejected) as caught:
        run_plainly(tmp_path / "home", tables, sales=str(tmp_path / "twice.parquet"))
    contract = caught.value.contract
    kept = pd.concat([pd.read_csv(path) for path in _files(contract.quarantine)])
    assert kept.groupby(["store_id", "sku_id"]).ngroups == 7
    with ledger_of(tmp_path / "home") as ledger:
        (run,) = ledger.runs(week=WEEK)
        assert run.status == "rejected"
        assert ledger.current(WEEK) is None
    assert not (tmp_path / "home" / "reports").exists()


def _files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.csv"))


@pytest.mark.parametrize("part", ["write_scores", "write_check_lists"])
def test_a_part_of_the_report_that_fails_beside_the_others_publishes_nothing(
    part, tables, tmp_path, monkeypatch
):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, part, full)
    with pytest.raises((OSError, EwError), match="No space left"):
        run_plainly(tmp_path, tables)
    with ledger_of(tmp_path) as ledger:
        assert ledger.publications() == ()
        assert [one.status for one in ledger.runs()] == ["failed"]
        assert ledger.verify() == []
    assert not (tmp_path / "reports" / LAST_WEEK).exists()


@pytest.mark.parametrize("shadow", [False, True], ids=["published", "shadow"])
def test_scores_that_failed_for_a_moment_are_written_again(shadow, tables, tmp_path, monkeypatch):
    tries = []

    def write(scores, path):
        tries.append(path)
        if len(tries) == 1:
            raise TimeoutError("the share did not answer")
        write_scores(scores, path)

    monkeypatch.setattr(stepping, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(run, "write_scores", write)
    outcome = run_plainly(tmp_path, tables, shadow=shadow)
    assert outcome.status == ("shadow" if shadow else "published")
    assert len(tries) == 2
    kept = pd.read_parquet(tmp_path / "runs" / outcome.run_id / "scores.parquet")
    assert len(kept) == len(outcome.result.scores)
    with ledger_of(tmp_path) as ledger:
        assert ledger.verify() == []


def test_faulty_rows_below_the_limit_are_quarantined_and_said(tables, tmp_path):
    sales = pd.read_parquet(tables["sales"]).astype({"units": "int64"})
    at = sales.index[(sales["week"] == LAST_WEEK).to_numpy()][:2]
    sales.loc[at, "units"] = -1
    sales.to_parquet(tmp_path / "bad.parquet", index=False)
    outcome = run_plainly(tmp_path / "home", tables, sales=str(tmp_path / "bad.parquet"))
    assert outcome.status == "published"
    assert outcome.result.contract.rows_quarantined == 2
    assert "quarantined" in outcome.report.read_text()


def test_the_outcome_for_programs_is_plain_json(published):
    from ew_pipeline.cli.run import describe
    from ew_pipeline.core.console import plain

    _, outcome = published
    described = json.loads(json.dumps(plain(describe(outcome))))
    assert described["status"] == "published"
    assert described["flags"] == len(outcome.result.flags)
    assert described["week"] == LAST_WEEK


class SayingSteps(Steps):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_after_a_published_week_drift_is_judged_and_said(published):
    home, outcome = published
    steps = SayingSteps()
    report = follow_drift(outcome, Settings(home=home), steps)
    assert steps.said == [f"drift: {report.verdict}"]
    assert report.page.is_file()
    with ledger_of(home) as ledger:
        assert len(ledger.table("drift_points", week=LAST_WEEK))


def test_drift_that_cannot_be_judged_is_said_and_fails_nothing(published, monkeypatch):
    home, outcome = published
    monkeypatch.setenv("EW_ALERT_URL", "carrier-pigeon:loft")
    steps = SayingSteps()
    assert follow_drift(outcome, Settings(home=home), steps) is None
    assert len(steps.said) == 1
    assert "not judged" in steps.said[0]


def test_a_week_that_was_not_published_is_not_followed(published):
    home, outcome = published
    steps = SayingSteps()
    assert follow_drift(replace(outcome, status="held"), Settings(home=home), steps) is None
    assert steps.said == []
