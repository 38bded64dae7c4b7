"""A home of commit 12bcf5a opens: every later version runs the next week in it and answers for the old ones.

``make_home.py`` made the archive with that commit. In it are three published weeks, one of them twice, a
champion, a run that was held back, a check, snapshots and models, and the sales of one week more.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from golden.command_line import ew, home_at
from golden.make_home import ARCHIVE, CHAMPION, WEEKS

pytestmark = pytest.mark.server

PUBLISHED, NEXT = WEEKS[-4:-1], WEEKS[-1]


@pytest.fixture
def home(tmp_path):
    """Elsewhere than it was made."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "home", filter="data")
    with home_at(tmp_path / "home"):
        yield tmp_path / "home"


def flags_of(week: str) -> list[dict[str, object]]:
    return ew("flags", "--week", week, "--json").json


def test_the_next_week_is_run_by_the_champion_and_published(home: Path):
    before = {week: flags_of(week) for week in PUBLISHED}
    done = ew("run", "--week", NEXT, "--sales", home / "tables" / "sales.parquet", "--json").json
    assert done["status"] == "published"
    listed = flags_of(NEXT)
    assert {flag["run_id"] for flag in listed} == {done["run_id"]}
    in_stores = [flag["store_id"] for flag in listed]
    assert max(map(in_stores.count, in_stores)) == CHAMPION["max_checks_per_store"]
    assert {week: flags_of(week) for week in PUBLISHED} == before
    assert ew("audit", "verify", "--json").json["intact"]


def test_nothing_in_it_was_changed(home: Path):
    assert ew("audit", "verify", "--json").json["intact"]


def test_an_old_flag_is_explained(home: Path):
    flag = flags_of(PUBLISHED[0])[0]
    pair = ("--store", flag["store_id"], "--sku", flag["sku_id"])
    page = ew("explain", *pair, "--week", PUBLISHED[0], "--json").json
    assert page["status"] == "flagged"
    assert page["score"]["units"] == flag["units"]
    assert page["score"]["expected_units"] == pytest.approx(flag["expected_units"], rel=1e-9)
    assert page["checks"]


@pytest.mark.parametrize("week", PUBLISHED)
def test_an_old_run_is_replayed_to_its_flags(home: Path, week: str):
    """To 1e-9, absolute below one and relative above: replay's own measure."""
    flags = flags_of(week)
    found = ew("audit", "replay", flags[0]["run_id"], "--json").json
    compared = {one["what"]: one for one in found["comparisons"] if one["where"] == "flags"}
    assert {"pairs", "expected_units", "anomaly_probability", "expected_saving"} <= set(compared)
    for one in compared.values():
        assert (one["compared"], one["different"]) == (len(flags), 0), one
