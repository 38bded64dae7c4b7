"""Text of many rows by column: Arrow joins the pieces outside of Python, without an object per cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ew_pipeline.algorithm.types import Float

TEXT = pa.large_string()  # a hundred million bytes of lists are not rare, and other texts end at two billion


def text_column(column: pd.Series[Any]) -> pa.Array:
    """A column of any type as texts."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = pa.array([str(name) for name in column.cat.categories], TEXT)
        return names.take(pa.array(column.cat.codes.to_numpy()))
    return pa.array(plain_texts(column), TEXT)


def plain_texts(column: pd.Series[Any]) -> list[str]:
    """A column of any type as Python texts; by far the quickest way out of pandas' own text arrays."""
    return [str(value) for value in column.to_numpy(dtype=object)]


def each_once(texts: pa.Array, write: Callable[[str], str]) -> pa.Array:
    """``write`` of every text, called once for each distinct one: ids and reasons repeat."""
    coded = texts.dictionary_encode()
    return pa.array([write(text) for text in coded.dictionary.to_pylist()], TEXT).take(coded.indices)


def whole_texts(values: pa.Array) -> pa.Array:
    """Whole numbers as decimal digits."""
    return pc.cast(values, TEXT)


def number_texts(values: Float) -> pa.Array:
    """Each number as JSON, with the fewest digits that say it."""
    if not values.size:
        return pa.array([], TEXT)
    written = orjson.dumps(np.ascontiguousarray(values, np.float64), option=orjson.OPT_SERIALIZE_NUMPY)
    return pc.split_pattern(pa.array([written[1:-1].decode()], TEXT), ",").flatten()


def joined(*pieces: pa.Array | str, between: str = "") -> pa.Array:
    """The pieces of each row as one text; a ``str`` is the same in all rows."""
    scalars = (pa.scalar(piece, TEXT) if isinstance(piece, str) else piece.cast(TEXT) for piece in pieces)
    return pc.binary_join_element_wise(*scalars, pa.scalar(between, TEXT))


def json_objects(fields: Mapping[str, pa.Array], after: str) -> pa.Array:
    """An object per row, from its fields as JSON; ``after`` stands behind each."""
    pieces: list[pa.Array | str] = []
    for name, texts in fields.items():
        pieces += [("," if pieces else "{") + json_text(name) + ":", texts]
    return joined(*pieces, "}" + after)


def json_text(value: object) -> str:
    """One value as compact JSON."""
    return orjson.dumps(value).decode()


def content(texts: pa.Array) -> tuple[memoryview, NDArray[np.int64]]:
    """All texts as one run of bytes, and where each begins and the last one ends."""
    texts = texts.cast(TEXT)
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    whole = memoryview(data if data is not None else b"")[offsets[0] : offsets[-1]]
    return whole, offsets - offsets[0]
