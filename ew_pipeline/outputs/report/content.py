"""What there is to say about a week, once, for every renderer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from ew_pipeline.core.texts import plain_texts
from ew_pipeline.decide.reasons import in_words
from ew_pipeline.infer.pricing import Chance
from ew_pipeline.outputs.report.health import Health, Mark, health, marks
from ew_pipeline.outputs.report.tables import (
    Table,
    coverage_table,
    gate_table,
    provenance_table,
    quarantine_table,
    segments_table,
    timings_table,
)
from ew_pipeline.outputs.report.words import clean, days
from ew_pipeline.results import Override, WeekResult

TOP = 20
LISTED = 2_000  # more rows than this belong in the CSV
LISTED_STORES = 500  # likewise; the JSON has them all
STORES = 12
GONE = 8


@dataclass(frozen=True)
class Check:
    """A pair on the list. ``state``: "new", "still" or "" when there is no last week to compare with."""

    rank: int
    store: str
    place: int
    sku: str
    sold: int
    expected: float
    probability: float
    saving: float
    why: str
    state: str

    @property
    def sold_share(self) -> float:
        """Sold of expected, at most 1: the length of the bar."""
        return min(1.0, self.sold / self.expected) if self.expected > 0 else 1.0


@dataclass(frozen=True)
class StoreChecks:
    """A store's part of the list; ``share`` of the longest list, for the bar."""

    store: str
    to_check: int
    saving: float
    share: float


@dataclass(frozen=True)
class Changes:
    """The list against the last published one. ``gone_pairs`` names the first of those no longer on it."""

    since: str
    new: int
    still: int
    gone: int
    gone_pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReportContent:
    """A week in words and numbers; ids are free of control characters, nothing is escaped yet."""

    week: str
    days: str
    run_id: str
    to_check: int
    scored: int
    stores_scored: int
    saving: float
    cost_ignoring: float
    chance: Chance
    checks: tuple[Check, ...]  # the first LISTED
    stores: tuple[StoreChecks, ...]  # the first LISTED_STORES with something to check, most first
    stores_to_check: int  # all of them
    changes: Changes | None
    health: Health
    marks: tuple[Mark, ...]
    segments: Table
    gate: Table
    coverage: Table
    quarantine: Table
    timings: Table
    provenance: Table
    config: str
    links: Mapping[str, str]

    @property
    def top(self) -> tuple[Check, ...]:
        return self.checks[:TOP]

    @property
    def not_listed(self) -> int:
        return self.to_check - len(self.checks)


def build_content(
    result: WeekResult,
    *,
    previous: pd.DataFrame | None = None,
    links: Mapping[str, str] | None = None,
    override: Override | None = None,
    publish_anyway: str | None = None,
) -> ReportContent:
    """``previous``: flags of the last published week; None when there is none."""
    flags, totals = result.flags, result.totals
    # Of a week that is held for too many flags the best alone may be here: nobody knows then what is new.
    previous = previous if len(flags) == totals.flagged else None
    earlier = None if previous is None else _pairs(previous)
    return ReportContent(
        week=str(result.week),
        days=days(result.week),
        run_id=clean(result.run_id),
        to_check=totals.flagged,
        scored=totals.pairs,
        stores_scored=result.coverage.stores_reporting,
        saving=result.expected_saving,
        cost_ignoring=result.expected_cost_ignoring,
        chance=result.pricing.chance,
        checks=_checks(flags.head(LISTED), earlier),
        stores=_stores(flags),
        stores_to_check=totals.flagged_stores,
        changes=None if previous is None or earlier is None else _changes(flags, previous, earlier),
        health=health(result, override, publish_anyway),
        marks=marks(result),
        segments=segments_table(result),
        gate=gate_table(result),
        coverage=coverage_table(result),
        quarantine=quarantine_table(result),
        timings=timings_table(result),
        provenance=provenance_table(result),
        config=json.dumps(result.config.model_dump(mode="json"), indent=2, ensure_ascii=False),
        links={clean(name): address for name, address in (links or {}).items()},
    )


def _checks(flags: pd.DataFrame, earlier: set[tuple[str, str]] | None) -> tuple[Check, ...]:
    columns = zip(
        plain_texts(flags["store_id"]),
        plain_texts(flags["sku_id"]),
        flags["store_rank"].tolist(),
        flags["units"].tolist(),
        flags["expected_units"].tolist(),
        flags["anomaly_probability"].tolist(),
        flags["expected_saving"].tolist(),
        plain_texts(flags["reasons"]),
        strict=True,
    )
    return tuple(
        Check(
            rank=rank,
            store=clean(store),
            place=place,
            sku=clean(sku),
            sold=int(sold),
            expected=expected,
            probability=probability,
            saving=saving,
            why=clean(in_words(reasons)),
            state="" if earlier is None else _state((store, sku) in earlier),
        )
        for rank, (store, sku, place, sold, expected, probability, saving, reasons) in enumerate(columns, 1)
    )


def _state(seen: bool) -> str:
    return "still" if seen else "new"


def _stores(flags: pd.DataFrame) -> tuple[StoreChecks, ...]:
    """The stores with most to check."""
    by_store = flags.groupby("store_id", observed=True)["expected_saving"].agg(["size", "sum"])
    ordered = by_store.sort_values(["size", "sum"], ascending=False, kind="stable")
    most = max(int(ordered["size"].max()), 1) if len(ordered) else 1
    return tuple(
        StoreChecks(clean(store), int(size), float(saving), int(size) / most)
        for store, size, saving in ordered.head(LISTED_STORES).itertuples()
    )


def _changes(flags: pd.DataFrame, previous: pd.DataFrame, earlier: set[tuple[str, str]]) -> Changes:
    now = _pairs(flags)
    gone = sorted(earlier - now)
    weeks = previous["week"].astype(str) if "week" in previous.columns else pd.Series(dtype=str)
    return Changes(
        since=clean(weeks.iloc[0]) if len(weeks) else "last week",
        new=len(now - earlier),
        still=len(now & earlier),
        gone=len(gone),
        gone_pairs=tuple((clean(store), clean(sku)) for store, sku in gone[:GONE]),
    )


def _pairs(flags: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(plain_texts(flags["store_id"]), plain_texts(flags["sku_id"]), strict=True))
