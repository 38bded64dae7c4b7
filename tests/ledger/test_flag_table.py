"""Flags by column give the rows, and the texts in the chain, that flags row by row would."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from support.factory import make_result

from ew_pipeline.ledger import tables
from ew_pipeline.ledger.chain import record_text
from ew_pipeline.ledger.flags import (
    OF_PUBLICATION,
    OF_RUN,
    OF_SEGMENT,
    FlagTable,
    flag_table,
    flags,
)
from ew_pipeline.ledger.writing import sqlite_insert

NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)
TEXTS = st.text(max_size=4)


@given(
    st.lists(st.tuples(TEXTS, st.integers(0, 3), NUMBERS, st.none() | NUMBERS), max_size=12),
    st.fixed_dictionaries({"run_id": TEXTS, "100%s": NUMBERS, "flow_run_id": st.none() | TEXTS}),
)
def test_texts_and_tuples_are_those_of_the_rows(flags, shared):
    names = ("store_id", "units", "expected_units", "level")
    kinds = (pa.string(), pa.int64(), pa.float64(), pa.float64())
    own = {name: pa.array([row[k] for row in flags], kinds[k]) for k, name in enumerate(names)}
    table = FlagTable(len(flags), shared, own)
    rows = [{**shared, **dict(zip(names, row, strict=True))} for row in flags]
    assert list(table.texts()) == [record_text(row) for row in rows]
    order = ("level", "100%s", "units", "run_id", "store_id", "flow_run_id", "expected_units")
    assert list(table.tuples(order)) == [tuple(row[name] for name in order) for row in rows]


def test_rows_that_share_everything_are_written_all_the_same():
    table = FlagTable(2, {"week": "2026-W34"}, {})
    assert list(table.texts()) == [record_text({"week": "2026-W34"})] * 2


SHARED = st.none() | TEXTS | st.integers(-(2**40), 2**40) | NUMBERS


@example({"run_id": "it's\x00"}, "S1", 0.0)
@given(st.dictionaries(st.sampled_from(["run_id", "alpha", "week"]), SHARED), TEXTS, NUMBERS)
def test_what_flags_share_arrives_as_if_it_was_bound(shared, store, expected):
    own = {"store_id": pa.array([store, "S2"]), "expected_units": pa.array([expected, 2.5])}
    names = [*shared, *own]
    statement, bound = sqlite_insert(names, shared)
    table = FlagTable(2, shared, own)
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE flag_rows ({', '.join(names)})")
    connection.executemany(statement, table.tuples(bound))
    found = connection.execute(f"SELECT {', '.join(names)} FROM flag_rows ORDER BY rowid").fetchall()
    connection.close()
    assert found == list(table.tuples(names))


def test_a_flag_binds_its_own_values_and_few_of_those_it_shares():
    result = make_result(stores=3, skus=4)
    table = flag_table(replace(result, scores=result.scores.assign(flagged=True)), 1)
    names = [column.name for column in tables.flag_rows.columns]
    _, bound = sqlite_insert(names, {**table.shared, "row_hash": None})
    fractions = {name for name in names if isinstance(table.shared.get(name), float)}
    assert set(bound) == {*table.own, *fractions}
    assert not {"publication_id", "segment"} & set(bound)


def test_what_flags_share_is_not_in_their_rows():
    table = flag_table(make_result(stores=3, skus=4), 1)
    assert {column.name for column in flags.columns} == {*table.shared, *table.own, "row_hash"}
    own = {column.name for column in tables.flag_rows.columns}
    assert not own & {*OF_PUBLICATION, *OF_RUN, *OF_SEGMENT}
    assert own | {*OF_PUBLICATION, *OF_RUN, *OF_SEGMENT} == {column.name for column in flags.columns}
