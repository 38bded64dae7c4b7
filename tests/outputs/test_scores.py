"""The scores of a run as a file."""

from __future__ import annotations

import pandas as pd
import pytest
from support.factory import make_result

from ew_pipeline.core.errors import EwError
from ew_pipeline.outputs.scores import write_scores


def test_scores_come_back_as_they_are(tmp_path):
    scores = make_result(stores=3, skus=4).scores
    write_scores(scores, tmp_path / "scores.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "scores.parquet"), scores, check_dtype=False)


def test_a_disk_that_does_not_take_them_is_named(tmp_path):
    (tmp_path / "scores.parquet").mkdir()
    with pytest.raises(EwError, match=f"cannot write to {tmp_path}"):
        write_scores(make_result(stores=3, skus=4).scores, tmp_path / "scores.parquet")
