"""Store checks: drawn, read, recorded once, conflicts named."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from support.audit_world import World
from typer.testing import CliRunner

from ew_pipeline.checks.record import one_check, read_checks, record_checks
from ew_pipeline.cli import checks
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import DRAWN, random_slice
from ew_pipeline.ledger.store import newest_checks
from ew_pipeline.outputs.check_list import write_check_lists

W34 = Week(2026, 34)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Made once, copied for every test: 3 stores x 4 SKUs; S000 K000, S001 K001 and S002 K002 are flagged."""
    made = World.make(tmp_path_factory.mktemp("published") / "home")
    made.publish("2026-W34")
    made.ledger.close()
    return made.settings.root


@pytest.fixture
def world(published, tmp_path):
    shutil.copytree(published, tmp_path / "home")
    made = World.make(tmp_path / "home")
    yield made
    made.ledger.close()


def write(tmp_path, rows, name="checks.csv"):
    path = tmp_path / name
    frame = pd.DataFrame(rows)
    frame.to_parquet(path) if name.endswith("parquet") else frame.to_csv(path, index=False)
    return str(path)


def check(store="S000", sku="K000", week="2026-W34", outcome="confirmed", **more):
    return {"store_id": store, "sku_id": sku, "week": week, "outcome": outcome, **more}


def record(world, tmp_path, *rows, **arguments):
    return record_checks(world.ledger, read_checks(write(tmp_path, list(rows))), by="ana", **arguments)


@given(
    flagged=st.lists(st.booleans(), min_size=1, max_size=60),
    share=st.floats(0.001, 1.0),
    seed=st.integers(0, 9),
)
def test_the_random_share_is_of_unflagged_pairs_and_is_the_same_every_time(flagged, share, seed):
    scores = pd.DataFrame({"flagged": flagged})
    drawn = random_slice(scores, W34, share, seed)
    unflagged = flagged.count(False)
    assert not (drawn & np.array(flagged)).any()
    assert drawn.sum() == min(unflagged, max(1, round(share * unflagged)))
    assert (drawn == random_slice(scores, W34, share, seed)).all()


def test_every_unflagged_pair_is_drawn_equally_often():
    scores = pd.DataFrame({"flagged": [True, *[False] * 9]})
    times = sum(random_slice(scores, W34, 1 / 3, seed).astype(int) for seed in range(3000))
    assert times[0] == 0
    assert np.abs(times[1:] / 3000 - 1 / 3).max() < 0.035


def test_weeks_and_seeds_draw_other_pairs_and_no_share_draws_none():
    scores = pd.DataFrame({"flagged": np.zeros(1000, bool)})
    first = random_slice(scores, W34, 0.05, 0)
    assert (first != random_slice(scores, W34.shift(1), 0.05, 0)).any()
    assert (first != random_slice(scores, W34, 0.05, 1)).any()
    assert not random_slice(scores, W34, 0.0, 0).any()
    with pytest.raises(UsageError, match="random share"):
        random_slice(scores, W34, 1.5, 0)


def test_a_filled_in_check_list_is_imported_as_it_is(world, tmp_path):
    result = world.compute("2026-W34", seed=0)
    path = write_check_lists(result, tmp_path)["csv"]
    with path.open() as file:
        lines = list(csv.DictReader(file))
    lines[0]["outcome"], lines[1]["outcome"] = "Confirmed ", "Not checked"
    with path.open("w") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    done = record_checks(world.ledger, read_checks(str(path)), by="ana")
    assert (done.added, done.empty, done.refused, done.conflicts) == (2, 1, [], [])
    rows = world.ledger.table("checks").set_index("outcome")
    assert (rows["source"] == "flag").all()
    assert (rows["publication_id"] == 1).all()


def test_a_check_carries_what_the_publication_said_of_the_pair(world, tmp_path):
    done = record(world, tmp_path, check(), check("S000", "K003", outcome="healthy", source="random"))
    assert (done.added, done.unlinked) == (2, 0)
    flagged, random = world.ledger.table("checks").to_dict("records")
    flag = world.ledger.flags(1, "S000").iloc[0]
    assert flagged["anomaly_probability"] == flag["anomaly_probability"]
    assert (flagged["cost_missed"], flagged["inclusion_probability"]) == (3.0, 1.0)
    scores = pd.read_parquet(world.run_folder(world.ledger.publications()[0]) / "scores.parquet")
    own = scores[(scores["store_id"] == "S000") & (scores["sku_id"] == "K003")]
    assert random["anomaly_probability"] == own["anomaly_probability"].item()


def test_the_same_file_again_changes_nothing(world, tmp_path):
    rows = [check(), check("S001", "K001", outcome="healthy", checked_by="bo")]
    assert record(world, tmp_path, *rows).added == 2
    head = world.ledger.head()
    again = record(world, tmp_path, *rows)
    assert (again.added, again.unchanged, world.ledger.head()) == (0, 2, head)


def test_another_outcome_is_a_conflict_that_is_named_and_not_recorded(world, tmp_path):
    record(world, tmp_path, check())
    done = record(world, tmp_path, check(outcome="healthy"), check("S001", "K001"))
    assert done.added == 1
    (conflict,) = done.conflicts
    assert conflict.key == "S000 K000 2026-W34"
    assert "confirmed (flag) is recorded, by ana; now healthy (flag)" in conflict.why
    assert len(world.ledger.table("checks")) == 2
    record(world, tmp_path, check("S002", "K002", checked_by="bo"))
    later = record(world, tmp_path, check("S002", "K002", outcome="healthy"))
    assert "is recorded, by bo; now" in later.conflicts[0].why


def test_a_correction_counts_and_the_first_outcome_stays_in_the_ledger(world, tmp_path):
    record(world, tmp_path, check())
    assert record(world, tmp_path, check(outcome="healthy"), correct=True).added == 1
    assert world.ledger.table("checks")["outcome"].tolist() == ["confirmed", "healthy"]
    assert newest_checks(world.ledger)["outcome"].tolist() == ["healthy"]
    assert world.ledger.verify() == []


def test_a_pair_that_was_not_checked_may_be_checked_later_but_not_unchecked(world, tmp_path):
    record(world, tmp_path, check(outcome="not_checked"))
    assert record(world, tmp_path, check(outcome="healthy")).added == 1
    assert len(record(world, tmp_path, check(outcome="not_checked")).conflicts) == 1


FAULTS = {
    "unknown outcome": (check(outcome="perhaps"), "unknown outcome"),
    "week": (check(week="soon"), "no week"),
    "store": (check(store=""), "no store id"),
    "source": (check(source="guess"), "unknown source"),
    "chosen by hand": (check("S000", "K003"), "neither flagged nor drawn at random"),
    "random but flagged": (check(source="random"), "flagged, so it cannot be"),
}


@pytest.mark.parametrize(("row", "why"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_row_is_refused_by_name_and_the_others_are_kept(world, tmp_path, row, why):
    done = record(world, tmp_path, {"source": None, **row}, {"source": None, **check("S001", "K001")})
    assert done.added == 1
    (refused,) = done.refused
    assert why in refused.why


def test_a_pair_that_is_there_twice_rejects_the_file(world, tmp_path):
    with pytest.raises(DataError, match="more than once"):
        record(world, tmp_path, check(), check(outcome="healthy"))
    assert len(world.ledger.table("checks")) == 0


def test_a_file_without_outcomes_is_named(tmp_path):
    path = write(tmp_path, [{"store_id": "S000", "sku_id": "K000", "week": "2026-W34"}])
    with pytest.raises(DataError, match="no column outcome"):
        read_checks(path)


def test_parquet_dates_and_guarded_ids_are_read(tmp_path):
    rows = [{**check(store="'=S0", sku="007"), "week": pd.Timestamp("2026-08-17")}]
    table = read_checks(write(tmp_path, rows, "checks.parquet"))
    assert table.rows[["store_id", "sku_id", "week"]].to_numpy().tolist() == [["=S0", "007", "2026-W34"]]


def test_checks_of_flags_that_were_not_published_are_kept_but_not_linked(world, tmp_path):
    done = record(
        world, tmp_path, check("S000", "K003", source="flag"), check(week="2020-W01", source="flag")
    )
    assert (done.added, done.unlinked) == (2, 2)
    assert world.ledger.table("checks")["publication_id"].isna().all()


def test_with_a_drawn_share_only_drawn_pairs_count_as_random(tmp_path):
    world = World.make(tmp_path / "home")
    result = world.compute("2026-W34")
    result.scores[DRAWN] = (result.scores["store_id"] == "S000") & (result.scores["sku_id"] == "K003")
    result.scores.to_parquet(result.folder / "scores.parquet", index=False)
    world.ledger.publish(result, by="ana", report=result.folder / "report.html")
    rows = [check("S000", "K003"), {**check("S000", "K002"), "source": "random"}]
    done = record(world, tmp_path, *rows)
    assert (done.added, done.unlinked) == (2, 1)
    drawn, chosen = world.ledger.table("checks").to_dict("records")
    assert (drawn["source"], drawn["inclusion_probability"]) == ("random", pytest.approx(1 / 9))
    assert np.isnan(chosen["anomaly_probability"])


def test_a_flag_of_a_superseded_publication_still_counts(world, tmp_path):
    result = world.compute("2026-W34", seed=1)
    result = replace(result, scores=result.scores.assign(flagged=False))
    world.ledger.publish(result, by="ana", report=result.folder / "report.html")
    record(world, tmp_path, check())
    assert world.ledger.table("checks")["publication_id"].tolist() == [1]


def command(world, monkeypatch, function, *arguments):
    monkeypatch.setenv("EW_HOME", str(world.settings.root))
    monkeypatch.setenv("EW_ACTOR", "eve")
    app = typer.Typer()
    app.command()(function)
    return CliRunner().invoke(app, list(arguments))


def test_the_commands_record_and_end_with_1_on_conflict(world, monkeypatch, tmp_path):
    pair = ["--store", "S000", "--sku", "K000", "--week", "2026-W34"]
    answer = command(world, monkeypatch, checks.add_check, *pair, "--outcome", "healthy", "--by", "bo")
    assert (answer.exit_code, "1 checks recorded" in answer.output) == (0, True)
    row = world.ledger.table("checks").iloc[0]
    assert (row["checked_by"], row["recorded_by"], row["source"]) == ("bo", "eve", "flag")
    path = write(tmp_path, [check()])
    answer = command(world, monkeypatch, checks.import_checks, path)
    assert answer.exit_code == 1
    assert "conflict  S000 K000 2026-W34" in answer.output
    assert "--correct" in answer.output
    told = json.loads(command(world, monkeypatch, checks.import_checks, path, "--correct", "--json").stdout)
    assert (told["added"], told["conflicts"]) == (1, [])


def test_a_single_check_is_read_like_a_row_of_a_file():
    table = one_check(**check(outcome="Healthy"), source=None, note=None)
    assert table.rows.to_dict("records") == [{**check(outcome="healthy"), "source": None, "note": None}]


def test_a_list_that_nobody_filled_in_is_no_fault(world, tmp_path):
    done = record(world, tmp_path, check(outcome=""), check("S001", "K001", outcome=""))
    assert (done.empty, done.added, done.refused) == (2, 0, [])
