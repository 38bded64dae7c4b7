"""Verdicts in words: what changed, by how much, and what to look at."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ew_pipeline.drift.attribute import (
    ANOMALY_DRIFT,
    COMPOSITION,
    OVERDISPERSION,
    STABLE,
    Event,
    Moved,
    Verdict,
)
from ew_pipeline.drift.kinds import BY_NAME, Kind

MEANING: dict[Verdict, str] = {
    STABLE: "the anomaly parameters are as they were",
    ANOMALY_DRIFT: "the anomalies themselves changed",
    COMPOSITION: "what the model sees changed, not the anomalies",
    OVERDISPERSION: "healthy sales scatter differently, so theta before and after is not comparable",
}
SEVERITY: dict[Verdict, str] = {
    STABLE: "none",
    ANOMALY_DRIFT: "high",
    OVERDISPERSION: "medium",
    COMPOSITION: "low",
}


def value_text(kind: Kind, value: float) -> str:
    if not math.isfinite(value):
        return "–"
    if kind.style == "percent":
        return f"{value:.2%}" if value < 0.1 else f"{value:.1%}"
    return f"{value:,.0f}" if kind.style == "whole" else f"{value:.3g}"


def moved_text(moved: Moved) -> str:
    kind = BY_NAME[moved.series]
    return f"{moved.title} {value_text(kind, moved.before)} -> {value_text(kind, moved.after)}"


def event_words(event: Event) -> str:
    """``anomaly drift in all since 2026-W30: records wrong (p_A) 4.0% -> 8.1%; the anomalies …``."""
    what = ", ".join(moved_text(one) for one in event.moved)
    return f"{event.verdict} in {event.segment} since {event.since}: {what}; {MEANING[event.verdict]}."


def look_at(event: Event) -> str:
    """Where to look, for the series that changed."""
    places = dict.fromkeys(BY_NAME[one.series].look_at for one in _leading(event.verdict, event.moved))
    return "; ".join(place for place in places if place)


def _leading(verdict: Verdict, moved: Sequence[Moved]) -> list[Moved]:
    group = {ANOMALY_DRIFT: "anomaly", COMPOSITION: "composition", OVERDISPERSION: "dispersion"}.get(verdict)
    return [one for one in moved if BY_NAME[one.series].group == group]
