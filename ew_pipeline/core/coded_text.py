"""A column of texts as codes: ten million rows name a few thousand stores, and only those become Python's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ew_pipeline.core.errors import DataError, name_some

Texts = NDArray[np.str_]
Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class CodedText:
    """The distinct texts, and which of them each row has."""

    texts: Texts
    codes: Codes

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> CodedText:
        """Of a column without missing values; numbers and dates as their text."""
        if not pa.types.is_dictionary(column.type):
            encoded = column.dictionary_encode()  # each value becomes a text once
            chunks = [_as_text(chunk) for chunk in encoded.chunks]
        else:
            chunks = [_as_text(chunk) for chunk in column.unify_dictionaries().chunks]
        if not chunks:
            return cls(np.empty(0, dtype=np.str_), np.empty(0, dtype=np.int32))
        texts = _texts(chunks[0].dictionary.to_pylist())
        if texts.size == 1:  # as weeks mostly are: every row has the same, and none is kept for it
            return cls(texts, np.broadcast_to(np.int32(0), len(column)))
        codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks]
        return cls(texts, np.concatenate(codes, dtype=np.int32))

    def kept(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> CodedText:
        """The same of some rows."""
        return CodedText(self.texts, self.codes[rows])

    def used(self) -> Texts:
        """The texts that some row has, sorted."""
        seen = np.zeros(self.texts.size, dtype=np.bool_)
        seen[self.codes] = True
        return np.unique(self.texts[seen])

    def places(self, ids: Texts) -> Codes:
        """Of each row, where its text is among the sorted ``ids``; a row whose text is not there is an error.

        A text that no row has need not be there.
        """
        found = np.searchsorted(ids, self.texts).astype(np.int32)
        there = np.zeros(found.size, dtype=np.bool_)
        inside = found < ids.size
        there[inside] = ids[found[inside]] == self.texts[inside]
        places = np.where(there, found, np.int32(-1))[self.codes]
        if not there.all() and places.size and places.min() < 0:
            strange = np.setdiff1d(self.used(), ids)
            raise DataError(
                f"{strange.size} ids are not among those that were agreed on: "
                f"{name_some(strange, strange.size)}."
            )
        return np.asarray(places)

    def in_order(self) -> CodedText:
        """With the texts that are used alone, sorted."""
        used = self.used()
        return CodedText(used, self.places(used))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts, as they are or as codes."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _texts(found: list[str]) -> Texts:
    ending = [text for text in found if text.endswith("\0")]
    if ending:  # in an array of texts it would be lost, and two ids might become one
        raise DataError(
            f"{len(ending)} texts end in a NUL character: {name_some(map(repr, ending), len(ending))}.",
            "export them without padding.",
        )
    return np.array(found, dtype=np.str_)


def _as_text(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    if pa.types.is_string(chunk.dictionary.type):
        return chunk
    return pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
