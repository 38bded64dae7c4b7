"""A week that lies in files: what the workers agree on, and what is refused by name."""

from __future__ import annotations

import os
import pickle
import signal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import wait
from support.chain import Untold
from support.local_cluster import dies
from typer.testing import CliRunner

from ew_pipeline.cli.main import app
from ew_pipeline.cluster import partitions as partitions_module
from ew_pipeline.cluster.connection import ClusterError, connected
from ew_pipeline.cluster.decide import pairs_without_sales
from ew_pipeline.cluster.file_rows import FileRows, Reading
from ew_pipeline.cluster.partitions import TOGETHER, load_blocks, partition_files, take_census
from ew_pipeline.core.coded_text import CodedText
from ew_pipeline.core.console import ExitCode
from ew_pipeline.core.errors import DataError
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.ledger import Ledger
from ew_pipeline.method.large.row_blocks import column_totals
from ew_pipeline.weekly.request import make_request

WEEK = "2026-W30"
pytestmark = pytest.mark.server
FILES = 2 * TOGETHER + 1  # more than two tasks unite


def rows(stores, skus, week=WEEK, units=1):
    pairs = pd.MultiIndex.from_product([stores, skus], names=["store_id", "sku_id"])
    return pd.DataFrame(index=pairs).reset_index().assign(week=week, units=units)


def two_files(folder):
    rows(["S1", "S3"], ["K1", "K2"]).to_parquet(folder / "a.parquet")
    rows(["S4"], ["K2", "K9"], units=0).to_parquet(folder / "b.parquet")
    return folder


def written_again(folder):
    """The file of S1 and S3 with as many rows, of which some are another store's."""
    rows(["S1", "S2"], ["K1", "K2"]).to_parquet(folder / "a.parquet")


def test_weeks_that_are_times_with_a_zone_are_read_as_in_other_runs(tmp_path):
    monday = pd.Series(pd.to_datetime(["2026-07-20"])).dt.tz_localize("Europe/Berlin")
    read = {"columns": ("store_id", "sku_id", "week")}
    rows(["S1"], ["K1"], week=monday[0]).to_parquet(tmp_path / "berlin.parquet")
    assert FileRows.read(str(tmp_path / "berlin.parquet"), Reading(WEEK), **read).stores.codes.size == 1
    table = pa.Table.from_pandas(rows(["S1"], ["K1"], week=monday[0].tz_convert("UTC")))
    for name, int96 in (("spark", False), ("int96", True)):
        place = tmp_path / f"{name}.parquet"
        pq.write_table(table, place, store_schema=False, use_deprecated_int96_timestamps=int96)
        with pytest.raises(DataError, match="has weeks that are none: '2026-07-19 22:00:00"):
            FileRows.read(str(place), Reading(WEEK), **read)


def test_a_file_that_is_written_again_after_the_census_is_refused_by_name(cluster, tmp_path):
    with connected(cluster) as client:
        week = take_census(client, two_files(tmp_path), Reading(WEEK))
        written_again(tmp_path)
        with pytest.raises(DataError, match=r"a\.parquet is no longer the file .*\n.*same command") as error:
            load_blocks(client, week).total(pairs_without_sales, [])
    assert "b.parquet" not in str(error.value)


def test_a_file_that_is_gone_after_the_census_is_refused_by_name(cluster, tmp_path):
    with connected(cluster) as client:
        week = take_census(client, two_files(tmp_path), Reading(WEEK))
        (tmp_path / "b.parquet").unlink()
        with pytest.raises(DataError, match=r"b\.parquet was in the folder .* is gone.*\n.*same command"):
            load_blocks(client, week).total(pairs_without_sales, [])


def test_a_block_that_is_read_again_for_a_lost_worker_is_of_the_same_files(cluster, tmp_path):
    with connected(cluster) as client:
        blocks = load_blocks(client, take_census(client, two_files(tmp_path), Reading(WEEK)))
        assert blocks.total(pairs_without_sales, []) == 2
        wait(list(blocks.blocks))
        written_again(tmp_path)
        (holder,) = client.who_has(list(blocks.blocks))[blocks.blocks[0].key]
        os.kill(client.run(os.getpid, workers=[holder])[holder], signal.SIGKILL)
        with pytest.raises(DataError, match=r"a\.parquet is no longer the file"):
            blocks.total(pairs_without_sales, [])


def test_the_hash_is_of_the_file_that_is_read(tmp_path):
    path = str(two_files(tmp_path) / "a.parquet")
    assert FileRows.read(path, Reading(WEEK)).sha256 == file_hash(path)


def test_an_id_that_was_not_agreed_on_has_no_place():
    coded = CodedText.of(pa.chunked_array([["S1", "S4", "S2", "S9"]]))
    assert coded.places(np.array(["S1", "S2", "S4", "S9"])).tolist() == [0, 2, 1, 3]
    with pytest.raises(DataError, match=r"2 ids are not among .*: S2, S9"):
        coded.places(np.array(["S1", "S3", "S4"]))
    with pytest.raises(DataError, match=r"4 ids are not among"):
        coded.places(np.empty(0, dtype=np.str_))
    some = coded.kept(np.array([True, True, False, False]))  # no row has the others
    assert some.places(np.array(["S1", "S3", "S4"])).tolist() == [0, 2]


def test_ids_that_were_not_agreed_on_are_refused_with_the_file(tmp_path):
    part = FileRows.read(str(two_files(tmp_path) / "a.parquet"), Reading(WEEK))
    with pytest.raises(DataError, match=r"a\.parquet: 1 ids are not among .*: K2\.\n.*same command"):
        part.places(np.array(["S1", "S3"]), np.array(["K1"]))


def test_ids_and_rows_of_many_files_are_those_of_one(cluster, tmp_path):
    many, one = tmp_path / "many", tmp_path / "one"
    many.mkdir(), one.mkdir()
    parts = [rows([f"S{k:02d}"], [f"K{j}" for j in range(k % 5 + 1)], units=k) for k in range(FILES)]
    parts[3] = pd.concat([parts[3], rows(["S98"], ["K1"], week="2026-W29")])
    parts.append(rows(["S99"], ["K7"], week="2026-W28"))  # of the past alone
    for k, part in enumerate(parts):
        part.to_parquet(many / f"{-k % 7}-{k}.parquet")
    pd.concat(parts).to_parquet(one / "all.parquet")
    with connected(cluster) as client:
        found = take_census(client, many, Reading(WEEK, recent=8))
        known = take_census(client, one, Reading(WEEK, recent=8))
        blocks, block = (load_blocks(client, week, block_entries=9) for week in (found, known))
        assert len(blocks.blocks) > 3
        sold, sold_known = (some.total(column_totals, []).sold for some in (blocks, block))
    assert [file.first_store for file in found.files] == [f"S{k:02d}" for k in range(FILES)]
    assert found.skus.tolist() == known.skus.tolist() == [f"K{j}" for j in range(5)]
    assert found.missing == known.missing == ("S98", "S99")
    assert (found.rows, found.stores) == (known.rows, known.stores) == (blocks.n_observed, FILES)
    np.testing.assert_array_equal(sold, sold_known)


def test_stores_in_several_files_are_named_once_wherever_the_files_are(cluster, tmp_path):
    for k in range(FILES):
        stores = [f"S{k:02d}"] + ["S00"] * (k == 1) + ["S01"] * (k == FILES - 1)  # near, and far
        rows(stores, ["K1"]).to_parquet(tmp_path / f"{k:02d}.parquet")
    with connected(cluster) as client, pytest.raises(DataError, match=r"2 stores are .* \(S00, S01\)"):
        take_census(client, tmp_path, Reading(WEEK))


def to_client(client):
    """Bytes on the wire from workers to anybody but workers, so far."""
    workers = list(client.nthreads())

    def sent(dask_worker):
        log = dask_worker.transfer_outgoing_log
        return sum(one["compressed"] for one in log if one["who"] not in workers)

    return sum(client.run(sent).values())


def test_of_ids_that_many_files_share_the_client_gets_one_copy(cluster, tmp_path):
    skus = [f"K{j:011d}" for j in range(2_000)]
    one_copy = sum(map(len, skus))
    got, kept = {}, {}
    for files in (2, FILES):
        folder = tmp_path / str(files)
        folder.mkdir()
        for k in range(files):
            rows([f"S{k:02d}"], skus).to_parquet(folder / f"{k}.parquet")
        with connected(cluster) as client:
            before = to_client(client)
            week = take_census(client, folder, Reading(WEEK))
            got[files] = to_client(client) - before
            kept[files] = len(pickle.dumps(week))
            blocks = load_blocks(client, week)
            assert blocks.total(pairs_without_sales, []) == 0
        assert blocks.traffic.sent > one_copy
        assert blocks.traffic.received == pytest.approx(got[files], rel=0.05)
    assert one_copy < got[2] < got[FILES] < 2 * one_copy
    assert one_copy < kept[2] < kept[FILES] < 2 * one_copy


def test_scratch_of_whoever_writes_the_folder_is_no_input(tmp_path):
    two_files(tmp_path)
    for scratch in ("_temporary", ".new"):
        (tmp_path / scratch).mkdir()
        rows(["S9"], ["K1"]).to_parquet(tmp_path / scratch / "c.parquet")
    (tmp_path / "d.parquet").mkdir()
    rows(["S5"], ["K1"]).to_parquet(tmp_path / "d.parquet" / "part-0.parquet")
    named = [os.path.relpath(path, tmp_path) for path in partition_files(tmp_path)]
    assert named == ["a.parquet", "b.parquet", "d.parquet/part-0.parquet"]


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-20])


def with_broken_pages(path):
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes(60) + content[80:])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (cut_off, "cannot be read as parquet: .*same command"),
        (with_broken_pages, "cannot be read as parquet: .*same command"),
        (lambda path: path.write_bytes(b""), "cannot be read as parquet: .*same command"),
        (lambda path: path.unlink(), ".*is gone.*same command"),
        (
            lambda path: rows(["S1"], ["K1", "K2"]).assign(week=["soon", WEEK]).to_parquet(path),
            "has weeks that are none: 'soon'.*same command",
        ),
        (
            lambda path: rows(["S1"], ["K1"]).assign(promo="yes").to_parquet(path),
            "cannot be read as parquet: .*yes.*same command",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(fault, said, tmp_path):
    path = two_files(tmp_path) / "a.parquet"
    fault(path)
    with pytest.raises(DataError, match=rf"(?s){path} {said}"):
        FileRows.read(str(path), Reading(WEEK, without_promoted=True))


def test_a_broken_file_rejects_the_week_with_exit_code_1(cluster, tmp_path, monkeypatch):
    (tmp_path / "sales").mkdir()
    cut_off(two_files(tmp_path / "sales") / "b.parquet")
    monkeypatch.setenv("EW_HOME", str(tmp_path / "home"))
    command = f"run --blocks --week {WEEK} --sales {tmp_path / 'sales'} --dask {cluster}"
    answer = CliRunner().invoke(app, command.split())
    assert answer.exit_code == ExitCode.DATA_REJECTED
    assert "b.parquet cannot be read" in " ".join(answer.stderr.split())
    with Ledger.open(Settings().ledger_url, home=tmp_path / "home") as ledger:
        assert [run.status for run in ledger.runs()] == ["rejected"]


def _allow(failures, dask_scheduler):
    dask_scheduler.allowed_failures = failures


def test_a_worker_that_is_lost_with_the_ids_is_named(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(partitions_module, "census", dies)
    rows(["S1"], ["K1"]).to_parquet(tmp_path / "a.parquet")
    said = r"the ids of .*a\.parquet were not taken: 1 worker was lost while at it, the last one at tcp://127"
    with connected(cluster) as client:
        client.run_on_scheduler(_allow, 0)
        try:
            with pytest.raises(ClusterError, match=said):
                take_census(client, tmp_path, Reading(WEEK))
        finally:
            client.run_on_scheduler(_allow, 3)


def test_a_relative_path_is_the_same_folder_on_workers_that_are_elsewhere(cluster, tmp_path, monkeypatch):
    from ew_pipeline.cluster.run_blocks import run_blocks

    (tmp_path / "sales").mkdir()
    two_files(tmp_path / "sales")
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=tmp_path / "home", dask_address=cluster)
    request = make_request(settings, week="2027-W01", sales="sales", shadow=True, changes={})
    with pytest.raises(DataError, match=f"no row of 2027-W01 is in {tmp_path / 'sales'}"):
        run_blocks(request, settings, Steps(quiet=True), Untold())


def noisy_week(folder, files, week, seed=0):
    """Files of ten stores and 60 SKUs each, with rows of this week alone."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for k in files:
        part = rows([f"S{10 * k + i:03d}" for i in range(10)], [f"K{j:02d}" for j in range(60)], week)
        part.assign(units=rng.poisson(3.0, len(part))).to_parquet(folder / f"{k}.parquet")
    return folder


def test_stores_whose_file_is_missing_with_their_past_are_missed(cluster, tmp_path):
    """They were published the week before; a store that was not for long enough is no longer expected."""
    from ew_pipeline.cluster.run_blocks import run_blocks

    settings = Settings(home=tmp_path / "home", dask_address=cluster)
    lenient = {"detector": {"rank": 1}, "gate": {"max_flagged_share": 1, "min_pairs": 1}}

    def run(week, files, **asked):
        folder = noisy_week(tmp_path / f"{week} of {len(files)}", files, week)
        request = make_request(settings, week=week, sales=str(folder), changes=lenient, **asked)
        return run_blocks(request, settings, Steps(quiet=True), Untold())

    def enough(outcome):
        return next(check for check in outcome.result.gate if check.name == "enough stores")

    assert run("2025-W30", [9], override_why="a test").status == "published"  # too long ago
    first = run(WEEK, range(4), override_why="a test")
    assert first.status == "published"
    assert first.result.coverage.stores_missing == ()
    then = run("2026-W31", [0, 2, 3], shadow=True)
    gone = tuple(f"S{k:03d}" for k in range(10, 20))
    assert then.result.coverage.stores_missing == gone
    assert then.result.coverage.stores_expected == 40
    assert not enough(then).passed
    assert "30 of 40 stores reported (75%)" in enough(then).words
    again = run(WEEK, [0, 2, 3], override_why="a test")  # in whose place it stands, they are not forgotten
    assert again.status == "published"
    assert again.result.coverage.stores_missing == gone
    assert run("2026-W31", [0, 2], shadow=True).result.coverage.stores_expected == 40
