"""Figures as tables on stdout."""

from __future__ import annotations

from collections.abc import Sequence

from ew_pipeline.core.console import number, print_table
from ew_pipeline.studies.experiments.requirements import Verdict

VERDICT_HEAD = ("figure", "measured", "required", "aim", "")


def print_verdicts(title: str, verdicts: Sequence[Verdict]) -> None:
    """What is required beside what was measured."""
    print_table(title, VERDICT_HEAD, [verdict_row(v) for v in verdicts])


def verdict_row(verdict: Verdict) -> tuple[str, ...]:
    """The cells under ``VERDICT_HEAD``."""
    required = verdict.requirement
    return (
        f"{required.case}: {required.words}" if required.case else required.words,
        number(verdict.value, 4),
        required.bound,
        "" if required.aim is None else f"<= {required.aim:g}",
        verdict.mark,
    )
