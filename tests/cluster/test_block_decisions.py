"""What to check of row blocks: some rows at a time, and brought here once the sums have been looked at."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from support.block_week import WEEK, M, N, run, scores_of

from ew_pipeline.cluster import decide, run_blocks
from ew_pipeline.cluster.decide import ToCheck, decide_block, decide_by_blocks, rows_to_check
from ew_pipeline.core.errors import DataError
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.method.large.row_blocks import LocalBlocks, Prediction
from ew_pipeline.method.sales_matrix import SalesMatrix

FIRST = ["expected_saving", "store_id", "sku_id"]
pytestmark = pytest.mark.server


def predicted(sales, sure=0.1):
    rng = np.random.default_rng(0)
    means = rng.gamma(3.0, 2.0, sales.n_observed).astype(np.float32)
    healthy = (rng.random(sales.n_observed) ** sure).astype(np.float32)
    return Prediction(means, means, means, healthy)


def decided(sales, folder, bounds, **changes):
    """Totals, the rows to check, and the scores of all pairs, of a week that is cut at ``bounds``."""
    blocks = LocalBlocks.cut(sales, bounds)
    known = predicted(sales)
    parts = [
        Prediction(*(getattr(known, name)[one.first_entry :][: one.sales.n_observed] for name in FIELDS))
        for one in blocks.blocks
    ]
    config = RunConfig.model_validate({"random_check_share": 0.0, **changes})
    entries = np.bincount(sales.cols, minlength=sales.shape[1])
    found, decisions = decide_by_blocks(blocks, parts, entries, Week.parse(WEEK), config, folder)
    assert sorted(found.files) == sorted(f"scores/{file.name}" for file in (folder / "scores").iterdir())
    return found, rows_to_check(blocks, decisions, None), pd.read_parquet(folder / "scores")


FIELDS = ("means", "cavity", "cv2", "healthy")


@pytest.mark.parametrize("changes", [{}, {"max_checks_per_store": 3}, {"min_pair_entries": 118}])
def test_a_block_is_decided_some_stores_at_a_time_as_it_is_at_once(changes, sales, tmp_path, monkeypatch):
    at_once = decided(sales, tmp_path / "at once", [0, 50, N], **changes)
    monkeypatch.setattr(decide, "AT_ONCE", 1_000)
    in_parts = decided(sales, tmp_path / "in parts", [0, 50, N], **changes)
    assert len(in_parts[0].of_rows) > len(at_once[0].of_rows) == 2
    for left, right in zip(at_once[1:], in_parts[1:], strict=True):
        pd.testing.assert_frame_equal(right.astype(PLAIN), left.astype(PLAIN), check_exact=True)
    for name, value in vars(at_once[0].totals).items():
        if name == "sample":
            pd.testing.assert_frame_equal(in_parts[0].totals.sample, value)
        else:
            np.testing.assert_allclose(getattr(in_parts[0].totals, name), value, rtol=1e-12)


PLAIN = {"store_id": str, "sku_id": str, "reasons": str}


def test_a_week_of_which_nothing_is_scored_is_decided_too(sales, tmp_path, monkeypatch):
    monkeypatch.setattr(decide, "AT_ONCE", 1_000)
    found, rows, scores = decided(sales, tmp_path, [0, 50, N], min_pair_entries=M + 1)
    assert (found.totals.pairs, found.to_check, len(rows), len(scores)) == (0, 0, 0, 0)


def test_what_lost_workers_left_half_written_is_neither_read_nor_kept(sales, tmp_path):
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / ".rows-000000000-dead.part").write_bytes(b"half")
    _, _, scores = decided(sales, tmp_path, [0, N])
    assert len(scores) == sales.n_observed


def test_a_block_is_decided_in_a_part_of_its_own_memory(tmp_path, monkeypatch):
    """Of all its pairs at once it took 62 bytes each, besides what Arrow takes."""
    monkeypatch.setattr(decide, "AT_ONCE", 1 << 15)
    rng = np.random.default_rng(0)
    seen = rng.random((400, 2_000)) < 0.5
    stores, skus = ([f"{place:04d}" for place in range(size)] for size in seen.shape)
    sales = SalesMatrix.from_dense(
        rng.poisson(3.0, seen.shape), seen, store_ids=stores, sku_ids=skus, week=WEEK
    )
    (block,) = LocalBlocks.cut(sales, [0, 400]).blocks
    known, entries = predicted(sales, sure=0.02), np.bincount(sales.cols, minlength=2_000)
    week_pairs = 50_000_000  # of which a block samples one in fifty
    given = (known, entries, week_pairs, Week.parse(WEEK), RunConfig(), str(tmp_path))
    (tmp_path / "scores").mkdir()
    decide_block(block, *given)  # what is imported and compiled on the way
    tracemalloc.start()
    try:
        found = decide_block(block, *given)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    kept = found.__sizeof__() + sum(len(one.sample) * 16 for one in found.decided.of_rows.values())
    assert after < kept + 1 * sales.n_observed
    assert peak - after < 20 * sales.n_observed
    assert "rows" not in vars(block.sales)  # cached for a block, they would stay with it


def test_of_too_many_rows_the_best_are_brought_whatever_the_blocks(sales, tmp_path):
    _, rows, _ = decided(sales, tmp_path, [0, 30, 50, N])
    best = rows.sort_values(FIRST, ascending=[False, True, True]).head(40)
    parts = [
        part.assign(store_id=part["store_id"].cat.remove_unused_categories())
        for _, part in rows.groupby("store_id", observed=True)
    ]
    added = ToCheck({}, 40)
    for k, part in enumerate(parts):
        added = added + ToCheck({k: part}, 40)
        assert len(added) <= 40
    assert set(zip(*(added.scores()[name] for name in FIRST), strict=True)) == set(
        zip(*(best[name] for name in FIRST), strict=True)
    )


ALL_BUT_SURE = {"default_cost_missed": 1000.0}  # so that nearly every pair below its expectation is flagged


def few(monkeypatch):
    monkeypatch.setattr(run_blocks, "FEW_ROWS", 100)
    monkeypatch.setattr(run_blocks, "SHOWN_ROWS", 50)


def test_a_week_with_too_many_flags_is_held_and_shows_the_best(cluster, partitions, tmp_path, monkeypatch):
    few(monkeypatch)
    outcome = run(tmp_path, partitions, cluster, shadow=False, **ALL_BUT_SURE)
    assert outcome.status == "held"
    scores = scores_of(outcome)
    flagged = scores[scores["flagged"]]
    assert outcome.result.totals.flagged == len(flagged) > 0.3 * len(scores)
    best = flagged.sort_values(FIRST, ascending=[False, True, True], ignore_index=True).head(50)
    shown = outcome.result.flags.astype({"store_id": str, "sku_id": str})
    pd.testing.assert_frame_equal(shown[FIRST], best[FIRST], check_exact=True)
    said = next(check.words for check in outcome.result.gate if check.name == "flagged share")
    assert f"of {len(flagged):,} only the best 50 are shown" in said
    assert json.loads((outcome.folder / "blocks.json").read_text())["rows_to_check"] == 50


def test_a_week_that_is_published_all_the_same_has_all_its_flags(cluster, partitions, tmp_path, monkeypatch):
    few(monkeypatch)
    outcome = run(tmp_path, partitions, cluster, shadow=False, override_why="a test", **ALL_BUT_SURE)
    assert outcome.status == "published"
    assert len(outcome.result.flags) == scores_of(outcome)["flagged"].sum() > 100
    with Ledger.open(Settings(home=tmp_path).ledger_url, home=tmp_path) as ledger:
        assert len(ledger.flags(outcome.publication.id)) == len(outcome.result.flags)


def test_more_flags_than_can_be_brought_together_are_refused(cluster, partitions, tmp_path, monkeypatch):
    monkeypatch.setattr(run_blocks, "MOST_ROWS", 100)
    with pytest.raises(DataError, match="max_checks_per_store"):
        run(tmp_path, partitions, cluster, shadow=False)
