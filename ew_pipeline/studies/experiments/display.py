"""Figures as tables on stdout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ew_pipeline.core.console import results
from ew_pipeline.studies.experiments.requirements import Verdict

STYLE_OF = {"pass": "green", "FAIL": "bold red"}
WIDTH_WITHOUT_TERMINAL = 120
VERDICT_HEAD = ("figure", "measured", "required", "aim", "")


def number(value: float | None, digits: int = 3) -> str:
    """A figure for people; a dash where there is none (a cost ratio without anomalies, for instance)."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def tally(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "–"


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """First column to the left, the others to the right; pass and FAIL in colour."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for position, name in enumerate(head):
        table.add_column(name, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=STYLE_OF.get(cell, "")) for cell in row))
    _console().print(table)


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


def print_lines(title: str, lines: Sequence[str]) -> None:
    console = _console()
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(Text(f"- {line}"), soft_wrap=True)


def _console() -> Console:
    """Stdout. In a file or a pipe, where there is no width to keep to, wide enough for every table."""
    return results() if results().is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL, highlight=False)
