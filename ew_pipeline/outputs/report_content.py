"""What there is to say about a week, once, for every renderer: ``page`` and ``summary``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from ew_pipeline.core.errors import name_some
from ew_pipeline.core.texts import plain_texts
from ew_pipeline.decide.reasons import in_words
from ew_pipeline.infer.pricing import Chance
from ew_pipeline.outputs.report_tables import (
    Table,
    coverage_table,
    gate_table,
    provenance_table,
    quarantine_table,
    segments_table,
    timings_table,
)
from ew_pipeline.outputs.words import clean, count, days, plural, share, theta
from ew_pipeline.results import Override, WeekResult

State = Literal["healthy", "held", "overridden", "shadow"]
LABELS: dict[State, str] = {
    "healthy": "Healthy",
    "held": "Held back",
    "overridden": "Published by hand",
    "shadow": "Shadow run",
}
TOP = 20
LISTED = 2_000  # more rows than this belong in the CSV
LISTED_STORES = 500  # likewise; the JSON has them all
STORES = 12
GONE = 8


@dataclass(frozen=True)
class Health:
    """The verdict of the gate.

    ``command`` publishes a held week anyway; None when there is nothing to publish or nothing in the way.
    """

    state: State
    line: str
    reasons: tuple[str, ...]
    command: str | None

    @property
    def label(self) -> str:
        return LABELS[self.state]


@dataclass(frozen=True)
class Mark:
    """Something that limits what the result means: a short name and a sentence."""

    name: str
    words: str


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


def health(result: WeekResult, override: Override | None = None, command: str | None = None) -> Health:
    """``command``: what to type to publish a held week anyway."""
    failed = tuple(check.words for check in result.held)
    checks = plural(len(result.gate), "check")
    if result.shadow:
        passed = "all passed" if not failed else f"{len(failed)} failed"
        return Health("shadow", f"Computed and tracked, not published. Of {checks}, {passed}.", failed, None)
    if not failed:
        line = f"All {checks} passed: {theta(result.pooled)}."
        return Health("healthy", line, (), None)
    if override is not None:
        line = (
            f"{len(failed)} of {checks} failed; published all the same by {clean(override.who)}: "
            f"“{clean(override.why)}”."
        )
        return Health("overridden", line, failed, None)
    line = f"{len(failed)} of {checks} failed. Nothing was published; the last published week stands."
    return Health("held", line, failed, command or publish_command(result))


def publish_command(result: WeekResult) -> str:
    return f"ew run --week {result.week} --sales … --override 'why it is fine'"


def marks(result: WeekResult) -> tuple[Mark, ...]:
    """What a reader must know, in the order in which it matters."""
    coverage, config = result.coverage, result.config
    found: list[Mark] = []
    if result.shadow:
        found.append(Mark("shadow", "a trial: these flags are not the published ones"))
    if coverage.zero_rule == "inferred":
        found.append(
            Mark(
                "zeros inferred",
                f"no listing was given: a pair counts as ranged when it sold in the {config.inferred_weeks} "
                "weeks before, so a delisted article can look like a wrong record",
            )
        )
    if coverage.history_weeks == 0:
        found.append(
            Mark(
                "cross-section only",
                "pairs were compared with each other, not with their own past"
                + ("" if config.history else " (history is switched off)"),
            )
        )
    if result.pricing.asked == "auto" or result.pricing.form != "posterior":
        found.append(Mark("priced", clean(result.pricing.words)))
    if (alone := result.cross_section) is not None:
        found.append(
            Mark(
                "cross-section alone",
                f"without its past the week would flag {plural(alone.flags, 'pair')}, {count(alone.both)} of "
                f"them flagged here too (p_A {share(alone.theta.anomaly_rate)}"
                + (")" if alone.theta.identified else ", not identified)"),
            )
        )
    if result.contract.rows_quarantined:
        rows = result.contract.rows_quarantined
        found.append(Mark(f"{plural(rows, 'row')} quarantined", "faulty rows were set aside, not repaired"))
    if coverage.stores_missing:
        missing = coverage.stores_missing
        found.append(
            Mark(
                f"{plural(len(missing), 'store')} missing",
                f"no report this week from {name_some((clean(store) for store in missing), len(missing))}",
            )
        )
    if coverage.pairs_promoted:
        left = "left out" if config.promotions == "exclude" else "compared like any other"
        found.append(Mark(f"{count(coverage.pairs_promoted)} promoted", f"pairs on promotion were {left}"))
    if drawn := len(result.random_checks):
        found.append(
            Mark(
                f"{count(drawn)} random checks",
                "pairs that are not flagged, drawn to learn what the flags miss; last on the check lists",
            )
        )
    if coverage.pairs_not_scored:
        found.append(
            Mark(f"{count(coverage.pairs_not_scored)} not scored", "too little data on store, SKU and pair")
        )
    if not result.pooled.identified:
        found.append(
            Mark("theta not identified", clean(result.pooled.reason.removeprefix("not identified: ")))
        )
    found.extend(
        Mark(f"segment {clean(segment.name)}" if len(result.segments) > 1 else "fit", clean(warning))
        for segment in result.segments
        for warning in segment.warnings
        if result.pooled.identified or "not identified" not in warning  # said above
    )
    return tuple(found)


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
            state="" if earlier is None else "still" if (store, sku) in earlier else "new",
        )
        for rank, (store, sku, place, sold, expected, probability, saving, reasons) in enumerate(columns, 1)
    )


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
