"""The progress of a backfill: a bar on a terminal, a line a week anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ew_pipeline.core.console import messages
from ew_pipeline.weekly.outcome import WeekDone

OnDone = Callable[[WeekDone], None]


@contextmanager
def progress(total: int) -> Iterator[OnDone]:
    """A bar with the time left on a terminal, and a line per week anywhere."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages(), transient=True) as bar:
        task = bar.add_task("weeks", total=total)

        def on_done(done: WeekDone) -> None:
            bar.console.print(line(done), markup=False, soft_wrap=True)
            bar.advance(task)

        yield on_done


def line(done: WeekDone) -> str:
    return f"{done.status:<10}{done.week}  {done.seconds:6.1f} s  {done.words}"
