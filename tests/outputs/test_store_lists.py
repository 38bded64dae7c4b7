"""A list per store: a folder of files, or with very many stores an archive of the same files."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import pandas as pd
import pytest
from support.factory import make_result

from ew_pipeline.outputs import check_list
from ew_pipeline.outputs.check_list import MOST_FILES, store_lists_in, write_check_lists
from ew_pipeline.outputs.page import write_report


@pytest.fixture
def few_files(monkeypatch):
    monkeypatch.setattr(check_list, "MOST_FILES", 2)


def test_the_number_of_files_does_not_follow_the_number_of_stores(tmp_path):
    stores = MOST_FILES + 1
    result = make_result(stores=stores, skus=1)
    result = replace(result, scores=result.scores.assign(flagged=True))
    paths = write_check_lists(result, tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "check_list.csv",
        "check_list.json",
        "check_list.parquet",
        "check_list.zip",
    ]
    with zipfile.ZipFile(paths["stores"]) as archive:
        assert len(archive.namelist()) == stores


def test_the_archive_unpacks_to_the_folder(tmp_path, monkeypatch):
    result = make_result(stores=3, skus=4)
    folder = write_check_lists(result, tmp_path / "few")["stores"]
    monkeypatch.setattr(check_list, "MOST_FILES", 2)
    paths = write_check_lists(result, tmp_path / "many")
    with zipfile.ZipFile(paths["stores"]) as archive:
        archive.extractall(tmp_path / "unpacked")
    unpacked = tmp_path / "unpacked" / "check_list"
    assert {path.name: path.read_bytes() for path in unpacked.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    document = json.loads(paths["json"].read_text())
    assert document["archive"] == "check_list.zip"
    assert all((tmp_path / "unpacked" / store["file"]).is_file() for store in document["stores"])
    assert json.loads((tmp_path / "few" / "check_list.json").read_text())["archive"] is None


@pytest.mark.usefixtures("few_files")
def test_the_same_week_gives_the_same_archive(tmp_path):
    first, second = (write_check_lists(make_result(), tmp_path / name)["stores"] for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_neither_form_survives_the_other(tmp_path, monkeypatch):
    write_check_lists(make_result(), tmp_path)
    assert store_lists_in(tmp_path) == "check_list/"
    monkeypatch.setattr(check_list, "MOST_FILES", 2)
    write_check_lists(make_result(), tmp_path)
    assert store_lists_in(tmp_path) == "check_list.zip"
    assert not (tmp_path / "check_list").exists()
    monkeypatch.undo()
    write_check_lists(make_result(), tmp_path)
    assert store_lists_in(tmp_path) == "check_list/"


@pytest.mark.usefixtures("few_files")
def test_the_page_says_where_the_lists_are(tmp_path):
    result = make_result()
    write_check_lists(result, tmp_path)
    series = {name: [] for name in ("week", "segment")}
    page = write_report(result, series=pd.DataFrame(series), previous=None, links={}, folder=tmp_path)
    assert "one list per store in check_list.zip" in page.read_text()
