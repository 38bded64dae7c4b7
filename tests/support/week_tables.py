"""Small tables by hand, and snapshots of them without the way through the contract."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.assemble import Prepared, prepare
from ew_pipeline.intake.expectations import Validator
from ew_pipeline.intake.snapshot import Snapshot, SnapshotWriter

WEEK = Week(2026, 34)
# Every pair is scored unless a test is about that.
CONFIG = RunConfig(min_pair_entries=1)


def label(back: int = 0) -> str:
    return str(WEEK.shift(-back))


def sales_table(*rows: tuple[object, ...], columns: tuple[str, ...] = ()) -> pd.DataFrame:
    """Rows of (store, SKU, weeks back, units, …)."""
    frame = pd.DataFrame(rows, columns=["store_id", "sku_id", "week", "units", *columns])
    return frame.assign(week=[label(back) for back in frame["week"]])


def listing_table(*rows: tuple[str, ...]) -> pd.DataFrame:
    """Rows of (store, SKU[, first week[, last week]])."""
    padded = [(*row, None, None)[:4] for row in rows]
    return pd.DataFrame(padded, columns=["store_id", "sku_id", "first_week", "last_week"])


def make_snapshot(
    folder: Path,
    sales: pd.DataFrame,
    *,
    withheld: pd.DataFrame | None = None,
    listing: pd.DataFrame | None = None,
    costs: pd.DataFrame | None = None,
    split: tuple[str, str] | None = None,
    attributes: pd.DataFrame | None = None,
) -> Snapshot:
    """``split``: the column to split by and the table that has it, where it is called ``segment``."""
    column, table = split or (None, None)
    with SnapshotWriter(Settings(home=folder), WEEK, column, table) as writer:
        for week, part in sales.sort_values(["store_id", "sku_id"]).groupby("week"):
            writer.add("sales", part, part=str(week))
        if withheld is not None:
            writer.add("withheld", withheld.sort_values(["week", "store_id", "sku_id"]))
        if listing is not None:
            writer.add("listing", listing.sort_values(["store_id", "sku_id"]))
        if costs is not None:
            writer.add("costs", costs)
        if attributes is not None:
            assert table is not None
            writer.add(table, attributes)
        return writer.finish()


def leave_docs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data Docs are half of the time that a small contract takes."""
    monkeypatch.setattr(Validator, "build_docs", lambda _, folder: folder / "index.html")


def prepared(folder: Path, sales: pd.DataFrame, config: RunConfig = CONFIG, **tables: object) -> Prepared:
    return prepare(make_snapshot(folder, sales, **tables), WEEK, config)  # type: ignore[arg-type]


def units(result: Prepared, segment: int = 0) -> dict[tuple[str, str], int]:
    """The observed pairs of a segment and what they sold."""
    long = result.segments[segment].sales.to_long()
    keys = zip(map(str, long["store_id"]), map(str, long["sku_id"]), strict=True)
    return dict(zip(keys, long["units"].tolist(), strict=True))
