"""Tampering: whatever is edited, inserted or deleted behind the ledger's back is found and named."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from support.factory import make_result
from support.postgres import on_both

from ew_pipeline.core.provenance import canonical_json
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Head, Ledger, LedgerError, chain
from ew_pipeline.ledger.anchors import anchor_file
from ew_pipeline.ledger.connect import writing

W34, W35 = Week(2026, 34), Week(2026, 35)


def fill(ledger: Ledger, home) -> None:
    """Publications 1 and 2 of W34, 3 of W35 with twelve flags, a rollback 4, a champion, an alert."""
    for result in (
        make_result(home=home),
        make_result(home=home, seed=1),
        make_result(W35, home=home, stores=12, skus=5),
    ):
        ledger.publish(result, by="ana", report=result.folder / "report.html")
    ledger.rollback(W34, by="bo", why="wrong costs")
    ledger.promote(ledger.runs(W35)[0].run_id, by="ana", why="better")
    moment = "2026-11-16T12:00:00.000000+00:00"
    alert = {"week": W34, "segment": "all", "kind": "drift", "severity": "high", "words": "x"}
    ledger.append("alerts", [{**alert, "raised_at": moment}])
    assert ledger.verify() == []


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A home with a filled ledger, made once; tests copy it."""
    home = tmp_path_factory.mktemp("filled")
    with Ledger.open(f"sqlite:///{home / 'ledger.db'}", home=home) as ledger:
        fill(ledger, home)
    return home


@pytest.fixture
def filled(ledger_url, home, prepared):
    on_sqlite = ledger_url.startswith("sqlite")
    if on_sqlite:
        shutil.copytree(prepared, home, dirs_exist_ok=True)
    with Ledger.open(ledger_url, home=home) as ledger:
        if not on_sqlite:
            fill(ledger, home)
        yield ledger


def tamper(ledger: Ledger, *statements: str) -> None:
    """Change rows as someone with the database's password would; foreign keys do not stop them."""
    if ledger._engine.dialect.name == "sqlite":
        with closing(sqlite3.connect(ledger._engine.url.database)) as file, file:
            for statement in statements:
                file.execute(statement)
        return
    with ledger._engine.connect() as connection:
        connection.execute(text("SET session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement))
        connection.commit()


@dataclass(frozen=True)
class Case:
    statement: str
    kind: str
    table: str
    key: str


FLAG_COPY = (
    "INSERT INTO flag_rows SELECT {publication}, {position}, 'S9', 'K9', segment, units, expected_units,"
    " anomaly_probability, cost_false_alarm, cost_missed, threshold, expected_saving, store_rank, reasons,"
    " level, row_hash FROM flag_rows WHERE publication_id = 3 AND position = 0"
)
CASES = {
    "a flag's units": Case(
        "UPDATE flag_rows SET units = units + 1 WHERE publication_id = 3 AND position = 4",
        "edited",
        "flags",
        "3/4",
    ),
    "a flag's probability in the last bit": Case(
        "UPDATE flag_rows SET anomaly_probability = anomaly_probability * (1 - 2e-16)"
        " WHERE publication_id = 3 AND position = 0",
        "edited",
        "flags",
        "3/0",
    ),
    "a flag's level removed": Case(
        "UPDATE flag_rows SET level = NULL WHERE publication_id = 3 AND position = 11",
        "edited",
        "flags",
        "3/11",
    ),
    "a flag of a superseded publication": Case(
        "UPDATE flag_rows SET reasons = 'none' WHERE publication_id = 2 AND position = 1",
        "edited",
        "flags",
        "2/1",
    ),
    "a flag deleted": Case(
        "DELETE FROM flag_rows WHERE publication_id = 3 AND position = 5", "deleted", "flags", "3/5"
    ),
    "the last flag deleted": Case(
        "DELETE FROM flag_rows WHERE publication_id = 3 AND position = 11", "deleted", "flags", "3/11"
    ),
    "a flag inserted": Case(FLAG_COPY.format(publication=3, position=12), "inserted", "flags", "3/12"),
    "a flag inserted before the first": Case(
        FLAG_COPY.format(publication=3, position=-1), "inserted", "flags", "3/-1"
    ),
    "flags of no publication": Case(
        FLAG_COPY.format(publication=99, position=0), "inserted", "flags", "99/0"
    ),
    "a publication's time": Case(
        "UPDATE publications SET published_at = '2020-01-01T00:00:00.000000+00:00' WHERE id = 3",
        "edited",
        "publications",
        "3",
    ),
    "an override made up": Case(
        "UPDATE publications SET override_who = 'eve', override_why = 'x' WHERE id = 1",
        "edited",
        "publications",
        "1",
    ),
    "the last publication deleted": Case(
        "DELETE FROM publications WHERE id = 4", "deleted", "publications", "4"
    ),
    "a publication inserted": Case(
        "INSERT INTO publications SELECT 5, week, 9, kind, run_id, supersedes, source_id, published_at,"
        " published_by, override_who, override_why, reason, data_hash, config_hash, code_version,"
        " pairs_scored, flags_count, flags_hash, expected_saving, report, report_hash, scores,"
        " scores_hash, files"
        " FROM publications WHERE id = 4",
        "inserted",
        "publications",
        "5",
    ),
    "a report's hash": Case(
        "UPDATE publications SET report_hash = 'f' WHERE id = 2", "edited", "publications", "2"
    ),
    "the champion": Case(
        "UPDATE config_roles SET config_hash = 'f' WHERE id = 1", "edited", "config_roles", "1"
    ),
    "an alert deleted": Case("DELETE FROM alerts WHERE id = 1", "deleted", "alerts", "1"),
}


ON_POSTGRESQL = (
    "a flag's probability in the last bit",
    "a flag's level removed",
    "a flag deleted",
    "a publication's time",
    "the last publication deleted",
    "an alert deleted",
)


@pytest.mark.parametrize(
    ("ledger_url", "case"),
    [
        *(pytest.param("sqlite", case, id=f"{name}-sqlite") for name, case in CASES.items()),
        *(
            pytest.param("postgresql", CASES[name], id=f"{name}-postgresql", marks=pytest.mark.server)
            for name in ON_POSTGRESQL
        ),
    ],
    indirect=["ledger_url"],
)
def test_one_change_is_one_problem_that_names_the_row(filled, case):
    tamper(filled, case.statement)
    assert [(p.kind, p.table, p.key) for p in filled.verify()] == [(case.kind, case.table, case.key)]


def test_an_edited_flag_is_named_by_store_and_sku(filled):
    flag = filled.flags(3).iloc[4]
    tamper(filled, "UPDATE flag_rows SET units = 77 WHERE publication_id = 3 AND position = 4")
    (problem,) = filled.verify()
    assert f"flag {flag['store_id']} {flag['sku_id']} 2026-W35 (publication 3, row 4)" in problem.words


@pytest.mark.parametrize("column", ["status", "config", "gate", "code_version", "expected_saving"])
def test_an_edited_run_is_named(filled, column):
    run = filled.runs(W35)[0]
    value = "0" if column == "expected_saving" else "'x'"
    tamper(filled, f"UPDATE runs SET {column} = {value} WHERE run_id = '{run.run_id}'")
    assert [(p.kind, p.table, p.key) for p in filled.verify()] == [("edited", "runs", f"{run.run_id}/1")]


def test_an_edited_theta_is_named(filled):
    run = filled.runs(W35)[0]
    tamper(filled, f"UPDATE segments SET alpha = 0.5 WHERE run_id = '{run.run_id}' AND segment = 'pooled'")
    assert [(p.kind, p.key) for p in filled.verify()] == [("edited", f"{run.run_id}/pooled")]


SHARED = {
    "theta": (
        "UPDATE segments SET alpha = 0.5 WHERE run_id = '{run}' AND segment = 'all'",
        "segments",
        "{run}/all",
    ),
    "an MLflow run": ("UPDATE runs SET mlflow_run_id = 'x' WHERE run_id = '{run}'", "runs", "{run}/1"),
    "a code version": ("UPDATE publications SET code_version = 'x' WHERE id = 3", "publications", "3"),
}


@pytest.mark.parametrize("what", SHARED)
def test_what_flags_share_is_named_once_and_not_for_each_of_them(filled, what):
    statement, table, key = (text.format(run=filled.publication(3).run_id) for text in SHARED[what])
    tamper(filled, statement)
    assert [(p.kind, p.table, p.key) for p in filled.verify()] == [
        ("edited", table, key),
        ("broken", "flags", "3/all"),
    ]


@pytest.mark.parametrize("position", [0, 4, 11])
def test_a_flag_is_named_also_where_its_publication_was_edited(filled, position):
    tamper(
        filled,
        "UPDATE publications SET reason = 'x' WHERE id = 3",
        f"UPDATE flag_rows SET units = units + 1 WHERE publication_id = 3 AND position = {position}",
    )
    assert [(p.table, p.key) for p in filled.verify()] == [("publications", "3"), ("flags", f"3/{position}")]


def test_flags_that_were_all_forged_do_not_hide_behind_an_edited_run(filled):
    run = filled.publication(3).run_id
    tamper(
        filled,
        f"UPDATE runs SET recorded_by = 'x' WHERE run_id = '{run}'",
        "UPDATE flag_rows SET units = 99 WHERE publication_id = 3",
    )
    first, second = filled.verify()
    assert (first.table, second.table, second.key) == ("runs", "flags", "3/all")
    assert "the 12 flags of publication 3, segment all, cannot be checked" in second.words


def test_a_segment_that_is_gone_is_named_and_its_flags_once(filled):
    run = filled.publication(3).run_id
    tamper(filled, f"DELETE FROM segments WHERE run_id = '{run}' AND segment = 'all'")
    assert [(p.kind, p.table, p.key) for p in filled.verify()] == [
        ("deleted", "segments", f"{run}/all"),
        ("broken", "flags", "3/all"),
    ]


GAPS = {
    "no segment": ("DELETE FROM segments WHERE run_id = '{run}' AND segment = 'all'", "alpha"),
    "a segment of another name": (
        "UPDATE segments SET segment = 'x' WHERE run_id = '{run}' AND segment = 'all'",
        "noise",
    ),
    "a segment without its rank": ("UPDATE segments SET rank = NULL WHERE run_id = '{run}'", "rank"),
    "no run": ("DELETE FROM runs WHERE run_id = '{run}'", "mlflow_run_id"),
}


@pytest.mark.parametrize("what", GAPS)
def test_flags_do_not_vanish_with_a_row_that_they_share_columns_with(filled, what):
    statement, column = GAPS[what]
    tamper(filled, statement.format(run=filled.publication(3).run_id))
    words = r"(?s)12 flags \(publication 3, segment all\) lack what they share.*ew audit verify"
    with pytest.raises(LedgerError, match=words):
        filled.flags(3)
    with pytest.raises(LedgerError, match=words):
        filled.table("flags")
    assert len(filled.flags(1)) == len(filled.table("flags", publication_id=1)) == 3
    with filled._engine.connect() as connection:  # a person's own query sees them, and the gap
        asked = f"SELECT {column} FROM flags WHERE publication_id = 3"
        assert connection.execute(text(asked)).scalars().all() == [None] * 12


@on_both
def test_what_is_read_is_what_is_verified_whatever_the_view_says(filled):
    """The view is for people's own queries; whoever can write to the database can replace it."""
    before = filled.flags(3)
    tamper(filled, "DROP VIEW flags", "CREATE VIEW flags AS SELECT 1 AS units")
    pd.testing.assert_frame_equal(filled.flags(3), before)
    assert len(filled.table("flags", publication_id=3)) == len(before)
    assert filled.verify() == []


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_a_switch_that_holds_seven_does_not_pass_for_yes(filled):
    tamper(filled, "UPDATE segments SET identified = 7 WHERE segment = 'pooled'")
    assert {p.kind for p in filled.verify()} == {"edited"}


@pytest.mark.parametrize("value", ["x'00ff'", "CAST(x'ff' AS TEXT)"], ids=["bytes", "broken text"])
@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_values_that_are_no_text_are_findings(filled, value):
    tamper(filled, f"UPDATE flag_rows SET store_id = {value} WHERE publication_id = 3 AND position = 4")
    assert [(p.kind, p.key) for p in filled.verify()] == [("edited", "3/4")]


@on_both
def test_all_flags_of_a_publication_deleted(filled):
    tamper(filled, "DELETE FROM flag_rows WHERE publication_id = 1")
    assert [(p.kind, p.key) for p in filled.verify()] == [("deleted", f"1/{n}") for n in range(3)]


def test_two_flags_that_change_places_are_found(filled):
    tamper(
        filled,
        "UPDATE flag_rows SET position = 100 WHERE publication_id = 3 AND position = 2",
        "UPDATE flag_rows SET position = 2 WHERE publication_id = 3 AND position = 3",
        "UPDATE flag_rows SET position = 3 WHERE publication_id = 3 AND position = 100",
    )
    assert {p.key for p in filled.verify()} >= {"3/2", "3/3"}


@on_both
def test_flags_hashed_anew_do_not_match_their_publication(filled):
    """The forger edits a flag and makes all row hashes of the publication fit again."""
    rows = filled.table("flags", publication_id=3).to_dict("records")
    rows[0]["units"] = 55
    publication = filled.publication(3)
    start = chain.flags_start(3, str(publication.week), publication.run_id)
    for row in rows:
        row.pop("row_hash")
    forged = chain.chain_flags(start, map(chain.record_text, rows))
    tamper(
        filled,
        "UPDATE flag_rows SET units = 55 WHERE publication_id = 3 AND position = 0",
        *(
            f"UPDATE flag_rows SET row_hash = '{row_hash}' WHERE publication_id = 3 AND position = {number}"
            for number, row_hash in enumerate(forged)
        ),
    )
    assert [(p.kind, p.table, p.key) for p in filled.verify()] == [("edited", "flags", "3")]


@pytest.mark.parametrize(
    ("statements", "seq"),
    [
        (["UPDATE chain SET record_hash = 'f' WHERE seq = 5"], "5"),
        (["UPDATE chain SET record_key = 'f' WHERE seq = 5"], "5"),
        (["DELETE FROM chain WHERE seq = 5"], "5"),
        (
            [
                "UPDATE chain SET seq = -1 WHERE seq = 5",
                "UPDATE chain SET seq = 5 WHERE seq = 6",
                "UPDATE chain SET seq = 6 WHERE seq = -1",
            ],
            "5",
        ),
    ],
    ids=["hash", "key", "deleted", "reordered"],
)
def test_a_chain_that_was_touched_is_broken_there(filled, statements, seq):
    tamper(filled, *statements)
    assert ("broken", "chain", seq) in [(p.kind, p.table, p.key) for p in filled.verify()]


def test_a_link_forged_with_its_own_hash_does_not_fit_the_next(filled):
    link = filled.table("chain", seq=5).iloc[0]
    made = chain.link_hash(5, link["table_name"], link["record_key"], "f" * 64, link["previous_hash"])
    tamper(filled, f"UPDATE chain SET record_hash = '{'f' * 64}', hash = '{made}' WHERE seq = 5")
    words = [problem.words for problem in filled.verify() if problem.table == "chain"]
    assert any("does not follow link 5" in one for one in words)


def cut_last_link(ledger: Ledger) -> None:
    """Remove the alert and its link, and let the head point at the link before: a clean cut."""
    last = ledger.head().seq
    tamper(
        ledger,
        "DELETE FROM alerts",
        f"DELETE FROM chain WHERE seq = {last}",
        f"UPDATE chain_head SET seq = {last - 1}, hash = (SELECT hash FROM chain WHERE seq = {last - 1})",
    )


def test_a_clean_cut_is_found_by_the_anchor_file(filled):
    cut_last_link(filled)
    assert [(p.kind, p.table) for p in filled.verify()] == [("truncated", "chain")]


def test_a_clean_cut_is_found_by_a_head_kept_elsewhere(filled, home):
    head = filled.head()
    cut_last_link(filled)
    anchor_file(home, head.ledger_id).unlink()
    assert filled.verify() == []  # what nobody remembers cannot be missed
    (problem,) = filled.verify(expected=head)
    assert problem.kind == "truncated"
    assert "the expected head" in problem.words


def test_a_head_kept_elsewhere_holds_after_more_was_written(filled, home):
    head = filled.head()
    result = make_result("2026-W36", home=home)
    filled.publish(result, by="ana", report=result.folder / "report.html")
    assert filled.verify(expected=head) == []
    (problem,) = filled.verify(expected=Head(head.ledger_id, head.seq, "f" * 64))
    assert (problem.kind, problem.key) == ("broken", str(head.seq))


def test_a_history_written_anew_is_found_by_the_anchor_file(filled):
    """The forger edits a run and hashes the whole chain again, head and all."""
    run = filled.runs(W35)[0]
    tamper(filled, f"UPDATE runs SET status = 'failed' WHERE run_id = '{run.run_id}'")
    row = filled.table("runs", run_id=run.run_id).astype(object).iloc[0]
    row = row.where(row.notna(), None).to_dict()
    links = filled.table("chain").to_dict("records")
    previous = chain.genesis(filled.head().ledger_id)
    statements = []
    for link in links:
        if (link["table_name"], link["record_key"]) == ("runs", f"{run.run_id}/1"):
            link["record_hash"] = chain.record_hash(row)
        seq, name, key, hashed = (link[n] for n in ("seq", "table_name", "record_key", "record_hash"))
        made = chain.link_hash(seq, name, key, hashed, previous)
        statements.append(
            f"UPDATE chain SET record_hash = '{hashed}', previous_hash = '{previous}', hash = '{made}'"
            f" WHERE seq = {seq}"
        )
        previous = made
    tamper(filled, *statements, f"UPDATE chain_head SET hash = '{previous}'")
    problems = filled.verify()
    assert problems
    assert {p.kind for p in problems} == {"broken"}
    assert all("anchor file" in p.words for p in problems)


def test_a_head_that_was_touched_is_found(filled):
    tamper(filled, "UPDATE chain_head SET seq = seq + 1")
    assert [(p.kind, p.table) for p in filled.verify()] == [("truncated", "chain_head")]


def test_a_head_that_is_gone_is_found_and_stops_writing(filled, home):
    tamper(filled, "DELETE FROM chain_head")
    assert ("broken", "chain_head") in [(p.kind, p.table) for p in filled.verify()]
    with pytest.raises(LedgerError, match=r"(?s)lost the end of its chain.*ew audit verify"):
        filled.rollback(W35, by="ana", why="x")


def test_a_line_of_the_anchor_file_cut_short_by_a_crash_is_passed_over(filled, home):
    with anchor_file(home, filled.head().ledger_id).open("a") as file:
        file.write('{"at": "2026-')
    assert filled.verify() == []


def test_another_ledger_in_its_place_is_found(filled, home):
    with Ledger.open(f"sqlite:///{home / 'other.db'}") as other:
        (problem, missing) = other.verify(expected=filled.head())
    assert "this is ledger" in problem.words
    assert missing.kind == "truncated"


@on_both
def test_a_column_added_later_leaves_old_rows_verified(filled):
    with writing(filled._engine) as connection:
        connection.execute(text("ALTER TABLE runs ADD COLUMN weather TEXT"))
    assert filled.verify() == []
    assert chain.record_hash({"a": 1, "b": None}) == chain.record_hash({"a": 1})


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.one_of(
            st.text(max_size=10),
            st.integers(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.booleans(),
        ),
    )
)
def test_a_record_is_hashed_as_its_canonical_json(row):
    assert chain.record_text(row) == canonical_json(row)


@given(
    st.lists(st.fixed_dictionaries({"units": st.integers(0, 5), "store_id": st.text(max_size=3)}), min_size=2)
)
def test_the_flags_hash_depends_on_every_row_and_their_order(rows):
    def last(rows, start="start"):
        return chain.chain_flags(start, map(chain.record_text, rows))[-1]

    whole = last(rows)
    assert last(rows[:-1]) != whole
    assert last([*rows[:-1], {**rows[-1], "units": 6}]) != whole
    assert last(rows, "other start") != whole
    if rows[0] != rows[1]:
        assert last([rows[1], rows[0], *rows[2:]]) != whole
