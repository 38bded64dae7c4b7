"""The scores of a run as a file: a row per scored pair, ten million of them for a national chain."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ew_pipeline.data._disk import writing_to

BLOCK_SCORES = "scores"  # the folder of a week by row blocks, with a file for each block
# No two pairs share these, so a dictionary would only be built to be thrown away; split into the streams of
# their bytes they take half the space.
CONTINUOUS = ("expected_units", "level", "posterior", "anomaly_probability", "expected_saving")


def write_scores(scores: pd.DataFrame, path: Path) -> None:
    """Write them as parquet."""
    continuous = [name for name in CONTINUOUS if name in scores]
    repeated = [
        str(name)
        for name in scores.columns
        if name not in continuous and not pd.api.types.is_bool_dtype(scores[name])
    ]
    with writing_to(path.parent):
        scores.to_parquet(
            path,
            index=False,
            compression="zstd",
            use_dictionary=repeated,
            use_byte_stream_split=continuous,
            write_statistics=["store_id"],  # by which a pair is looked up; of the others nobody asks
        )
