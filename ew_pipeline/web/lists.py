"""Check lists out of the ledger: the stores of a week, and what one of them has to check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ew_pipeline.audit.explain import all_scores, run_chance
from ew_pipeline.infer.pricing import Chance
from ew_pipeline.ledger import Ledger, Publication, Run
from ew_pipeline.outputs.check_list import RANDOM, check_list
from ew_pipeline.web import addresses
from ew_pipeline.web.errors import NotThere

LISTED = (
    "store_id",
    "sku_id",
    "units",
    "expected_units",
    "anomaly_probability",
    "expected_saving",
    "store_rank",
    "reasons",
)
NAMED_STORES = 40
SHOWN_STORES = 1000


@dataclass(frozen=True)
class StoreList:
    """``table``: as in ``check_list.SCHEMA``; ``chance``: what its probabilities are of."""

    publication: Publication
    store: str
    table: pa.Table
    chance: Chance

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{**row, "random": row["codes"] == RANDOM} for row in self.table.to_pylist()]


def store_list(ledger: Ledger, publication: Publication, store: str) -> StoreList:
    """What the store has to check; an empty list if that is nothing. A store nobody knows is ``NotThere``."""
    flags = ledger.flags(publication.id, store)[list(LISTED)]
    drawn = ledger.random_checks(publication.id, store)
    table = check_list(flags, publication.week, _as_flags(drawn))
    run = ledger.run(publication.run_id)
    if not len(table) and not _reported(run, store):
        raise _unknown(ledger, publication, store)
    return StoreList(publication, store, table, run_chance(run))


def _as_flags(drawn: pd.DataFrame) -> pd.DataFrame:
    """Pairs drawn at random in the columns of flags. What a check saves is not why they are checked."""
    p = drawn["anomaly_probability"]
    saving = p * drawn["cost_missed"] - (1.0 - p) * drawn["cost_false_alarm"]
    return drawn.assign(expected_saving=saving, store_rank=0, reasons="")[list(LISTED)]


def _reported(run: Run, store: str) -> bool:
    """Whether the store was looked at. Where scores were pruned nobody can say, and it counts as unknown."""
    place = all_scores(run)
    if place is None:
        return False
    return bool(len(pq.read_table(place, columns=["store_id"], filters=[("store_id", "==", store)])))


def _unknown(ledger: Ledger, publication: Publication, store: str) -> NotThere:
    week = publication.week
    stores = ledger.flagged_stores(publication.id)["store_id"].tolist()
    near = [name for name in stores if store.casefold() in name.casefold()] or stores
    there = [(f"store {name}", addresses.of_store(week, name)) for name in near[:NAMED_STORES]]
    return NotThere(
        f"store {store!r} is not in the published scores of {week}.",
        f"{len(stores)} stores have something to check that week.",
        [*there, (f"all stores of {week}", addresses.of_stores(week))],
    )


def flagged_stores(ledger: Ledger, publication: Publication, find: str) -> tuple[pd.DataFrame, int]:
    """The stores whose name holds ``find``, the first of them, and how many there are."""
    stores = ledger.flagged_stores(publication.id)
    if find:
        stores = stores[stores["store_id"].str.contains(find, case=False, regex=False)]
    return stores.head(SHOWN_STORES), len(stores)
