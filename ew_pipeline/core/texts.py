"""Text of many rows by column: Arrow joins the pieces outside of Python, without an object per cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Float

MOST_KEYS = 1 << 20  # of which a table is made
TEXT = pa.large_string()  # a hundred million bytes of lists are not rare, and other texts end at two billion


def text_column(column: pd.Series[Any]) -> pa.Array:
    """A column of any type as texts."""
    return coded_column(column).dictionary_decode()


def coded_column(column: pd.Series[Any]) -> pa.DictionaryArray:
    """A column of any type as texts that stand once, and which of them each row has."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return pa.array(plain_texts(column), TEXT).dictionary_encode()
    names = pa.array([str(name) for name in column.cat.categories.to_numpy(dtype=object)], TEXT)
    codes = pa.array(column.cat.codes.to_numpy())
    if len(names) > len(codes):  # few rows of a large chain: what none of them has is left out
        return names.take(codes).dictionary_encode()
    return pa.DictionaryArray.from_arrays(codes.cast(pa.int32()), names)


def plain_texts(column: pd.Series[Any]) -> list[str]:
    """A column of any type as Python texts; by far the quickest way out of pandas' own text arrays."""
    return [str(value) for value in column.to_numpy(dtype=object)]


def each_once(texts: pa.Array, write: Callable[[str], str]) -> pa.Array:
    """``write`` of every text, called once for each distinct one: ids and reasons repeat."""
    coded = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    return pa.array([write(text) for text in coded.dictionary.to_pylist()], TEXT).take(coded.indices)


def alike(values: Float, keys: NDArray[Any], write: Callable[[float], str]) -> pa.Array:
    """``write`` of every number, called once for those that share a key: to the eye, few differ."""
    if not values.size:
        return pa.array([], TEXT)
    low, span = keys.min(), keys.max() - keys.min()
    if span < MOST_KEYS:  # a table of them is quicker than sorting
        number = (keys - low).astype(np.int64)
        example = np.full(int(span) + 1, -1, dtype=np.int64)
        example[number] = np.arange(number.size)
        first = example[example >= 0]
        place = (np.cumsum(example >= 0) - 1)[number]
    else:
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    texts = pa.array([write(value) for value in values[first].tolist()], TEXT)
    return texts.take(pa.array(place))


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
