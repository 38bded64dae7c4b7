"""What the `ew` command shows: progress and messages on stderr, results on stdout.

A script can pipe the results while a person watches the progress.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ew_pipeline.core.errors import EwError

NAME_WIDTH = 44
WIDTH_WITHOUT_TERMINAL = 120
STYLE_OF = {"pass": "green", "FAIL": "bold red"}


class ExitCode(IntEnum):
    """How a command ended, for the scheduler that started it.

    0 DONE
        The command did what it says.
    1 DATA_REJECTED
        The data are not what was promised. Nothing was published; correct the data and run again.
    2 USAGE
        The command was called wrongly: an unknown option, or a value that makes no sense.
    3 FAILED
        The method gave no answer on these data, or the program failed. Nothing was published.
    4 HELD_BACK
        The result was computed and kept, but held back from publication because a check on it failed.

    A command stopped by Ctrl-C ends with 130, as is the custom of shells.
    """

    DONE = 0
    DATA_REJECTED = 1
    USAGE = 2
    FAILED = 3
    HELD_BACK = 4


@dataclasses.dataclass
class Step:
    """A step that is under way; ``detail`` is printed at the end of its line."""

    detail: str = ""


@cache
def messages() -> Console:
    """The console of progress and messages: stderr."""
    return Console(stderr=True, highlight=False)


@cache
def results() -> Console:
    """The console of results: stdout. For people; `emit_json` is for machines."""
    return Console(highlight=False)


@contextmanager
def step(name: str) -> Iterator[Step]:
    """Print one aligned line when the block ends: how it ended, its name, its seconds, its detail."""
    under_way = Step()
    started = time.perf_counter()
    try:
        yield under_way
    except BaseException:
        _line("failed", "bold red", name, time.perf_counter() - started, under_way.detail)
        raise
    _line("ok", "green", name, time.perf_counter() - started, under_way.detail)


def fail(error: EwError) -> None:
    """Say what is wrong and what to do next."""
    _say("Error: ", "bold red", error.message)
    if error.next_step is not None:
        _say("Next:  ", "bold", error.next_step)


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """First column to the left, the others to the right; pass and FAIL in colour."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for position, name in enumerate(head):
        table.add_column(name, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=STYLE_OF.get(cell, "")) for cell in row))
    _console().print(table)


def print_lines(title: str, lines: Sequence[str]) -> None:
    console = _console()
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(Text(f"- {line}"), soft_wrap=True)


def number(value: float | None, digits: int = 3) -> str:
    """A figure for people; a dash where there is none (a cost ratio without anomalies, for instance)."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def tally(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "–"


def emit_json(value: object) -> None:
    """Print ``value`` as one JSON document on stdout.

    Dataclasses become objects, arrays lists; NaN and infinity, which JSON does not have, become null.
    """
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=2)
    results().print(Text(text), soft_wrap=True)


def plain(value: Any) -> Any:
    """``value`` as JSON knows it: dataclasses as objects, arrays as lists, NaN and infinity as null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy arrays and scalars, without importing numpy here
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _line(outcome: str, style: str, name: str, seconds: float, detail: str) -> None:
    text = Text(f"{outcome:<8}", style=style)
    text.append(f"{name:<{NAME_WIDTH}} {seconds:8.2f} s", style="default")
    if detail:
        text.append(f"  {detail}", style="dim")
    messages().print(text, soft_wrap=True)


def _say(label: str, style: str, text: str) -> None:
    # Text, not markup: a message may hold [brackets]. Not wrapped: a log is searched line by line.
    messages().print(Text(label, style=style).append(text, style="default"), soft_wrap=True)


def _console() -> Console:
    """``results``. In a file or a pipe, where there is no width to keep to, wide enough for every table."""
    return results() if results().is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL, highlight=False)
