"""Flags by column give the rows, and the texts in the chain, that flags row by row would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.publish.ledger.chain import record_text
from ew_pipeline.publish.ledger.flag_table import FlagTable

NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)
TEXTS = st.text(max_size=4)


@given(
    st.lists(st.tuples(TEXTS, st.integers(0, 3), NUMBERS, st.none() | NUMBERS), max_size=12),
    st.fixed_dictionaries({"run_id": TEXTS, "100%s": NUMBERS, "flow_run_id": st.none() | TEXTS}),
)
def test_texts_and_tuples_are_those_of_the_rows(flags, shared):
    names = ("store_id", "units", "expected_units", "level")
    own = {name: [row[place] for row in flags] for place, name in enumerate(names)}
    table = FlagTable(len(flags), shared, own)
    rows = [{**shared, **dict(zip(names, row, strict=True))} for row in flags]
    assert list(table.texts()) == [record_text(row) for row in rows]
    order = ("level", "100%s", "units", "run_id", "store_id", "flow_run_id", "expected_units")
    assert list(table.tuples(order)) == [tuple(row[name] for name in order) for row in rows]


def test_rows_that_share_everything_are_written_all_the_same():
    table = FlagTable(2, {"week": "2026-W34"}, {})
    assert list(table.texts()) == [record_text({"week": "2026-W34"})] * 2
