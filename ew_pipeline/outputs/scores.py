"""The scores of a run as a file: a row per scored pair, ten million of them for a national chain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ew_pipeline.core.files import writing_to

BLOCK_SCORES = "scores"  # the folder of a week by row blocks, with a file for each block
# No two pairs share these, so a dictionary would only be built to be thrown away; split into the streams of
# their bytes they take half the space.
CONTINUOUS = ("expected_units", "level", "posterior", "anomaly_probability", "expected_saving")


def write_scores(scores: pd.DataFrame, path: Path) -> None:
    """Write them as parquet."""
    with writing_to(path.parent):
        scores.to_parquet(path, index=False, **_layout(scores))


class ScoresInParts:
    """The same file, of which only a part is at hand at a time. Stores and SKUs have the same categories in
    all parts; texts may differ."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: pq.ParquetWriter | None = None

    def add(self, scores: pd.DataFrame) -> None:
        table = _wide(pa.Table.from_pandas(scores, preserve_index=False))
        with writing_to(self.path.parent):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self.path, table.schema, **_layout(scores))
            self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            with writing_to(self.path.parent):
                self._writer.close()


@contextmanager
def scores_in_parts(path: Path) -> Iterator[ScoresInParts]:
    """Open while the block runs; a file that was not finished is not left behind."""
    file = ScoresInParts(path)
    try:
        yield file
        file.close()
    except BaseException:
        with suppress(Exception):  # what went wrong first is what is said
            file.close()
        path.unlink(missing_ok=True)
        raise


def _layout(scores: pd.DataFrame) -> dict[str, Any]:
    continuous = [name for name in CONTINUOUS if name in scores]
    repeated = [
        str(name)
        for name in scores.columns
        if name not in continuous and not pd.api.types.is_bool_dtype(scores[name])
    ]
    return {
        "compression": "zstd",
        "use_dictionary": repeated,
        "use_byte_stream_split": continuous,
        "write_statistics": ["store_id"],  # by which a pair is looked up; of the others nobody asks
    }


def _wide(table: pa.Table) -> pa.Table:
    """With codes of 32 bits: pandas takes as few as the texts of a part need, and parts would differ."""
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            whole = table.column(at).combine_chunks()
            codes = whole.indices.cast(pa.int32())
            coded = pa.DictionaryArray.from_arrays(codes, whole.dictionary, ordered=field.type.ordered)
            table = table.set_column(at, pa.field(field.name, coded.type), coded)
    return table
