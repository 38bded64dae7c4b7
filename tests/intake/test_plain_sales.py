"""Parquet that needs no database: the same columns as by way of it, and given up at the first doubt."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.core.schema import SALES
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake import expectations
from ew_pipeline.intake import read as ingesting
from ew_pipeline.intake import tables as module
from ew_pipeline.intake.assemble import prepare
from ew_pipeline.intake.contract import ContractRejected
from ew_pipeline.intake.tables import as_frame, open_table, plain_sales, week_texts
from ew_pipeline.results import WeekRequest

WEEK = Week(2026, 34)
BEFORE = WEEK.shift(-1)


def sold(**changes):
    """Two stores and two SKUs in two weeks, rows out of order."""
    frame = pd.DataFrame(
        {
            "store_id": ["b", "a", "b", "a", "a"],
            "sku_id": ["x", "y", "y", "x", "x"],
            "week": [str(WEEK)] * 4 + [str(BEFORE)],
            "units": [3, 0, 1, 2, 7],
        }
    )
    return frame.assign(**changes)


def read(folder, frame, window=(BEFORE, WEEK), **writing):
    table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, folder / "sales.parquet", **writing)
    return opened(str(folder / "sales.parquet"), window)


def opened(spec, window=(BEFORE, WEEK)):
    with duckdb.connect() as connection:
        sales = open_table(SALES, spec, connection)
        return plain_sales(sales, week_texts(sales, "week"), window)


def test_rows_come_by_week_store_and_sku(tmp_path):
    found = read(tmp_path, sold())
    assert list(found) == [BEFORE, WEEK]
    now = pd.DataFrame(dict(found[WEEK]))
    assert now.astype({"units": int}).values.tolist() == [
        ["a", "x", str(WEEK), 2],
        ["a", "y", str(WEEK), 0],
        ["b", "x", str(WEEK), 3],
        ["b", "y", str(WEEK), 1],
    ]
    assert found[WEEK]["units"].dtype == np.int32
    assert found[BEFORE]["store_id"].categories.tolist() == ["a"]  # of the week alone


def test_flags_stay_with_their_pair(tmp_path):
    found = read(tmp_path, sold(promo=[True, False, False, True, False], holiday=[0, 1, 0, 0, 1]))
    assert found[WEEK]["promo"].tolist() == [1, 0, 1, 0]
    assert found[WEEK]["holiday"].tolist() == [0, 1, 0, 0]
    assert found[WEEK]["promo"].dtype == np.uint8


@pytest.mark.parametrize(
    "changes",
    [
        {"store_id": ["b", None, "b", "a", "a"]},
        {"sku_id": ["x", " ", "y", "x", "x"]},
        {"units": [3, -1, 1, 2, 7]},
        {"units": [3, 0.5, 1, 2, 7]},
        {"units": [3, np.nan, 1, 2, 7]},
        {"units": [3, np.inf, 1, 2, 7]},
        {"units": [3, 2**31, 1, 2, 7]},
        {"sku_id": ["x", "x", "y", "x", "x"]},
        {"week": [str(WEEK)] * 4 + ["soon"]},
        {"week": [str(WEEK)] * 4 + [None]},
        {"promo": [True, None, False, True, False]},
        {"promo": [1, 2, 0, 0, 0]},
        {"promo": [1.0, -0.0, 0.0, 0.0, 0.0]},
        {"store_id": ["b", "a\0", "b", "a", "a"]},
        {"holiday": ["yes", "no", "no", "no", "no"]},
    ],
    ids=str,
)
def test_at_the_first_doubt_it_is_left_to_the_database(tmp_path, changes):
    frame = sold(**changes)
    if "holiday" in changes:  # text is no flag in parquet; open_table says so
        frame = frame.drop(columns="holiday")
        table = pa.Table.from_pandas(frame, preserve_index=False).append_column(
            "holiday", pa.array([1, 0, None, 0, 0])
        )
        assert read(tmp_path, table) is None
        return
    assert read(tmp_path, frame) is None


def test_a_fault_outside_the_window_does_not_matter(tmp_path):
    frame = sold(units=[3, 0, 1, 2, 2**40])
    assert list(read(tmp_path, frame, window=(WEEK,), row_group_size=4)) == [WEEK]


def test_row_groups_of_other_weeks_are_not_read(tmp_path, monkeypatch):
    groups = []
    asked = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda file, k, **more: groups.append(k) or asked(file, k, **more)
    )
    frame = pd.concat([sold(week=str(WEEK.shift(-back))).iloc[:4] for back in range(6)])
    assert list(read(tmp_path, frame, row_group_size=4)) == [BEFORE, WEEK]
    assert groups == [0, 1]


def test_too_many_rows_are_left_to_the_database(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    assert read(tmp_path, sold()) is None
    assert read(tmp_path, sold(), window=(WEEK,), row_group_size=4) is not None


def test_files_that_differ_and_folders_named_by_values_are_left_to_the_database(tmp_path):
    (tmp_path / "s").mkdir()
    sold().iloc[:4].to_parquet(tmp_path / "s" / "a.parquet")
    sold().iloc[4:].to_parquet(tmp_path / "s" / "b.parquet")
    assert list(opened(str(tmp_path / "s"))) == [BEFORE, WEEK]
    sold(units=7.0).iloc[4:].to_parquet(tmp_path / "s" / "b.parquet")
    assert opened(str(tmp_path / "s")) is None
    (tmp_path / "h" / f"week={WEEK}").mkdir(parents=True)
    sold().iloc[:4].drop(columns="week").to_parquet(tmp_path / "h" / f"week={WEEK}" / "a.parquet")
    assert opened(str(tmp_path / "h")) is None


def test_a_file_that_ends_early_is_for_the_database_to_explain(tmp_path):
    read(tmp_path, sold())
    with duckdb.connect() as connection:
        sales = open_table(SALES, str(tmp_path / "sales.parquet"), connection)
        texts = week_texts(sales, "week")
        (tmp_path / "sales.parquet").write_bytes((tmp_path / "sales.parquet").read_bytes()[:-9])
        assert plain_sales(sales, texts, (WEEK,)) is None


@pytest.mark.parametrize("week", [BEFORE, WEEK], ids=["the week before", "the week that is run"])
def test_a_file_that_lost_a_week_since_its_weeks_were_looked_at_is_for_the_database(tmp_path, week):
    path = tmp_path / "sales.parquet"
    frame = sold().astype({"week": "category"})  # that the lost week is still named does not make up for it
    frame.to_parquet(path, index=False)
    with duckdb.connect() as connection:
        sales = open_table(SALES, str(path), connection)
        texts = week_texts(sales, "week")
        frame[frame["week"] != str(week)].to_parquet(path, index=False)
        assert plain_sales(sales, texts, (BEFORE, WEEK)) is None


@pytest.mark.filterwarnings("error")
def test_the_first_number_above_the_most_units_is_no_count_in_any_type(tmp_path):
    for kind in ("float32", "float64", "int64", "uint32"):
        assert read(tmp_path, sold(units=np.array([3, 2**31, 1, 2, 7], dtype=kind))) is None


def test_a_column_that_comes_twice_is_for_the_database(tmp_path):
    table = pa.Table.from_pandas(sold(), preserve_index=False)
    assert read(tmp_path, table.append_column("units", table["units"])) is None


def test_text_that_is_no_text_is_for_the_database_to_explain(tmp_path):
    table = pa.Table.from_pandas(sold(), preserve_index=False)
    latin = pa.array([b"b", b"K\xf6ln", b"b", b"a", b"a"]).view(pa.string())
    pq.write_table(table.set_column(0, "store_id", latin), tmp_path / "sales.parquet")
    with duckdb.connect() as connection:
        sales = open_table(SALES, str(tmp_path / "sales.parquet"), connection)
        assert plain_sales(sales, {str(WEEK): WEEK, str(BEFORE): BEFORE}, (WEEK,)) is None


def test_the_suite_sees_weeks_below_each_other(tmp_path):
    frame = as_frame(list(read(tmp_path, sold(store_id=["b", "a", "b", "a", "c"])).values()))
    assert frame["store_id"].tolist() == ["c", "a", "a", "b", "b"]
    assert frame["week"].tolist() == [str(BEFORE)] + [str(WEEK)] * 4
    assert frame["copies"].tolist() == [1] * 5
    assert frame["units"].dtype == frame["copies"].dtype == np.int64


# --- the same snapshot either way ---


class Content:
    """In place of Great Expectations, for tables that are known to be good: finds nothing."""

    def validate(self, *_):
        return []

    def build_docs(self, folder):
        return folder / "index.html"


def hash_of(folder, spec, **others):
    home = Settings(home=folder)
    request = WeekRequest(WEEK, spec, config=RunConfig(), **others)
    return ingesting.ingest(request, home, home.runs / "r")[1].data_hash


@st.composite
def frames(draw):
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2), st.integers(0, 9)),
            min_size=1,
            max_size=40,
            unique_by=lambda row: row[:3],
        )
    )
    frame = pd.DataFrame([*rows, (0, 9, 0, 0)], columns=["store_id", "sku_id", "week", "units"])
    weeks = [WEEK.shift(-back) for back in frame["week"]]
    ids = draw(st.sampled_from(["text", "numbers", "categories", "beyond ASCII"]))
    if ids != "numbers":
        mark = "ß🜁" if ids == "beyond ASCII" else "s"
        for name in ("store_id", "sku_id"):
            frame[name] = [f"{mark}{key % 3}{key}" for key in frame[name]]
            frame[name] = frame[name].astype("category" if ids == "categories" else "str")
    kind = draw(st.sampled_from(["labels", "dates", "texts of dates"]))
    frame["week"] = [str(w) if kind == "labels" else w.start for w in weeks]
    if kind == "texts of dates":
        frame["week"] = [day.isoformat() for day in frame["week"]]
    frame["units"] = frame["units"].astype(draw(st.sampled_from(["int64", "float32", "uint8", "int16"])))
    if draw(st.booleans()):
        frame["promo"] = np.arange(len(frame)) % 3 == 0
    return frame


@given(frame=frames(), rows_a_group=st.integers(1, 50))
@settings(max_examples=6, deadline=None)
def test_plain_or_by_the_database_it_is_the_same_content(tmp_path_factory, frame, rows_a_group):
    folder = tmp_path_factory.mktemp("both")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, folder / "sales.parquet", row_group_size=rows_a_group)
    spec = str(folder / "sales.parquet")
    assert opened(spec, [WEEK.shift(-back) for back in range(3)]) is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(expectations, "Validator", Content)
        plain = hash_of(folder / "plain", spec)
        patched.setattr(ingesting, "plain_sales", lambda *_: None)
        assert hash_of(folder / "database", spec) == plain


def found_of(folder, spec, **others):
    """The hash of what is kept, or the faults that reject it."""
    try:
        return hash_of(folder, spec, **others)
    except ContractRejected as rejection:
        return rejection.contract.faults


LISTED = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


@pytest.mark.parametrize(
    ("costs", "listing"),
    [
        ([(None, None), ("", "x")], None),
        (None, [("a", ""), ("b", " "), ("z", None), (None, "x")]),
        ([("", "x"), (" ", "y")], [*LISTED, ("", "")]),
    ],
    ids=["costs", "listing", "both"],
)
def test_blank_ids_beside_plain_sales_are_missing_as_by_the_database(tmp_path, costs, listing):
    folder = tmp_path
    spec = str(folder / "sales.parquet")
    sold().to_parquet(spec, index=False)
    assert opened(spec) is not None
    others = {}
    for name, pairs in (("costs", costs), ("listing", listing)):
        if pairs is not None:
            others[name] = str(folder / f"{name}.parquet")
            frame = pd.DataFrame(pairs, columns=["store_id", "sku_id"]).astype("str")
            money = {"cost_false_alarm": 1.0, "cost_missed": 2.0 + frame.index} if name == "costs" else {}
            frame.assign(**money).to_parquet(others[name], index=False)
    plain = found_of(folder / "plain", spec, **others)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ingesting, "plain_sales", lambda *_: None)
        assert found_of(folder / "database", spec, **others) == plain


@pytest.mark.parametrize("ids", ["text", "blank", "missing"])
def test_a_blank_store_in_costs_stands_for_all_stores(tmp_path, ids):
    store = {"text": ["a", "b"], "blank": ["", ""], "missing": [None, None]}[ids]
    spec, costs = str(tmp_path / "sales.parquet"), str(tmp_path / "costs.parquet")
    sold().to_parquet(spec, index=False)
    pd.DataFrame(
        {"store_id": store, "sku_id": ["x", "y"], "cost_false_alarm": 1.0, "cost_missed": [50.0, 60.0]}
    ).astype({"store_id": "str"}).to_parquet(costs, index=False)
    home = Settings(home=tmp_path / "home")
    request = WeekRequest(WEEK, spec, costs=costs, config=RunConfig())
    snapshot = ingesting.ingest(request, home, home.runs / "r")[1]
    (segment,) = prepare(snapshot, WEEK, RunConfig(default_cost_missed=2.0)).segments
    missed = np.broadcast_to(np.asarray(segment.costs.missed), 4).tolist()
    assert missed == ([50.0, 2.0, 2.0, 60.0] if ids == "text" else [50.0, 60.0, 50.0, 60.0])


def test_rows_of_known_weeks_are_not_kept_and_a_missing_week_is():
    weeks = pa.chunked_array(
        [pa.array(["W1", "W2", None]).dictionary_encode(), pa.array(["W2"]).dictionary_encode()]
    )
    table = pa.table({"week": weeks, "units": [1, 2, 3, 4]})
    assert module._of_weeks(table, ["W1"])["units"].to_pylist() == [1, 3]
    assert module._of_weeks(table, ["W1", "W2"]) is table
    plain = table.set_column(0, "week", weeks.cast(pa.string()))
    assert module._of_weeks(plain, ["W1"]) is plain
