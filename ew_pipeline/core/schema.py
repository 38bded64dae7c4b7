"""The tables at the border of the pipeline: column, unit, meaning. The suites in expectations/ say the same
as checks; a test holds the two together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its kind ("text", "week", "count", "number", "money", "flag") and what it means."""

    name: str
    kind: str
    meaning: str
    required: bool = True


@dataclass(frozen=True)
class Table:
    """A table of the contract. ``key``: the columns that name a row; no two rows share them."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.required)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


STORE = Column("store_id", "text", "the store, as it is called in all tables")
SKU = Column("sku_id", "text", "the article, as it is called in all tables")
WEEK = Column("week", "week", "ISO week such as 2026-W34, or the date the week starts")

SALES = Table(
    "sales",
    (
        STORE,
        SKU,
        WEEK,
        Column("units", "count", "units sold in the week, zero or more"),
        Column("price", "money", "mean price paid", required=False),
        Column("promo", "flag", "1 when the article was promoted in the store that week", required=False),
        Column("holiday", "flag", "1 when the week is unlike others for the store", required=False),
        Column("on_hand", "number", "stock on record at the end of the week", required=False),
    ),
    key=("store_id", "sku_id", "week"),
)
LISTING = Table(
    "listing",
    (
        STORE,
        SKU,
        Column("first_week", "week", "first week the store ranges the article", required=False),
        Column("last_week", "week", "last week it does; empty while it still does", required=False),
    ),
    key=("store_id", "sku_id"),
)
COSTS = Table(
    "costs",
    (
        Column("store_id", "text", "empty: all stores", required=False),
        Column("sku_id", "text", "empty: all articles", required=False),
        Column("cost_false_alarm", "money", "what checking a healthy shelf costs"),
        Column("cost_missed", "money", "what leaving a wrong record alone for the week costs"),
    ),
    key=("store_id", "sku_id"),
)
CHECKS = Table(
    "checks",
    (
        STORE,
        SKU,
        WEEK,
        Column("outcome", "text", "confirmed, healthy or not_checked"),
        Column("checked_by", "text", "who walked to the shelf", required=False),
        Column("source", "text", "flag or random", required=False),
    ),
    key=("store_id", "sku_id", "week"),
)
FLAGS = Table(
    "flags",
    (
        STORE,
        SKU,
        WEEK,
        Column("segment", "text", "the matrix the pair was fitted in; all when there is one"),
        Column("units", "count", "units sold in the week"),
        Column("expected_units", "number", "units a healthy pair would have sold"),
        Column("anomaly_probability", "number", "0 to 1, higher is more suspicious; the run says of what"),
        Column("cost_false_alarm", "money", "what checking it costs if it is healthy"),
        Column("cost_missed", "money", "what leaving it alone costs if it is not"),
        Column("threshold", "number", "flagged when P(healthy) is at most this"),
        Column("expected_saving", "money", "probability x missed - (1 - probability) x false alarm"),
        Column("store_rank", "count", "place in the store's check list, 1 first"),
        Column("reasons", "text", "reason codes, most telling first, separated by ;"),
    ),
    key=("store_id", "sku_id", "week"),
)
TABLES = {table.name: table for table in (SALES, LISTING, COSTS, CHECKS, FLAGS)}
