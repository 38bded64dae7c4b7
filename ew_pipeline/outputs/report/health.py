"""Is the week fit to act on, in one line, and what a reader must know before acting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ew_pipeline.core.errors import name_some
from ew_pipeline.outputs.report.words import clean, count, plural, share, theta
from ew_pipeline.results import Override, WeekResult

State = Literal["healthy", "held", "overridden", "shadow"]
LABELS: dict[State, str] = {
    "healthy": "Healthy",
    "held": "Held back",
    "overridden": "Published by hand",
    "shadow": "Shadow run",
}


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
