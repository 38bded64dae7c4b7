"""Texts by column are those that Python would write row by row."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.core.texts import each_once, number_texts, text_column


@given(st.lists(st.floats(allow_nan=False)))
def test_numbers_are_those_that_json_writes(values):
    written = [json.loads(text) for text in number_texts(np.array(values, dtype=np.float64)).to_pylist()]
    assert written == [value if np.isfinite(value) else None for value in values]


def test_a_text_that_repeats_is_written_once():
    asked = []
    written = each_once(pa.array(["b", "a", "b", "b"]), lambda text: asked.append(text) or text.upper())
    assert (written.to_pylist(), asked) == (["B", "A", "B", "B"], ["b", "a"])


@pytest.mark.parametrize("kind", ["object", "category", "str"])
def test_every_kind_of_column_gives_its_texts(kind):
    column = pd.Series(["7", "Zürich", "7"], dtype=kind).iloc[[2, 1, 0]]
    assert text_column(column).to_pylist() == ["7", "Zürich", "7"]
