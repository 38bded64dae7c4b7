"""`ew explain`: one page about any pair, whatever became of it."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
import typer
from support.real_week import WEEK, published_home
from typer.testing import CliRunner

from ew_pipeline.audit.explain import explain_pair
from ew_pipeline.audit.explain_page import lines, page
from ew_pipeline.audit.history import PER_PAIR
from ew_pipeline.checks.record import one_check, record_checks
from ew_pipeline.cli.explain import explain
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger

pytestmark = pytest.mark.flow
W08 = Week.parse(WEEK)


@pytest.fixture(scope="module")
def cases():
    return published_home()[1]


@pytest.fixture(scope="module")
def settings():
    return Settings(home=published_home()[0], threads=1)


@pytest.fixture(scope="module")
def ledger(settings):
    with Ledger.open(settings.ledger_url, home=settings.root) as opened:
        yield opened


@pytest.fixture(scope="module")
def scores(ledger):
    frame = pd.read_parquet(ledger.publications()[0].scores)
    return frame.astype({"store_id": "str", "sku_id": "str"})


def of(ledger, settings, pair, **arguments):
    return explain_pair(ledger, settings, *pair, W08, **arguments)


def pair(frame):
    return frame["store_id"].iloc[0], frame["sku_id"].iloc[0]


def test_a_flag_is_explained_from_sales_to_decision(ledger, settings, scores):
    flagged = scores[scores["flagged"]].sort_values("expected_saving", ascending=False)
    found = of(ledger, settings, pair(flagged))
    assert found.status == "flagged"
    assert found.score.anomaly_probability == flagged["anomaly_probability"].iloc[0]
    assert found.score.store_rank == 1
    assert found.history[-1].units == flagged["units"].iloc[0]
    assert [one.week for one in found.history][-1] == WEEK
    assert 0 < len(found.resemblance.stores) <= 5
    assert 0 < len(found.resemblance.skus) <= 5
    run = ledger.publications()[0]
    assert found.provenance["data"] == run.data_hash
    assert found.provenance["run"] == run.run_id
    assert found.provenance["code"] == run.code_version


def test_a_pair_that_is_not_worth_a_check_says_so(ledger, settings, scores):
    healthy = scores[~scores["flagged"] & (scores["expected_saving"] < 0)]
    found = of(ledger, settings, pair(healthy))
    assert found.status == "not_flagged"
    assert "cost more than it is expected to save" in found.verdict
    assert any("is not (expected saving -" in step for step in found.steps)


def test_a_pair_behind_the_limit_of_its_store_says_so(ledger, settings, scores):
    behind = scores[
        ~scores["flagged"] & (scores["expected_saving"] > 0) & (scores["units"] < scores["expected_units"])
    ]
    assert "the store's 1 checks save more elsewhere" in of(ledger, settings, pair(behind)).verdict


WORDS = {
    "promoted": "promoted pairs are left out",
    "quarantined": "in quarantine",
    "unlisted": "it sold, but the listing does not range",
    "not_ranged": "the listing does not range",
    "not_reported": "its data are missing",
    "not_scored": "too little data",
}


@pytest.mark.parametrize(("state", "said"), WORDS.items(), ids=WORDS)
def test_every_other_state_of_a_pair_is_told_apart(ledger, settings, cases, state, said):
    found = of(ledger, settings, getattr(cases, state))
    assert found.status == state
    assert said.lower() in found.verdict.lower()
    assert found.score is None


def test_a_store_or_sku_that_is_in_no_table(ledger, settings, cases):
    assert of(ledger, settings, ("nowhere", cases.promoted[1])).status == "unknown_store"
    assert of(ledger, settings, (cases.promoted[0], "nothing")).status == "unknown_sku"


def test_a_zero_without_a_row_is_shown_as_implied(ledger, settings, cases):
    found = of(ledger, settings, cases.implied_zero)
    assert found.status in ("flagged", "not_flagged")
    assert (found.history[-1].units, found.history[-1].note) == (0, "no row")


def test_quarantined_and_missing_weeks_have_no_units(ledger, settings, cases):
    last = {state: of(ledger, settings, getattr(cases, state)).history[-1] for state in WORDS}
    assert (last["quarantined"].units, last["quarantined"].note) == (None, "in quarantine")
    assert (last["not_reported"].units, last["not_reported"].note) == (None, "store did not report")
    assert (last["not_ranged"].units, last["not_ranged"].note) == (None, "not ranged")
    assert last["promoted"].note == "promoted"


def test_checks_of_the_pair_are_shown(settings, scores, tmp_path):
    shutil.copytree(settings.root, tmp_path / "home")
    own = Settings(home=tmp_path / "home")
    store, sku = pair(scores[scores["flagged"]])
    with Ledger.open(own.ledger_url, home=own.root) as ledger:
        check = one_check(store_id=store, sku_id=sku, week=WEEK, outcome="confirmed", checked_by="bo")
        assert record_checks(ledger, check, by="ana").added == 1
        (told,) = explain_pair(ledger, own, store, sku, W08).checks
    assert told.startswith(f"{WEEK}: confirmed (flag)")


def test_after_pruning_flags_are_explained_and_gaps_are_said(settings, scores, tmp_path):
    shutil.copytree(settings.root, tmp_path / "home")
    own = Settings(home=tmp_path / "home")
    with Ledger.open(own.ledger_url, home=own.root) as ledger:
        folder = ledger.runs()[0].folder
        for pattern in PER_PAIR:
            for path in folder.glob(pattern):
                path.unlink()
        flagged = of(ledger, own, pair(scores[scores["flagged"]]))
        other = of(ledger, own, pair(scores[~scores["flagged"]]))
    assert (flagged.status, flagged.resemblance) == ("flagged", None)
    assert "model is not stored any more" in flagged.gaps[0]
    assert (other.status, other.score) == ("not_flagged", None)
    assert "ew audit replay" in other.gaps[0]


def test_weeks_and_runs_that_do_not_fit_are_refused(ledger, settings):
    with pytest.raises(UsageError, match="2020-W01 was not run"):
        explain_pair(ledger, settings, "a", "b", Week(2020, 1))
    with pytest.raises(UsageError, match="is of 2026-W08, not of 2026-W07"):
        explain_pair(ledger, settings, "a", "b", Week(2026, 7), ledger.runs()[0].run_id)


def test_the_page_is_one_file_and_escapes_what_it_shows(ledger, settings, scores):
    text = page(of(ledger, settings, pair(scores[scores["flagged"]])))
    assert "Stores that sell like" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    assert "<script>" not in page(of(ledger, settings, ("<script>", "x")))


def test_the_command_prints_text_json_or_a_page(settings, scores, monkeypatch, tmp_path):
    monkeypatch.setenv("EW_HOME", str(settings.root))
    app = typer.Typer()
    app.command()(explain)
    store, sku = pair(scores[scores["flagged"]])
    asked = ["--store", store, "--sku", sku, "--week", WEEK]
    text = CliRunner().invoke(app, asked).output
    assert "Flagged: worth a walk to the shelf." in text
    assert "Units by week" in text
    assert json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["status"] == "flagged"
    answer = CliRunner().invoke(app, [*asked, "--html", str(tmp_path / "page.html")])
    assert answer.exit_code == 0
    assert sku in (tmp_path / "page.html").read_text()


def test_the_text_of_every_state_can_be_written(ledger, settings, cases):
    for state in WORDS:
        assert "Where this comes from" in "\n".join(lines(of(ledger, settings, getattr(cases, state))))
