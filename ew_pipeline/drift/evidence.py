"""Where a change comes from: the stores and SKUs whose flags grew most since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from ew_pipeline.drift.alerts import Alert
from ew_pipeline.drift.chart import LEARNING_WEEKS
from ew_pipeline.ledger import Ledger, Publication

SHOWN = 10


@dataclass(frozen=True)
class Growth:
    """Flags per week of a store or SKU, before the change and since."""

    what: Literal["store", "SKU"]
    id: str
    before: float
    after: float


def evidence(ledger: Ledger, alert: Alert) -> tuple[Growth, ...]:
    """The stores, then the SKUs, whose flags per week grew most since the change; at most ten each.

    Compared are the weeks from the change to the alert with the eight before it. Empty when there is no
    week before.
    """
    live = [one for one in ledger.live() if one.week <= alert.week]
    after = [one for one in live if one.week >= alert.since]
    before = [one for one in live if one.week < alert.since][-LEARNING_WEEKS:]
    if not before or not after:
        return ()
    old, new = _flags(ledger, before, alert.segment), _flags(ledger, after, alert.segment)
    return (
        *_growth("store", old["store_id"], new["store_id"], len(before), len(after)),
        *_growth("SKU", old["sku_id"], new["sku_id"], len(before), len(after)),
    )


def _flags(ledger: Ledger, live: Sequence[Publication], segment: str) -> pd.DataFrame:
    found = pd.concat([ledger.flags(one.id)[["store_id", "sku_id", "segment"]] for one in live])
    return found if segment == "pooled" else found[found["segment"] == segment]


def _growth(
    what: Literal["store", "SKU"], old: pd.Series[str], new: pd.Series[str], before: int, after: int
) -> list[Growth]:
    table = pd.DataFrame({"before": old.value_counts() / before, "after": new.value_counts() / after})
    table = table.fillna(0.0)
    table["grown"] = table["after"] - table["before"]
    table = table[table["grown"] > 0].sort_values("grown", ascending=False, kind="stable").head(SHOWN)
    return [
        Growth(what, str(name), float(row["before"]), float(row["after"])) for name, row in table.iterrows()
    ]
