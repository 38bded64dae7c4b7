"""A random share of the unflagged pairs on the check list: seeded, marked, and never counted as flags."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chain import LAST_WEEK, run_plainly, write_chain

from ew_pipeline.audit.replay import replay
from ew_pipeline.checks.evaluate import evaluate_checks
from ew_pipeline.checks.record import read_checks, record_checks
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import random_slice
from ew_pipeline.ledger import Ledger

WEEK = Week.parse(LAST_WEEK)
SHARE = 0.05
pytestmark = pytest.mark.flow


@given(
    flagged=st.lists(st.booleans(), min_size=1, max_size=200),
    share=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**31),
    week=st.integers(0, 3000),
)
def test_the_same_week_and_seed_draw_the_same_unflagged_pairs(flagged, share, seed, week):
    scores = pd.DataFrame({"flagged": flagged})
    drawn = random_slice(scores, Week.at(week), share, seed)
    np.testing.assert_array_equal(drawn, random_slice(scores.copy(), Week.at(week), share, seed))
    assert not (drawn & np.array(flagged)).any()
    unflagged = flagged.count(False)
    assert drawn.sum() == (min(unflagged, max(1, round(share * unflagged))) if share > 0 else 0)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    tables = write_chain(folder / "chain")
    changes = {"random_check_share": SHARE, "max_checks_per_store": 3}
    outcome = run_plainly(folder / "home", tables, changes=changes)
    assert outcome.status == "published"
    return folder / "home", outcome


def ledger_of(home):
    return Ledger.open(Settings(home=home).ledger_url, home=home)


def test_the_drawn_pairs_are_in_the_ledger_beside_the_flags(published):
    home, outcome = published
    result = outcome.result
    with ledger_of(home) as ledger:
        drawn = ledger.random_checks(outcome.publication.id)
        flags = ledger.flags(outcome.publication.id)
        run = ledger.run(outcome.run_id)
        assert ledger.verify() == []
    unflagged = len(result.scores) - len(flags)
    assert len(drawn) == round(SHARE * unflagged) > 0
    assert drawn["inclusion_probability"].unique() == pytest.approx([len(drawn) / unflagged])
    pairs = set(zip(drawn["store_id"], drawn["sku_id"], strict=True))
    assert not pairs & set(zip(flags["store_id"], flags["sku_id"], strict=True))
    assert run.pairs_flagged == len(flags) == outcome.publication.flags_count
    assert "random checks" in outcome.report.read_text()


def test_a_drawn_pair_that_is_removed_from_the_ledger_is_missed(published, tmp_path):
    import shutil
    import sqlite3

    home, _ = published
    shutil.copytree(home, tmp_path / "home")
    with sqlite3.connect(tmp_path / "home" / "ledger.db") as connection:
        connection.execute("DELETE FROM random_checks WHERE id = 1")
    with ledger_of(tmp_path / "home") as ledger:
        (problem,) = ledger.verify()
    assert (problem.kind, problem.table) == ("deleted", "random_checks")


def test_they_come_last_on_the_check_lists_and_say_what_they_are(published):
    home, outcome = published
    folder = home / "reports" / LAST_WEEK
    document = json.loads((folder / "check_list.json").read_text())
    flags, drawn = len(outcome.result.flags), len(outcome.result.random_checks)
    assert (document["to_check"], document["random_checks"]) == (flags, drawn)
    assert document["expected_saving"] == pytest.approx(outcome.result.expected_saving)
    codes = [check["codes"] for check in document["checks"]]
    assert codes[flags:] == [["RANDOM_CHECK"]] * drawn
    assert ["RANDOM_CHECK"] not in codes[:flags]
    one = next(iter(outcome.result.random_checks["store_id"].astype(str)))
    with (folder / "check_list" / f"{one}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["place"]) for row in rows] == list(range(1, len(rows) + 1))
    assert "at random" in rows[-1]["why"]


def test_a_replay_draws_the_same(published):
    home, outcome = published
    with ledger_of(home) as ledger:
        found = replay(ledger, Settings(home=home), outcome.run_id)
    assert found.equal
    assert "random_check" in {one.what for one in found.comparisons}


def test_a_filled_in_list_gives_recall_also_when_the_scores_are_gone(published, tmp_path):
    import shutil

    home, outcome = published
    shutil.copytree(home, tmp_path / "home")
    (tmp_path / "home" / "runs" / outcome.run_id / "scores.parquet").unlink()
    filled = pd.read_csv(home / "reports" / LAST_WEEK / "check_list.csv", dtype=str)
    filled["outcome"] = np.where(filled["why"].str.contains("at random"), "healthy", "confirmed")
    filled.loc[filled.index[-1], "outcome"] = "confirmed"
    filled.to_csv(tmp_path / "filled.csv", index=False)
    with ledger_of(tmp_path / "home") as ledger:
        done = record_checks(ledger, read_checks(str(tmp_path / "filled.csv")), by="ana")
        found = evaluate_checks(ledger, WEEK, WEEK)
    assert (done.refused, done.unlinked) == ([], 0)
    drawn = len(outcome.result.random_checks)
    assert (found.random_checked, found.random_confirmed) == (drawn, 1)
    unflagged = len(outcome.result.scores) - len(outcome.result.flags)
    missed = unflagged / drawn  # what the one find stands for
    assert found.recall.value == pytest.approx(
        len(outcome.result.flags) / (len(outcome.result.flags) + missed)
    )
