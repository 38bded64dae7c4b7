"""Texts by column are those that Python would write row by row."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.publish.text_columns import (
    content,
    each_once,
    json_objects,
    json_text,
    number_texts,
    text_column,
    whole_texts,
)

ROWS = st.lists(st.tuples(st.text(max_size=4), st.integers(-9, 9), st.floats(allow_nan=False)), max_size=9)


@given(ROWS)
def test_objects_are_those_of_the_rows(rows):
    ids, units, savings = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    fields = {
        "store_id": each_once(pa.array(ids, pa.string()), json_text),
        "units": whole_texts(pa.array(units, pa.int64())),
        "saving": number_texts(np.array(savings, dtype=np.float64)),
    }
    written = json_objects(fields, "\n")
    finite = [value if np.isfinite(value) else None for value in savings]
    assert [json.loads(text) for text in written.to_pylist()] == [
        {"store_id": store, "units": unit, "saving": saving}
        for store, unit, saving in zip(ids, units, finite, strict=True)
    ]
    text, begins = content(written)
    cut = [bytes(text[first:last]).decode() for first, last in pairwise(begins)]
    assert cut == written.to_pylist()


def test_content_is_that_of_a_slice_alone():
    text, begins = content(pa.array(["ab", "cde", "f", "gh"]).slice(1, 2))
    assert (bytes(text), begins.tolist()) == (b"cdef", [0, 3, 4])


def test_a_text_that_repeats_is_written_once():
    asked = []
    written = each_once(pa.array(["b", "a", "b", "b"]), lambda text: asked.append(text) or text.upper())
    assert (written.to_pylist(), asked) == (["B", "A", "B", "B"], ["b", "a"])


@pytest.mark.parametrize("kind", ["object", "category", "str"])
def test_every_kind_of_column_gives_its_texts(kind):
    column = pd.Series(["7", "Zürich", "7"], dtype=kind).iloc[[2, 1, 0]]
    assert text_column(column).to_pylist() == ["7", "Zürich", "7"]
