"""Kept by the hash of their content, put in place at once, checked when read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from ew_pipeline.core import files
from ew_pipeline.core.errors import DataError, EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.snapshot import SnapshotWriter, load_snapshot, read_manifest, read_table

WEEK = Week(2026, 34)
SALES = pd.DataFrame(
    {
        "store_id": ["007", "007", "12"],
        "sku_id": ["a", "é", "a"],
        "week": "2026-W34",
        "units": [3, 0, 2],
    }
)
COSTS = pd.DataFrame(
    {
        "store_id": [None, "12"],
        "sku_id": [None, "a"],
        "cost_false_alarm": [1.0, 0.1],
        "cost_missed": [3.0, 1 / 3],
    }
)
# Worked out once; a change means that hashes written by earlier versions can no longer be made again.
KNOWN = "a1ab696d17c3d1da0d48c97e6976c21ee564d717fdf61876a8c51e28e3c1d9d3"


def write(home: Path, sales: pd.DataFrame = SALES, costs: pd.DataFrame | None = COSTS, week: Week = WEEK):
    with SnapshotWriter(Settings(home=home), week) as writer:
        writer.add("sales", sales, part=str(WEEK))
        if costs is not None:
            writer.add("costs", costs)
        return writer.finish()


def test_the_hash_of_a_known_table(tmp_path):
    assert write(tmp_path).data_hash == KNOWN


def test_the_hash_follows_the_written_rule(tmp_path):
    def text(values, codes):
        listed = b"".join(len(data := value.encode()).to_bytes(8, "little") + data for value in values)
        return len(values).to_bytes(8, "little") + listed + np.array(codes, "<i4").tobytes()

    header = (
        '{"columns":[["store_id","text"],["sku_id","text"],["week","text"],["units","count"]],'
        '"part":"sales/2026-W34","rows":3}\n'
    )
    content = header.encode() + text(["007", "12"], [0, 0, 1]) + text(["a", "é"], [0, 1, 0])
    content += text(["2026-W34"], [0, 0, 0]) + np.array([3, 0, 2], "<i4").tobytes()
    part = hashlib.sha256(content).hexdigest()
    whole = f'{{"parts":{{"sales/2026-W34":"{part}"}},"rule":1,"segment_by":null,"week":"2026-W34"}}'
    assert write(tmp_path, costs=None).data_hash == hashlib.sha256(whole.encode()).hexdigest()


def test_the_hash_does_not_depend_on_how_columns_are_held(tmp_path):
    held = SALES.assign(
        store_id=pd.Categorical(SALES["store_id"], categories=["zzz", "12", "007"]),
        sku_id=SALES["sku_id"].astype("string"),
        units=SALES["units"].astype(np.float64),
    )
    assert write(tmp_path, held).data_hash == KNOWN


@pytest.mark.parametrize(
    "changed",
    [
        {"sales": SALES.assign(units=[3, 0, 1])},
        {"sales": SALES.assign(store_id=["007", "007", "13"])},
        {"sales": SALES[:2]},
        {"sales": SALES.assign(promo=False)},
        {"costs": COSTS.assign(cost_missed=[3.0, 0.3333])},
        {"costs": None},
        {"week": WEEK.shift(1)},
    ],
    ids=["units", "a store", "a row less", "a column more", "a cost", "no costs", "the week"],
)
def test_the_hash_changes_with_the_content(changed, tmp_path):
    assert write(tmp_path, **changed).data_hash != KNOWN


def test_what_was_written_is_read(tmp_path):
    snapshot = load_snapshot(write(tmp_path).data_hash, Settings(home=tmp_path))
    sales = read_table(snapshot.folder, "sales").to_pandas()
    assert sales.astype({"store_id": "object", "sku_id": "object", "week": "object"}).to_dict("list") == {
        "store_id": ["007", "007", "12"],
        "sku_id": ["a", "é", "a"],
        "week": ["2026-W34"] * 3,
        "units": [3, 0, 2],
    }
    costs = read_table(snapshot.folder, "costs").to_pandas()
    assert costs["store_id"].isna().tolist() == [True, False]
    assert costs["cost_missed"].tolist() == [3.0, 1 / 3]


def test_the_manifest_tells_files_rows_and_week(tmp_path):
    manifest = read_manifest(write(tmp_path).folder)
    assert (manifest.week, manifest.weeks) == ("2026-W34", ("2026-W34",))
    assert {name: table["rows"] for name, table in manifest.tables.items()} == {"sales": 3, "costs": 2}
    assert manifest.data_hash == KNOWN


def test_files_are_read_only_and_nothing_unfinished_stays(tmp_path):
    snapshot = write(tmp_path)
    assert {path.stat().st_mode & 0o222 for path in snapshot.folder.iterdir()} == {0}
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == [snapshot.data_hash]


def test_an_identical_snapshot_is_reused(tmp_path):
    first = write(tmp_path)
    before = (first.folder / "sales.parquet").stat().st_ino
    second = write(tmp_path)
    assert second == first
    assert (second.folder / "sales.parquet").stat().st_ino == before
    assert len(list((tmp_path / "snapshots").iterdir())) == 1


def test_what_a_killed_run_left_behind_is_cleared_after_a_day(tmp_path):
    old, new = (tmp_path / "snapshots" / name for name in (".making-old", ".making-new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    write(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_writer_that_is_not_finished_leaves_nothing(tmp_path):
    with SnapshotWriter(Settings(home=tmp_path), WEEK) as writer:
        writer.add("sales", SALES, part=str(WEEK))
    assert list((tmp_path / "snapshots").iterdir()) == []


@pytest.mark.parametrize("name", ["sales.parquet", "costs.parquet"])
def test_a_changed_file_is_named(name, tmp_path):
    snapshot = write(tmp_path)
    path = snapshot.folder / name
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(EwError, match=f"damaged: {name} is not what was written") as caught:
        load_snapshot(snapshot.data_hash, Settings(home=tmp_path))
    assert caught.value.exit_code == 3
    assert "move it away and run its week again" in str(caught.value)
    with pytest.raises(EwError, match=f"damaged: {name}"):
        write(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    snapshot = write(tmp_path)
    (snapshot.folder / "costs.parquet").unlink()
    with pytest.raises(EwError, match=r"damaged: costs\.parquet is missing"):
        load_snapshot(snapshot.data_hash, Settings(home=tmp_path))


def test_a_manifest_of_another_snapshot_is_found_out(tmp_path):
    snapshot = write(tmp_path)
    path = snapshot.folder / "manifest.json"
    written = json.loads(path.read_text())
    path.chmod(0o644)
    path.write_text(json.dumps(written | {"week": "2026-W35"}))
    with pytest.raises(EwError, match=r"damaged: manifest\.json describes"):
        load_snapshot(snapshot.data_hash, Settings(home=tmp_path))
    path.write_text("{")
    with pytest.raises(EwError, match=r"manifest\.json cannot be read"):
        load_snapshot(snapshot.data_hash, Settings(home=tmp_path))


def test_an_unknown_hash_is_refused(tmp_path):
    with pytest.raises(DataError, match="there is no snapshot abc"):
        load_snapshot("abc", Settings(home=tmp_path))


def test_many_writers_at_once_leave_one_snapshot(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: write(tmp_path), range(40)))
    assert {snapshot.data_hash for snapshot in found} == {KNOWN}
    (only,) = (tmp_path / "snapshots").iterdir()
    assert load_snapshot(only.name, Settings(home=tmp_path)).data_hash == only.name


def test_a_home_that_cannot_be_written_to_is_told_with_a_way_out(tmp_path):
    home = tmp_path / "home"
    home.write_text("a file, not a folder")
    with pytest.raises(EwError, match=r"cannot write to .*home") as caught:
        write(home)
    assert caught.value.exit_code == 3
    assert "run again" in str(caught.value)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EROFS, "set EW_HOME"),
        (errno.EACCES, "the right to write"),
        (errno.EIO, "run again"),
    ],
    ids=["full disk", "read-only", "no right", "other"],
)
def test_disk_errors_say_what_to_do(number, words):
    with (
        pytest.raises(EwError, match="cannot write to /some/place") as caught,
        files.writing_to(Path("/some/place")),
    ):
        raise OSError(number, os.strerror(number))
    assert words in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_full_disk_while_writing_is_told_as_such():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(EwError, match="No space left"), files.writing_to(Path("/some/place")):
        Path("/dev/full").write_text("x" * 10_000)


def test_text_is_read_as_codes(tmp_path):
    snapshot = write(tmp_path)
    assert str(read_table(snapshot.folder, "sales")["store_id"].type).startswith("dictionary")
    assert pq.read_metadata(snapshot.folder / "sales.parquet").num_row_groups == 1
