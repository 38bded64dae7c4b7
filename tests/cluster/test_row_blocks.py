"""One week by row blocks: as in one place, on real workers, and when one of them is killed."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from support.block_week import RANK, WEEK, M, N, run, scores_of
from support.chain import Untold
from support.local_cluster import one_killed, working_on
from typer.testing import CliRunner

from ew_pipeline.backtest.due import due_publications
from ew_pipeline.backtest.view import RuleLabels
from ew_pipeline.cli.main import app
from ew_pipeline.cluster.connection import connected
from ew_pipeline.cluster.partitions import Reading, census, load_blocks, read_block, take_census
from ew_pipeline.core.console import ExitCode
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.large.blocks import fit_large_blocks
from ew_pipeline.method.large.fit import FULL
from ew_pipeline.method.large.rank import sketch
from ew_pipeline.method.large.row_blocks import LocalBlocks, column_totals
from ew_pipeline.method.large.whole_week import fit_large
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.bench.dask import measure, write_partitions
from ew_pipeline.weekly.request import make_request
from ew_pipeline.weekly.run import run_week

pytestmark = pytest.mark.server


def start(sales, family):
    return sketch(sales, None, family, (RANK,), np.random.default_rng(1), 1).right


def test_blocks_give_what_one_place_gives(sales):
    both = BothWays.of(sales, None, np.float64)
    family = exposure_family("exponential")
    right = start(sales, family).astype(np.float64)
    whole = fit_large(both, family, right, noise="auto", effort=FULL, threads=1)
    blocks = LocalBlocks.cut(sales, [0, 7, 60, N], np.float64)
    found = fit_large_blocks(blocks, family, right, noise="auto", effort=FULL, threads=1)
    means = np.concatenate([part.means for part in found.predictions])
    healthy = np.concatenate([part.healthy for part in found.predictions])
    np.testing.assert_allclose(means, whole.means.single, rtol=1e-6)
    np.testing.assert_allclose(healthy, whole.healthy.single, atol=1e-6)
    assert found.theta.parameters.anomaly_rate == pytest.approx(whole.parameters.anomaly_rate, rel=1e-9)
    assert (found.rounds, found.converged) == (whole.rounds, whole.converged)
    assert found.null_gain == pytest.approx(whole.null_gain, rel=1e-9)


def test_one_block_is_the_single_process_fit_to_the_last_bit(sales):
    both = BothWays.of(sales)
    family = exposure_family("exponential")
    right = start(sales, family)
    whole = fit_large(both, family, right, noise="auto", effort=FULL, threads=1)
    found = fit_large_blocks(
        LocalBlocks.cut(sales, [0, N]), family, right, noise="auto", effort=FULL, threads=1
    )
    np.testing.assert_array_equal(found.predictions[0].means, whole.means.single)
    np.testing.assert_array_equal(found.predictions[0].healthy, whole.healthy.single)


def test_f_is_put_by_column_once_in_a_round(sales, monkeypatch):
    turned, turn = [], BothWays.with_healthy

    def noted(both, *given):
        turned.append(both)
        return turn(both, *given)

    monkeypatch.setattr(BothWays, "with_healthy", noted)
    family = exposure_family("exponential")
    blocks = LocalBlocks.cut(sales, [0, 60, N])
    found = fit_large_blocks(blocks, family, start(sales, family), noise="auto", effort=FULL, threads=1)
    assert found.rounds > 1
    assert len(turned) == 2 * (found.rounds - 1)  # of each block; the last round weighs nothing


def test_a_fit_by_blocks_holds_of_what_was_predicted_only_what_it_weighs_by():
    """Between rounds f by row and by column, 8 bytes; with all of the prediction the fit took 64 at most."""
    rng = np.random.default_rng(0)
    n, m = 400, 2_000
    demand = rng.gamma(2.0, 0.5, (n, 2)) @ rng.gamma(2.0, 0.5, (m, 2)).T * 6.0
    counts = rng.poisson(np.where(rng.random((n, m)) < 0.08, 0.2, 1.0) * demand)
    sales = SalesMatrix.from_dense(counts, rng.random((n, m)) < 0.5)
    family, right = exposure_family("exponential"), rng.gamma(2.0, 0.5, (m, 2)).astype(np.float32)

    def fit():
        blocks = LocalBlocks.cut(sales, [0, n])
        return fit_large_blocks(blocks, family, right, noise="auto", effort=FULL, threads=1)

    assert fit().rounds > 1  # and what is compiled on the way
    tracemalloc.start()
    try:
        fit()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 58 * sales.n_observed


def test_column_totals_add_up_however_the_rows_are_cut(sales):
    whole = LocalBlocks.cut(sales, [0, N]).total(column_totals, [])
    cut = LocalBlocks.cut(sales, [0, 1, 50, N]).total(column_totals, [])
    np.testing.assert_array_equal(cut.sold, whole.sold)
    np.testing.assert_array_equal(cut.entries, np.bincount(sales.cols, minlength=M))


def test_a_week_on_workers_of_which_one_is_killed_equals_the_fit_in_one_place(
    cluster, partitions, sales, tmp_path
):
    here = EntrywiseDetector("large", rank=RANK, n_threads=1).fit(sales)
    sights = iter(range(6))

    def in_the_middle(client):
        worker = working_on(client, "block-sweep_block")
        return worker if worker is not None and next(sights, 5) == 5 else None

    with one_killed(cluster, in_the_middle) as killed:
        outcome = run(tmp_path, partitions, cluster)
    assert len(killed) == 1
    scores = scores_of(outcome)
    work = json.loads((outcome.folder / "blocks.json").read_text())
    assert work["blocks"] == 3  # of three, two and one files: those that begin within 5,000 rows
    first_sweeps = FULL.least_squares + FULL.poisson
    each_sweep = N * (RANK + 3) * 4 + M * 6 * 8  # the rows' factors with their inverses, the columns' sums
    assert work["traffic"]["received"] > (first_sweeps + work["sweeps"]) * each_sweep
    assert work["rows_to_check"] == scores["flagged"].sum()
    assert scores["store_id"].tolist() == sales.store_ids[sales.rows].tolist()
    np.testing.assert_array_equal(scores["units"], sales.counts)
    # single precision, and other places where the sums of a column are rounded
    np.testing.assert_allclose(scores["expected_units"], here.expected_sales_, rtol=1e-4)
    np.testing.assert_allclose(outcome.result.pooled.anomaly_rate, here.theta_.anomaly_rate, rtol=1e-4)
    with Ledger.open(Settings(home=tmp_path).ledger_url, home=tmp_path) as ledger:
        assert not ledger.live()  # a shadow run

    # the same again, nobody killed: to the last bit, whoever did what
    again = scores_of(run(tmp_path, partitions, cluster))
    pd.testing.assert_frame_equal(again, scores)
    flagged = here.anomaly_probability_ * 3.0 >= (1.0 - here.anomaly_probability_)
    np.testing.assert_array_equal(scores["flagged"], flagged & (sales.counts < here.expected_sales_))


def test_the_cap_per_store_holds_across_blocks(cluster, partitions, tmp_path):
    scores = scores_of(run(tmp_path, partitions, cluster, max_checks_per_store=2))
    flags = scores[scores["flagged"]].groupby("store_id").size()
    assert flags.max() == 2
    assert len(flags) > N // 2


def test_a_store_in_two_files_is_refused_by_name(cluster, sales, tmp_path):
    frame = pd.DataFrame(sales.to_long()).assign(week=WEEK)
    frame.iloc[::2].to_parquet(tmp_path / "even.parquet")
    frame.iloc[1::2].to_parquet(tmp_path / "odd.parquet")
    with connected(cluster) as client, pytest.raises(DataError, match="120 stores are in more than one file"):
        take_census(client, tmp_path, Reading(WEEK))


def test_a_week_that_is_not_there_is_refused(cluster, partitions):
    with connected(cluster) as client, pytest.raises(DataError, match="no row of 2027-W01"):
        take_census(client, partitions, Reading("2027-W01"))


def test_faulty_units_are_refused_on_the_worker_with_the_pair_named(cluster, sales, tmp_path):
    frame = pd.DataFrame(sales.to_long()).assign(week=WEEK)
    frame.loc[3, "units"] = -1
    frame.to_parquet(tmp_path / "all.parquet")
    with connected(cluster) as client, pytest.raises(DataError, match=f"SKU {frame['sku_id'][3]}"):
        load_blocks(client, take_census(client, tmp_path, Reading(WEEK))).total(column_totals, [])


def test_the_census_counts_the_rows_of_the_week_alone(partitions, sales):
    found = census(str(partitions / "stores-0.parquet"), Reading(WEEK))
    assert found.rows == sales.indptr[20]
    assert found.stores.tolist() == sorted(sales.store_ids[:20].tolist())


@pytest.mark.parametrize("kind", ["text", "categories", "numbers and dates"])
def test_a_block_is_the_same_however_ids_and_weeks_are_written(kind, sales, tmp_path):
    frame = pd.DataFrame(
        {"store_id": sales.rows + 100, "sku_id": sales.cols + 1000, "week": WEEK, "units": sales.counts}
    )
    frame = pd.concat([frame, frame.assign(week="2026-W29", store_id=7)]).sample(frac=1, random_state=0)
    frame = frame.astype({"store_id": str, "sku_id": str})
    if kind == "categories":
        frame = frame.astype({"store_id": "category", "sku_id": "category", "week": "category"})
    if kind == "numbers and dates":
        monday = {WEEK: pd.Timestamp("2026-07-20"), "2026-W29": pd.Timestamp("2026-07-13")}
        frame = frame.astype({"store_id": int, "sku_id": int}).assign(week=frame["week"].map(monday))
    path = str(tmp_path / "part.parquet")
    frame.to_parquet(path, index=False, row_group_size=4000)
    found = census(path, Reading(WEEK))
    assert (found.rows, found.stores.tolist()) == (sales.n_observed, [str(100 + i) for i in range(N)])
    skus = np.sort(np.array(found.skus.to_pylist()))
    block = read_block(found.files, Reading(WEEK), skus, 0, 0)
    np.testing.assert_array_equal(block.sales.to_dense(), sales.to_dense())


def test_a_row_without_a_store_is_refused(tmp_path):
    frame = pd.DataFrame({"store_id": ["a", None], "sku_id": "b", "week": WEEK, "units": 1})
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"1 rows of .*x\.parquet have no store_id"):
        census(str(tmp_path / "x.parquet"), Reading(WEEK))


def test_a_file_without_a_column_is_refused_by_name(tmp_path):
    pd.DataFrame({"store_id": ["a"], "sku_id": ["b"]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet has no column week"):
        census(str(tmp_path / "x.parquet"), Reading(WEEK))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--shadow", "none is named"),
        ("--dask tcp://127.0.0.1:9 --zero-rule inferred", "--zero-rule inferred"),
        ("--dask tcp://127.0.0.1:9 --shadow --costs c.csv --segment-by region", "--costs, --segment-by"),
    ],
)
def test_what_blocks_cannot_do_is_said_before_anything_starts(
    options, said, partitions, tmp_path, monkeypatch
):
    monkeypatch.setenv("EW_HOME", str(tmp_path))
    answer = CliRunner().invoke(app, f"run --blocks --week {WEEK} --sales {partitions} {options}".split())
    assert answer.exit_code == ExitCode.USAGE
    assert said in answer.stderr
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_parquet_is_a_usage_error(cluster, tmp_path):
    with connected(cluster) as client, pytest.raises(UsageError, match="no folder of parquet files"):
        take_census(client, tmp_path, Reading(WEEK))


def test_dask_knows_how_large_a_block_is(sales):
    from dask.sizeof import sizeof

    (block,) = LocalBlocks.cut(sales, [0, N]).blocks
    assert 16 * sales.n_observed < sizeof(block) < 17 * sales.n_observed + 100_000


def test_a_sweep_moves_factors_and_sums_and_nothing_that_grows_with_the_entries(cluster, tmp_path):
    n, m, rank, workers = 400, 200, 2, 3
    paths = write_partitions(tmp_path, observed=64_000, stores=n, skus=m, files=3, seed=0)
    found = measure(cluster, tmp_path, paths, rank, workers, sweeps=2, seed=0)
    assert (found.stores, found.skus, found.blocks) == (n, m, 3)
    right, left, left_inverses, sums = m * rank * 4, n * rank * 4, n * 3 * 4, m * 6 * 8
    assert found.received_bytes == left + left_inverses + sums
    assert found.sent_bytes == pytest.approx(right + left, abs=200)  # and the prior
    # The same as the connections see it, with room for what describes a task or an array: a block asks for
    # the columns and hands on its sums once. Less than one number for each entry of a single block.
    tasks, words = 2 * found.blocks, 2_000
    assert found.sent_on_wire_bytes < found.sent_bytes + tasks * words
    most = workers * right + found.blocks * sums + 2 * (left + left_inverses) + found.received_bytes
    assert found.received_bytes < found.workers_on_wire_bytes < most + tasks * words
    assert most + tasks * words < 4 * found.observed / 3
    assert 16 <= found.resident_bytes_per_entry < 20


def test_what_is_published_from_blocks_is_what_one_machine_publishes(
    cluster, partitions, tmp_path, monkeypatch
):
    """The same sales, with a limit per store and SKUs that have too few pairs to be scored."""
    alone = {"history": False, "cross_section": False, "probability": "posterior"}
    changes = {**alone, "min_pair_entries": 70, "max_checks_per_store": 8, "detector": {"mode": "large"}}
    there = tmp_path / "blocks"
    settings = Settings(home=tmp_path / "one")
    request = make_request(settings, week=WEEK, sales=str(partitions), changes=changes)
    one = run_week(request, settings, Steps(quiet=True), Untold())
    many = run(there, partitions, cluster, shadow=False, **changes)
    assert (one.status, many.status) == ("published", "published")
    assert many.result.coverage == one.result.coverage
    assert many.result.coverage.pairs_not_scored > 0
    assert many.result.totals.pairs == one.result.totals.pairs
    assert many.result.totals.skus == one.result.totals.skus < M
    assert many.result.totals.by_probability.sum() == many.result.totals.pairs
    columns = ["store_id", "sku_id", "units", "store_rank"]
    flags = {}
    for home, outcome in ((settings.root, one), (there, many)):
        with Ledger.open(Settings(home=home).ledger_url, home=home) as ledger:
            found = ledger.flags(outcome.publication.id)
            due = due_publications(ledger, RuleLabels("pair"), Week.parse("2026-W40"))
            assert bool(due) == (outcome is one)  # of blocks no sales are kept
        flags[home] = found.sort_values(["store_id", "store_rank"], ignore_index=True)
    here, from_blocks = flags.values()
    assert len(here) > N
    pd.testing.assert_frame_equal(from_blocks[columns], here[columns])
    for column in ("anomaly_probability", "expected_units", "expected_saving"):
        np.testing.assert_allclose(from_blocks[column], here[column], rtol=2e-3, atol=1e-5)
    for name in ("report.html", "check_list.csv", "check_list.parquet"):
        assert (there / "reports" / WEEK / name).is_file()
    assert len(pd.read_csv(there / "reports" / WEEK / "check_list.csv")) == len(here)

    again = run(there, partitions, cluster, shadow=False, **changes)
    assert (again.status, again.run_id) == ("unchanged", many.run_id)

    monkeypatch.setenv("EW_HOME", str(there))
    answer = CliRunner().invoke(app, f"flags --week {WEEK} --format json".split())
    assert len(json.loads(answer.stdout)) == len(here)
    flagged = from_blocks.iloc[0]
    pair = f"explain --json --week {WEEK} --store {flagged['store_id']} --sku"
    said = json.loads(CliRunner().invoke(app, [*pair.split(), flagged["sku_id"]]).stdout)
    assert (said["status"], said["score"]["units"]) == ("flagged", flagged["units"])
    scores = scores_of(many)
    other = scores[(scores["store_id"] == flagged["store_id"]) & ~scores["flagged"]].iloc[0]
    said = json.loads(CliRunner().invoke(app, [*pair.split(), other["sku_id"]]).stdout)
    assert said["status"] == "not_flagged"
    assert said["score"]["anomaly_probability"] == pytest.approx(other["anomaly_probability"])
    said = json.loads(CliRunner().invoke(app, [*pair.split(), "nowhere"]).stdout)
    assert said["status"] == "not_scored"
    verified = CliRunner().invoke(app, ["audit", "verify"])
    assert verified.exit_code == ExitCode.DONE, verified.stdout
    (there / "runs" / many.run_id / "scores" / "rows-000000000.parquet").write_bytes(b"")
    assert CliRunner().invoke(app, ["audit", "verify"]).exit_code != ExitCode.DONE


def test_stores_that_reported_before_are_missed_and_promoted_pairs_left_out(cluster, sales, tmp_path):
    frame = pd.DataFrame(sales.to_long()).assign(week=WEEK)
    frame["promo"] = np.arange(len(frame)) % 10 == 0
    gone = frame[frame["store_id"] == "S000"].assign(store_id="S999", week="2026-W29")
    long_gone = gone.assign(store_id="S998", week="2025-W29")
    pd.concat([frame, gone, long_gone]).to_parquet(tmp_path / "all.parquet", index=False)
    whole = frame[frame["store_id"] == "S000"].assign(store_id="T000", promo=True)
    whole.to_parquet(tmp_path / "promoted.parquet", index=False)
    with connected(cluster) as client:
        found = take_census(client, tmp_path, Reading(WEEK, recent=8, without_promoted=True))
        assert found.missing == ("S999",)
        assert found.store_ids.to_pylist() == [*sorted(frame["store_id"].unique()), "T000"]
        promoted = int(frame["promo"].sum()) + len(whole)
        assert (found.promoted, found.rows) == (promoted, int((~frame["promo"]).sum()))
        assert len(found.files) == 2
        blocks = load_blocks(client, found)
        assert blocks.total(column_totals, []).entries.sum() == found.rows == blocks.n_observed
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    (tmp_path / "all.parquet").rename(renamed / "other.parquet")
    (tmp_path / "promoted.parquet").rename(renamed / "another.parquet")
    with connected(cluster) as client:
        again = take_census(client, renamed, Reading(WEEK, recent=8, without_promoted=True))
    assert again.data_hash == found.data_hash


def test_a_week_without_zeros_is_rejected_before_it_is_fitted(cluster, sales, tmp_path):
    folder = tmp_path / "sales"
    folder.mkdir()
    frame = pd.DataFrame(sales.to_long()).assign(week=WEEK)
    frame[frame["units"] > 0].to_parquet(folder / "all.parquet", index=False)
    with pytest.raises(DataError, match="has zero units"):
        run(tmp_path / "home", folder, cluster)
    with Ledger.open(Settings(home=tmp_path / "home").ledger_url, home=tmp_path / "home") as ledger:
        assert [run.status for run in ledger.runs()] == ["rejected"]


def test_the_command_holds_a_week_back_and_says_how_to_publish_it(
    cluster, partitions, sales, tmp_path, monkeypatch
):
    monkeypatch.setenv("EW_HOME", str(tmp_path))
    (tmp_path / "strict.toml").write_text("[gate]\nmax_flagged_share = 0.001\n")
    command = f"run --blocks --json --week {WEEK} --sales {partitions} --dask {cluster}"
    answer = CliRunner().invoke(app, [*command.split(), "--config", str(tmp_path / "strict.toml")])
    assert answer.exit_code == ExitCode.HELD_BACK, answer.stderr
    said = json.loads(answer.stdout)
    assert (said["status"], said["scored"]) == ("held", sales.n_observed)
    assert said["segments"]["all"]["rank"] == RANK  # found on held-out pairs
    assert 0.06 < said["theta"]["anomaly_rate"] < 0.10
    assert said["mlflow_run_id"]
    assert f"--blocks --dask {cluster}" in answer.stderr
