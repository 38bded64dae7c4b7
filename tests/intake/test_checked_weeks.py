"""Weeks checked before: the same verdict and the same snapshot as without, and no fault ever taken over."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.week_tables import WEEK, label, leave_docs_out, sales_table

from ew_pipeline.core.settings import ContractLimits, RunConfig, Settings
from ew_pipeline.intake import checked_tables
from ew_pipeline.intake.checked_tables import CheckedWeeks
from ew_pipeline.intake.contract import Contract
from ew_pipeline.intake.read import ingest
from ew_pipeline.intake.snapshot import Snapshot, read_table
from ew_pipeline.results import WeekRequest

CONFIG = RunConfig(contract=ContractLimits(max_faulty_share=0.5))
GOOD = sales_table(
    *[(f"0{s}", f"k\u0000{k}" if k == 3 else f"00{k}", back, s + k, k == 1, f"f{s}")
      for s in range(3) for k in range(4) for back in range(5)],
    columns=("promo", "format"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _without_docs(monkeypatch):
    leave_docs_out(monkeypatch)


def run(home: Path, spec: str | Path, back: int = 0, config: RunConfig = CONFIG) -> tuple[Contract, Snapshot]:
    settings = Settings(home=home)
    request = WeekRequest(WEEK.shift(-back), sales=str(spec), config=config)
    return ingest(request, settings, settings.runs / "run")


def written(folder: Path, rows: pd.DataFrame) -> Path:
    rows.to_parquet(folder / "sales.parquet", index=False)
    return folder / "sales.parquet"


@pytest.mark.parametrize("config", [CONFIG, CONFIG.model_copy(update={"segment_by": "format"})])
def test_the_next_week_has_the_verdict_and_the_snapshot_of_a_run_that_knows_nothing(config, tmp_path):
    sales = written(tmp_path, GOOD)
    run(tmp_path / "home", sales, 1, config)
    contract, snapshot = run(tmp_path / "home", sales, 0, config)
    fresh, from_scratch = run(tmp_path / "other", sales, 0, config)
    assert contract.rows_known == 12 * 4
    assert fresh.rows_known == 0
    assert contract.rows_read == fresh.rows_read == {"sales": 12 * 5}
    assert contract.faults == fresh.faults == ()
    assert snapshot.data_hash == from_scratch.data_hash
    for name in os.listdir(from_scratch.folder):
        assert (snapshot.folder / name).read_bytes() == (from_scratch.folder / name).read_bytes()


def test_a_week_with_a_fault_is_read_and_judged_each_time(tmp_path):
    rows = GOOD.astype({"units": float})
    rows.loc[(rows["week"] == label(2)) & (rows["store_id"] == "01"), "units"] = -1.0
    sales = written(tmp_path, rows)
    run(tmp_path / "home", sales, 1)
    contract, snapshot = run(tmp_path / "home", sales)
    assert contract.rows_known == 12 * 3
    assert [(fault.reason, fault.rows) for fault in contract.faults] == [
        ("units below zero, in earlier weeks", 4)
    ]
    assert read_table(snapshot.folder, "withheld").num_rows == 4
    assert snapshot.data_hash == run(tmp_path / "other", sales)[1].data_hash


def test_a_fault_of_the_week_itself_is_not_known_away_a_week_later(tmp_path):
    rows = GOOD.astype({"units": float})
    rows.loc[(rows["week"] == label(1)) & (rows["store_id"] == "01"), "units"] = 0.5
    sales = written(tmp_path, rows)
    assert run(tmp_path / "home", sales, 1)[0].rows_quarantined == 4
    assert run(tmp_path / "home", sales)[0].rows_quarantined == 4


def test_one_cell_that_changed_is_seen(tmp_path):
    sales = written(tmp_path, GOOD)
    run(tmp_path / "home", sales, 1)
    rows = GOOD.copy()
    rows.loc[rows.index[rows["week"] == label(3)][0], "units"] += 1
    stamp = sales.stat()
    written(tmp_path, rows)
    os.utime(sales, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # content counts, and nothing else
    contract, snapshot = run(tmp_path / "home", sales)
    assert contract.rows_known == 0
    assert snapshot.data_hash == run(tmp_path / "other", sales)[1].data_hash


def test_of_a_database_nothing_is_known(tmp_path):
    with sqlite3.connect(tmp_path / "s.db") as database:
        GOOD.to_sql("sales", database, index=False)
    spec = f"sqlite:///{tmp_path / 's.db'}#table=sales"
    run(tmp_path / "home", spec, 1)
    assert run(tmp_path / "home", spec)[0].rows_known == 0


def test_what_cannot_be_read_is_checked_again(tmp_path):
    sales = written(tmp_path, GOOD)
    run(tmp_path / "home", sales, 1)
    first, second, third, *_ = sorted((tmp_path / "home" / "cache" / "checked").iterdir())
    first.write_bytes(b"nonsense")
    second.write_bytes(second.read_bytes()[:-50])
    np.savez(third, units=np.zeros(3), **{"texts of week": np.zeros(3, dtype=np.uint8)})
    contract, snapshot = run(tmp_path / "home", sales)
    assert contract.rows_known == 12
    assert snapshot.data_hash == run(tmp_path / "other", sales)[1].data_hash


def test_a_file_that_changes_while_it_is_read_leaves_nothing_behind(tmp_path):
    from ew_pipeline.core.schema import SALES
    from ew_pipeline.intake.read import scratch
    from ew_pipeline.intake.tables import open_table

    sales = written(tmp_path, GOOD)
    with scratch(tmp_path, 1) as connection:
        known = CheckedWeeks(str(sales), open_table(SALES, str(sales), connection), tmp_path / "checked")
    written(tmp_path, pd.concat([GOOD, GOOD]))
    known.keep(label(1), {"units": np.zeros(12, dtype=np.int32)})
    assert not (tmp_path / "checked").exists()


def test_a_file_of_one_week_that_is_too_large_to_be_kept_is_not_hashed(tmp_path, monkeypatch):
    hashed = []
    monkeypatch.setattr(checked_tables, "file_hash", lambda path: hashed.append(path) or "a hash")
    sales = written(tmp_path, GOOD[GOOD["week"] == str(WEEK)])
    monkeypatch.setattr(checked_tables, "MOST_ROWS", 11)
    run(tmp_path / "home", sales)
    assert hashed == []
    monkeypatch.setattr(checked_tables, "MOST_ROWS", 12)
    run(tmp_path / "home", sales)
    assert hashed == [sales]
