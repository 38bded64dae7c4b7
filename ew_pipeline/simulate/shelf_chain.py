"""The tables of a chain by shelves, with its truth in a table of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ew_pipeline.core.errors import UsageError
from ew_pipeline.simulate import tables
from ew_pipeline.simulate.shelf_settings import ShelfSettings

TABLES = ("sales", "listing", "costs", "checks", "stores", "skus", "truth")
KEYS = ["store_id", "sku_id", "week"]
OUTCOMES = ("confirmed", "healthy")


@dataclass(frozen=True, eq=False)
class ShelfChain:
    """The tables of the contract, and the truth apart from them.

    Attributes
    ----------
    sales
        store_id, sku_id, week, units, price, promo, on_hand (record at the week's end). Rows for ranged
        pairs of stores that reported.
    listing
        store_id, sku_id, first_week, last_week (inclusive; missing: still ranged at the end).
    costs
        store_id, sku_id, cost_false_alarm, cost_missed. A missing id stands for all: one row for the whole
        chain, then one per SKU.
    checks
        store_id, sku_id, week, outcome: the checks that were made while the chain ran.
    stores, skus
        store_id; sku_id, department, launch_week, delist_week, proneness (factor on error rates).
    truth
        store_id, sku_id, week, and for all ranged pairs of all weeks, those of late stores included: wrong
        and known_out (see ``shelves``), wrong_since (first week of this run of wrong weeks; missing: not
        wrong), days_empty (days with stock on record and an empty shelf), lost_share (share of the expected
        demand that exceeds what the shelf opened with), expected_units (expected demand), demand (units
        that customers wanted), shelf and misplaced (units at the week's end).
    """

    sales: pd.DataFrame
    listing: pd.DataFrame
    costs: pd.DataFrame
    checks: pd.DataFrame
    stores: pd.DataFrame
    skus: pd.DataFrame
    truth: pd.DataFrame
    settings: ShelfSettings
    seed: int

    def write(self, folder: Path) -> dict[str, Path]:
        """Write every table as ``folder/<name>.parquet``; returns the paths by name."""
        return tables.write({name: getattr(self, name) for name in TABLES}, folder)

    def answer_checks(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Return store_id, sku_id, week, outcome for the pairs and weeks in ``pairs``; nothing is repaired.

        The outcome is "confirmed" when the record was wrong in that week, else "healthy".
        """
        asked = pairs[KEYS].astype("str").drop_duplicates()
        truth = self.truth.loc[:, [*KEYS, "wrong"]].astype(dict.fromkeys(KEYS, "str"))
        found = asked.merge(truth, on=KEYS, how="left")
        refuse_unknown(found[found["wrong"].isna()])
        outcome = np.where(found["wrong"].astype("bool"), *OUTCOMES)
        return found[KEYS].assign(outcome=outcome)


def refuse_unknown(pairs: pd.DataFrame) -> None:
    """Raise an error that names some of ``pairs``, if there are any."""
    if len(pairs):
        named = ", ".join(f"{row.store_id}/{row.sku_id}" for row in pairs.head(3).itertuples())
        raise UsageError(
            f"{len(pairs)} of the shelves to check are not ranged then ({named})",
            next_step="check pairs and weeks of the listing",
        )
