"""What an evaluation page shows, made once; the template only lays it out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ew_pipeline.backtest.measures import Measures
from ew_pipeline.backtest.page.pictures import WeekPoint
from ew_pipeline.backtest.parts import Part
from ew_pipeline.outputs.report_tables import Table
from ew_pipeline.outputs.words import clean, count, share

RIVALS = ("trailing", "trailing-sku", "calibrated-history", "history")
MOST_LINES = 4


@dataclass(frozen=True)
class Figure:
    """A number in large, and what it is."""

    term: str
    value: str
    words: str


@dataclass(frozen=True)
class EvaluationContent:
    """A page.

    ``shown`` is the policy in question, ``policies`` all of them with their measures, ``series`` the cost of
    a few by week. ``good`` colours the verdict.
    """

    eyebrow: str
    headline: str
    good: bool
    verdict: str
    figures: tuple[Figure, ...]
    shown: str
    policies: Mapping[str, Measures]
    series: Mapping[str, Sequence[WeekPoint]]
    tables: tuple[Table, ...]
    facts: Table
    note: str


def compared(policies: Mapping[str, Measures], shown: str) -> tuple[str, ...]:
    """The policy in question and the few drawn beside it: what is done today, then the cheapest."""
    rest = [name for name in cheapest_first(policies) if name not in ("ignore", shown)]
    usual = [name for name in RIVALS if name in rest]
    return (shown, *dict.fromkeys([*usual[:MOST_LINES], *rest]))[: MOST_LINES + 1]


def series_of(
    weeks: Sequence[str], policies: Mapping[str, Measures], names: Sequence[str]
) -> dict[str, list[WeekPoint]]:
    """Cost by week of ``names``, from measures over all ``weeks``."""
    return {
        name: [
            WeekPoint(week, value, *ends)
            for week, value, ends in zip(
                weeks,
                policies[name].cost_ratio_by_week,
                policies[name].cost_ratio_by_week_interval,
                strict=True,
            )
        ]
        for name in names
    }


def parts_of(measures: Measures, kind: str) -> list[tuple[str, Part]]:
    """Bands or segments with a name to show."""
    if kind == "band":
        return [(band.words, band) for band in measures.bands]
    return [(segment.name, segment) for segment in measures.segments]


def policies_table(policies: Mapping[str, Measures], shown: str) -> Table:
    """Every policy by every measure, the cheapest first."""
    rows = []
    for name in cheapest_first(policies):
        m = policies[name]
        rows.append(
            (
                f"{clean(name)} *" if name == shown else clean(name),
                _number(m.cost_ratio),
                _ends(m.cost_ratio_interval),
                _number(m.cost_ratio_exact["notebook"]),
                _number(m.regret_to_constant, signed=True),
                _number(m.auc),
                _number(m.average_precision),
                _number(m.tpr_at["0.05"]),
                _number(m.calibration_gap),
                _number(m.lift_top_k, 2),
            )
        )
    columns = (
        "Policy",
        "Cost",
        "90% interval",
        "Notebook's costs",
        "Over best constant",
        "AUC",
        "AP",
        "TPR at 5%",
        "Calibration gap",
        "Lift, top 5",
    )
    return Table(
        "Every measure",
        columns,
        tuple(rows),
        frozenset(range(1, len(columns))),
        "Cost is a ratio to doing nothing, exact over uniform costs; below 1 pays for itself. The interval "
        "is over weeks (over stores for a single week).",
    )


def parts_table(title: str, measures: Measures, kind: str) -> Table | None:
    """One policy on parts of the pairs; None when there is one part only."""
    parts = parts_of(measures, kind)
    if len(parts) < 2:
        return None
    rows = tuple(
        (clean(label), count(p.pairs), share(p.anomaly_rate), _number(p.cost_ratio), _number(p.auc))
        for label, p in parts
    )
    first = "Units a week" if kind == "band" else "Segment"
    columns = (first, "Pairs", "Anomalies", "Cost", "AUC")
    return Table(title, columns, rows, frozenset({1, 2, 3, 4}))


def cheapest_first(policies: Mapping[str, Measures]) -> list[str]:
    """By cost; those without a figure last."""
    cost = {name: one.cost_ratio for name, one in policies.items()}
    return sorted(cost, key=lambda name: (math.isnan(cost[name]), cost[name]))


def _number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    if value != value:
        return "–"
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def _ends(ends: tuple[float, float]) -> str:
    return f"{_number(ends[0])} – {_number(ends[1])}"
