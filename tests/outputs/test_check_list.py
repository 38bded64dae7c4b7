"""Check lists: the files store operations open, and flags as programs read them."""

from __future__ import annotations

import csv
import io
import json
import string
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factory import held_result, make_result

from ew_pipeline.core.errors import UsageError
from ew_pipeline.outputs.check_list import file_names, guard, render_flags, write_check_lists

NASTY = {"S000": "=cmd|' /C calc'!A0", "S001": "../Zürich 1", "S002": '<script>alert("x")</script>'}


def rename(result, names):
    scores = result.scores.assign(store_id=result.scores["store_id"].map(names))
    return replace(result, scores=scores.sort_values(["store_id", "sku_id"], ignore_index=True))


def read(path):
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"))))


def test_the_chain_list_is_ranked_and_ready_to_fill_in(tmp_path):
    result = make_result(stores=3, skus=4)
    rows = read(write_check_lists(result, tmp_path)["csv"])
    assert ",".join(rows[0]) == (
        "rank,store_id,place,sku_id,week,sold,expected,probability,expected_saving,why,outcome"
    )
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    savings = [float(row["expected_saving"]) for row in rows]
    assert savings == sorted(savings, reverse=True)
    assert {row["store_id"]: row["sku_id"] for row in rows} == {
        "S000": "K000",
        "S001": "K001",
        "S002": "K002",
    }
    assert {(row["sold"], row["week"], row["outcome"]) for row in rows} == {("0", "2026-W34", "")}


def test_a_store_list_holds_its_own_checks_by_place(tmp_path):
    result = make_result(stores=2, skus=6)
    result = replace(result, scores=result.scores.assign(flagged=True))
    paths = write_check_lists(result, tmp_path)
    assert sorted(path.name for path in paths["stores"].iterdir()) == ["S000.csv", "S001.csv"]
    rows = read(paths["stores"] / "S001.csv")
    assert {row["store_id"] for row in rows} == {"S001"}
    assert [row["place"] for row in rows] == ["1", "2", "3", "4", "5", "6"]


def test_json_and_parquet_hold_the_same_list_with_every_digit(tmp_path):
    result = make_result()
    paths = write_check_lists(result, tmp_path)
    document, frame = json.loads(paths["json"].read_text()), pd.read_parquet(paths["parquet"])
    expected = result.flags
    assert document["week"] == "2026-W34"
    assert document["to_check"] == len(document["checks"]) == len(frame) == len(expected)
    assert [check["probability"] for check in document["checks"]] == expected["anomaly_probability"].tolist()
    assert frame["expected"].tolist() == expected["expected_units"].tolist()
    assert document["expected_saving"] == pytest.approx(result.expected_saving)
    assert document["checks"][0]["codes"] == ["zero_sales", "below_20_percent"]
    for store in document["stores"]:
        assert (tmp_path / store["file"]).is_file()


def test_a_held_list_says_so(tmp_path):
    document = json.loads(write_check_lists(held_result(), tmp_path)["json"].read_text())
    assert document["held"] == ["segment all did not converge in 200 steps"]


def test_the_same_week_gives_the_same_bytes(tmp_path):
    shuffled = make_result()
    shuffled = replace(shuffled, scores=shuffled.scores.sample(frac=1, random_state=1))
    first, second = (
        write_check_lists(make_result(), tmp_path / "a"),
        write_check_lists(shuffled, tmp_path / "b"),
    )
    for kind in ("csv", "json", "parquet"):
        assert first[kind].read_bytes() == second[kind].read_bytes()


def test_categorical_ids_list_only_stores_with_something_to_check(tmp_path):
    result = make_result(stores=3)
    scores = result.scores.assign(flagged=result.scores["flagged"] & (result.scores["store_id"] != "S001"))
    scores = scores.astype({"store_id": "category", "sku_id": "category"})
    paths = write_check_lists(replace(result, scores=scores), tmp_path)
    assert sorted(path.name for path in paths["stores"].iterdir()) == ["S000.csv", "S002.csv"]


def test_a_list_of_an_earlier_try_does_not_survive(tmp_path):
    write_check_lists(make_result(stores=3), tmp_path)
    paths = write_check_lists(make_result(stores=1), tmp_path)
    assert [path.name for path in paths["stores"].iterdir()] == ["S000.csv"]


def test_nothing_to_check_leaves_empty_lists(tmp_path):
    result = make_result()
    paths = write_check_lists(replace(result, scores=result.scores.assign(flagged=False)), tmp_path)
    assert read(paths["csv"]) == []
    assert paths["csv"].read_text().startswith("rank,store_id,")
    assert json.loads(paths["json"].read_text())["checks"] == []
    assert len(pd.read_parquet(paths["parquet"])) == 0


def test_ids_cannot_become_formulas_paths_or_broken_text(tmp_path):
    paths = write_check_lists(rename(make_result(), NASTY), tmp_path)
    rows = read(paths["csv"])
    assert {row["store_id"] for row in rows} == {"'=cmd|' /C calc'!A0", "../Zürich 1", NASTY["S002"]}
    assert paths["csv"].read_bytes().startswith(b"\xef\xbb\xbf")  # text beyond ASCII: Excel needs the mark
    files = sorted(path.name for path in paths["stores"].iterdir())
    assert [name.rpartition("-")[0] for name in files] == [
        "Z_rich_1",
        "cmd_C_calc_A0",
        "script_alert_x_script",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "check_list",
        "check_list.csv",
        "check_list.json",
        "check_list.parquet",
    ]


def test_plain_text_has_no_byte_order_mark(tmp_path):
    assert write_check_lists(make_result(), tmp_path)["csv"].read_bytes().startswith(b"rank,")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("=1+1", "'=1+1"),
        ("+49", "'+49"),
        ("-5", "'-5"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\tx", "'\tx"),
        ("＝1", "'＝1"),
        ("a;=1", "a;'=1"),
        ("a,@b", "a,'@b"),
        ("S-12", "S-12"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_formulas_are_guarded_and_nothing_else(text, safe):
    assert guard(text) == safe


@given(st.text(max_size=30))
def test_a_guarded_text_never_starts_a_formula_and_keeps_what_it_said(text):
    safe = guard(text)
    for separator in ",;|\t\r\n":
        assert all(not cell.lstrip().startswith(tuple("=+-@＝＋－＠")) for cell in safe.split(separator))
    assert safe.replace("'", "") == text.replace("'", "")


ids = st.one_of(
    st.text(max_size=80), st.text(string.ascii_letters + "0123456789-. /", min_size=1, max_size=4)
)


@given(st.lists(ids, unique=True, max_size=30))
def test_file_names_are_safe_and_never_shared(stores):
    names = file_names(stores)
    assert len({name.lower() for name in names.values()}) == len(stores)
    for name in names.values():
        assert set(name) <= set(string.ascii_letters + string.digits + "_.-")
        assert name[0] not in ".-"
        assert len(name) <= 68


@pytest.mark.parametrize(
    ("stores", "plain"),
    [
        (["S001", "17", "Berlin_2", "a.b"], True),
        (["s1", "S1"], False),
        (["con"], False),
        ([".."], False),
        (["a-0123456789ab"], False),
        (["ends."], False),
    ],
    ids=["plain", "case", "device", "dots", "looks tagged", "trailing dot"],
)
def test_only_plain_ids_are_their_own_file_name(stores, plain):
    names = file_names(stores)
    assert all((name == f"{store}.csv") == plain for store, name in names.items())


def flags_frame():
    return pd.DataFrame(
        {
            "store_id": ["=S1", "Ä2"],
            "sku_id": ["K1", 'K"2'],
            "units": [0, 3],
            "anomaly_probability": [0.1 + 0.2, 0.987654321098],
            "level": [np.nan, 4.0],
        }
    )


def test_flags_as_csv_json_and_parquet_say_the_same():
    frame = flags_frame()
    from_csv = pd.read_csv(io.BytesIO(render_flags(frame, "csv")))
    from_json = json.loads(render_flags(frame, "json"))
    from_parquet = pd.read_parquet(io.BytesIO(render_flags(frame, "parquet")))
    pd.testing.assert_frame_equal(from_parquet, frame)
    assert from_csv["store_id"].tolist() == ["'=S1", "Ä2"]
    assert from_csv["anomaly_probability"].tolist() == frame["anomaly_probability"].tolist()
    assert [row["store_id"] for row in from_json] == ["=S1", "Ä2"]
    assert [row["anomaly_probability"] for row in from_json] == frame["anomaly_probability"].tolist()
    assert [row["level"] for row in from_json] == [None, 4.0]


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_no_flags_render_too(format):
    assert render_flags(flags_frame().head(0), format)


def test_an_unknown_format_is_refused():
    with pytest.raises(UsageError, match="no format 'xlsx'"):
        render_flags(flags_frame(), "xlsx")
