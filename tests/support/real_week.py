"""One week of a small chain, run and published for real, with every state a pair can be in.

Import it as ``from support.real_week import published_home`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd
from support.chain import QUICK, run_plainly, write_chain

WEEK = "2026-W08"


@dataclass(frozen=True)
class Cases:
    """Pairs by what they are in the week."""

    promoted: tuple[str, str]
    quarantined: tuple[str, str]
    unlisted: tuple[str, str]
    not_ranged: tuple[str, str]
    not_reported: tuple[str, str]
    not_scored: tuple[str, str]
    implied_zero: tuple[str, str]


@cache
def published_home() -> tuple[Path, Cases]:
    """The home, made once per process: copy it before changing anything."""
    folder = Path(tempfile.mkdtemp(prefix="ew-real-week-"))
    tables, cases = spoil(write_chain(folder / "chain"), folder)
    changes = {**QUICK, "max_checks_per_store": 1}
    outcome = run_plainly(folder / "home", tables, WEEK, changes=changes, override_why="a test")
    assert outcome.status == "published"
    return folder / "home", cases


def spoil(tables: dict[str, str], folder: Path) -> tuple[dict[str, str], Cases]:
    """Rewrite sales and listing so that every case occurs."""
    sales, listing = (pd.read_parquet(tables[name]) for name in ("sales", "listing"))
    sales = sales.astype({"store_id": "str", "sku_id": "str", "week": "str"})
    for name in ("store_id", "sku_id", "first_week", "last_week"):
        listing[name] = listing[name].astype("object")
    stores = sorted(sales["store_id"].unique())
    missing = stores[-1]
    sales = sales[(sales["week"] != WEEK) | (sales["store_id"] != missing)].reset_index(drop=True)
    now = (sales["week"] == WEEK) & (sales["promo"] == 0)
    rows = sales[now].groupby("store_id").nth(0).index[:4]
    pairs = [(sales.at[row, "store_id"], sales.at[row, "sku_id"]) for row in rows]
    sales.loc[rows[0], "promo"] = True
    sales.loc[rows[1], "units"] = -3
    unlisted = pairs[2]
    listing = listing[(listing["store_id"] != unlisted[0]) | (listing["sku_id"] != unlisted[1])]
    sales.loc[rows[2], "units"] = 9
    sales = sales.drop(index=rows[3]).reset_index(drop=True)  # ranged, no row: an implied zero
    listed = set(zip(listing["store_id"], listing["sku_id"], strict=True))
    skus = sorted(sales["sku_id"].unique())
    absent = next((s, k) for s in stores[:-1] for k in skus if (s, k) not in listed | {unlisted})
    new = {"store_id": stores[0], "sku_id": "K999999", "first_week": WEEK, "last_week": None}
    listing = pd.concat([listing, pd.DataFrame([new])], ignore_index=True)
    row = sales[sales["week"] == WEEK].iloc[[0]]
    row = row.assign(store_id=stores[0], sku_id="K999999", units=2, promo=False)
    sales = pd.concat([sales, row], ignore_index=True)
    known = next(sku for store, sku in sorted(listed) if store == missing)
    sales.to_parquet(folder / "sales.parquet", index=False)
    listing.to_parquet(folder / "listing.parquet", index=False)
    cases = Cases(
        promoted=pairs[0],
        quarantined=pairs[1],
        unlisted=unlisted,
        not_ranged=absent,
        not_reported=(missing, known),
        not_scored=(stores[0], "K999999"),
        implied_zero=pairs[3],
    )
    spoiled = {"sales": str(folder / "sales.parquet"), "listing": str(folder / "listing.parquet")}
    return {**tables, **spoiled}, cases
