"""The options that all experiments share, and how a study of synthetic instances is run with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ew_pipeline.core.arrays import available_threads
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.experiments.instance import InstanceTask, run_instance, warm_up
from ew_pipeline.studies.experiments.record import Record
from ew_pipeline.studies.experiments.runner import Study

Seed = Annotated[int, typer.Option(min=0, help="Base seed; instance k has its own child of it.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=0, help="Processes, one thread each (default: one per core); 0 runs in this one."),
]
Out = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Folder for records and pictures; a study found there is resumed."),
]
Size = Annotated[int, typer.Option(min=2, help="n = m; the paper has 100.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

RECORDS = "instances"  # one file for all studies of instances: table1, auc and limits meet the same ones
SOURCES = (
    "core/arrays.py",
    "core/kernels.py",
    "method",
    "backtest/metrics.py",
    "studies/baselines.py",
    "studies/cost.py",
    "studies/ensemble.py",
    "studies/experiments/instance.py",
    "studies/experiments/near_bayes.py",
    "studies/experiments/record.py",
)


def processes(jobs: int | None) -> int:
    return available_threads() if jobs is None else jobs


def names(text: str, allowed: Collection[str], what: str) -> list[str]:
    """A comma-separated list in which every name is allowed, in the order given."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in allowed]
    if unknown or not chosen:
        raise UsageError(
            f"unknown {what}: {', '.join(unknown) or 'none given'}.", f"choose from {', '.join(allowed)}."
        )
    return list(dict.fromkeys(chosen))


def run_records(
    title: str, tasks: Sequence[InstanceTask], jobs: int | None, out: Path | None
) -> list[Record]:
    """Run or take over every task; the records in the same order."""
    study = Study(title, run_instance, prepare=warm_up, sources=SOURCES, records=RECORDS)
    return [Record.from_json(row) for row in study.run(tasks, jobs=processes(jobs), folder=out)]
