"""A cluster whose workers, or whose scheduler, are killed at every step of a week, a backfill and a fit.

The suite does each once (tests/cluster/test_lost_clusters.py, test_weeks.py).
"""

from __future__ import annotations

import pytest
from support.block_week import make_sales, write_files
from support.chain import QUICK, run_plainly, write_chain
from support.losing import SAID, look_often, lose_a_backfill, lose_a_week_by_blocks, lose_segments

from ew_pipeline.core.settings import Settings
from ew_pipeline.intake.assemble import prepare
from ew_pipeline.intake.snapshot import load_snapshot

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    look_often(monkeypatch)


@pytest.fixture(scope="module")
def partitions(tmp_path_factory):
    return write_files(make_sales(), tmp_path_factory.mktemp("partitions"))


@pytest.mark.parametrize("what", SAID)
@pytest.mark.parametrize("step", ["read_block", "block-sweep_block", "block-decide_block"])
def test_a_week_by_blocks_ends_with_words(what, step, partitions, tmp_path):
    lose_a_week_by_blocks(what, step, partitions, tmp_path)


@pytest.mark.parametrize("what", SAID)
def test_a_backfill_ends_with_words(what, tmp_path, monkeypatch):
    lose_a_backfill(what, tmp_path, monkeypatch)


@pytest.mark.parametrize("what", SAID)
def test_segments_end_with_words(what, tmp_path):
    tables = write_chain(tmp_path / "chain")
    changes = {**QUICK, "segment_by": "region"}
    home = tmp_path / "home"
    result = run_plainly(home, tables, stores=tables["stores"], changes=changes, override_why="a test").result
    snapshot = load_snapshot(result.provenance.data_hash, Settings(home=home))
    lose_segments(what, prepare(snapshot, result.week, result.config), result.config, tmp_path)
