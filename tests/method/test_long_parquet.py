import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.core.errors import DataError
from ew_pipeline.method.long_parquet import sales_from_parquet
from ew_pipeline.method.sales_matrix import SalesMatrix


def drawn(seed, pairs=60, weeks=("2026-W30",), integer_ids=False):
    rng = np.random.default_rng(seed)
    keys = rng.choice(400, pairs, replace=False)
    stores, skus = keys // 20, keys % 20
    frame = pd.DataFrame({"store_id": stores, "sku_id": skus, "units": rng.poisson(3.0, pairs)})
    if not integer_ids:
        frame["store_id"] = "S" + frame["store_id"].astype(str)
        frame["sku_id"] = "K" + frame["sku_id"].astype(str)
    return pd.concat([frame.assign(week=week) for week in weeks], ignore_index=True).sample(
        frac=1.0, random_state=seed
    )


def same(one, other):
    assert one.shape == other.shape
    assert one.week == other.week
    for name in ("indptr", "cols", "counts", "store_ids", "sku_ids"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@given(
    seed=st.integers(0, 999),
    pairs=st.integers(1, 200),
    rows_a_group=st.integers(1, 50),
    weeks=st.sampled_from([("2026-W30",), ("2026-W29", "2026-W30"), ("2026-W30", "2026-W31")]),
    integer_ids=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_it_is_the_matrix_of_the_same_frame(tmp_path_factory, seed, pairs, rows_a_group, weeks, integer_ids):
    frame = drawn(seed, pairs, weeks, integer_ids)
    path = tmp_path_factory.mktemp("long") / "sales.parquet"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=rows_a_group)
    same(sales_from_parquet(path, "2026-W30"), SalesMatrix.from_long(frame, "2026-W30"))


def test_without_a_week_column_the_week_is_the_label(tmp_path):
    frame = drawn(1).drop(columns="week")
    frame.to_parquet(tmp_path / "sales.parquet", index=False)
    same(
        SalesMatrix.from_parquet(tmp_path / "sales.parquet", "2026-W30"),
        SalesMatrix.from_long(frame, "2026-W30"),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"store_id": None}, "no store_id"),
        ({"sku_id": ""}, "sku_id is empty"),
        ({"units": -1}, "negative"),
        ({"week": "2026-W31"}, "holds 2 weeks"),
        ({"store_id": "S1", "sku_id": "K1"}, "more than once|twice|repeated|times"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, change, message):
    frame = drawn(2, pairs=300).reset_index(drop=True)
    frame.loc[:1, list(change)] = list(change.values())
    frame.to_parquet(tmp_path / "sales.parquet", index=False)
    with pytest.raises(DataError, match=message):
        sales_from_parquet(tmp_path / "sales.parquet")


def test_a_week_that_is_not_there_and_an_empty_table_are_named(tmp_path):
    drawn(3).to_parquet(tmp_path / "sales.parquet", index=False)
    with pytest.raises(DataError, match="no row is of week 2026-W01; the weeks in the table are: 2026-W30"):
        sales_from_parquet(tmp_path / "sales.parquet", "2026-W01")
    drawn(3).iloc[:0].to_parquet(tmp_path / "empty.parquet", index=False)
    with pytest.raises(DataError, match="no rows"):
        sales_from_parquet(tmp_path / "empty.parquet")
