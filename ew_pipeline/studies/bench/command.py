"""`ew bench`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from ew_pipeline.core.console import emit_json, results, step
from ew_pipeline.core.errors import FitError, UsageError
from ew_pipeline.studies.bench.contenders import CONTENDERS, Contender
from ew_pipeline.studies.bench.machine import machine, said_machine
from ew_pipeline.studies.bench.measure import measure, medians
from ew_pipeline.studies.bench.page import (
    Requirement,
    as_table,
    bandwidth,
    draw_growth,
    exponent,
    grow,
    lines,
    of_fits,
    of_growth,
    of_reading,
    required_table,
    steps_table,
)
from ew_pipeline.studies.bench.reading import compare_readers
from ew_pipeline.studies.bench.small import time_small
from ew_pipeline.studies.bench.stored import Size, store

SMALLEST = 1000
SAMPLED_PAIRS = 1_000_000  # that the sampler is timed on


def bench(
    observed: Annotated[float, typer.Option(help="Observed pairs.")] = 1e7,
    rows: Annotated[int, typer.Option(help="Stores.")] = 70_000,
    cols: Annotated[int, typer.Option(help="SKUs.")] = 10_000,
    rank: Annotated[int, typer.Option(help="Rank of the simulated demand.")] = 5,
    peers: Annotated[bool, typer.Option(help="Also run other libraries.")] = True,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of all contenders; medians are shown.")] = 3,
    growth: Annotated[
        str, typer.Option(help="Sizes at which every step is timed; rows and columns shrink or grow along.")
    ] = "1e5,1e6,1e7,1e8",
    instances: Annotated[
        int, typer.Option(min=0, help="Small matrices, 100 x 100, that the tiers for these are timed on.")
    ] = 20,
    picture: Annotated[Path | None, typer.Option(help="Draw the growth here (.svg, .png).")] = None,
    seed: Annotated[int, typer.Option(help="Of the simulated data.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Time and memory of our steps and of other libraries', each in a process of its own, turn by turn.

    Times are CPU and wall seconds from the sparse sales in memory; loading and compiling are apart. Five
    minutes on two quick cores, and 6 GB: the largest of ``--growth`` takes most of both.
    """
    if observed < SMALLEST:
        raise UsageError(f"{observed:g} pairs are too few to time.", f"ask for at least {SMALLEST}.")
    size = Size(rows, cols, int(observed), rank, seed)
    chosen = [c for c in CONTENDERS if peers or c.ours]
    skipped = {c.name: why for c in chosen if (why := c.absent(size))}
    with tempfile.TemporaryDirectory(prefix="ew-bench-") as folder:
        with step(f"draw {size.observed:,} pairs"):
            store(size, Path(folder))
        found, failed = compare([c for c in chosen if c.name not in skipped], Path(folder), rank, repeats)
        with step("read a long parquet file"):
            read = compare_readers(Path(folder), repeats)
    small = time_small(instances, SAMPLED_PAIRS, seed) if instances else None
    steps = grow(size, [float(text) for text in growth.split(",") if text.strip()])
    table = [*of_fits(found), *of_reading(read), *(small.requirements if small else ()), *_of_steps(steps)]
    if picture is not None and steps:
        draw_growth(lines(steps), picture)
    skipped |= failed
    if json:
        emit_json(
            {
                "machine": machine(),
                "size": size,
                "turns": repeats,
                "requirements": table,
                "contenders": found,
                "skipped": skipped,
                "reading": read,
                "small": small,
                "steps": steps,
                "bandwidth": bandwidth(steps[-1]) if steps else {},
            }
        )
        return
    results().print(as_table(found))
    for name, why in skipped.items():
        results().print(f"{name}: not run, {why}")
    if steps:
        results().print(steps_table(steps))
    results().print(required_table(table))
    results().print(said_machine(machine()))


def _of_steps(steps: list[dict[str, Any]]) -> list[Requirement]:
    if len(steps) < 2:
        return []
    return of_growth({name: exponent(points) for name, points in lines(steps).items()}, steps[-1])


def compare(
    contenders: list[Contender], folder: Path, rank: int, repeats: int
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Medians over ``repeats`` turns; contenders alternate, so that load strikes all alike. A peer that
    fails is left out, and the reason returned; one of ours must not fail."""
    runs: dict[str, list[dict[str, Any]]] = {c.name: [] for c in contenders}
    failed: dict[str, str] = {}
    for _ in range(repeats):
        for contender in contenders:
            if contender.name in failed:
                continue
            with step(contender.name) as line:
                try:
                    figures = measure(contender, folder, rank)
                except FitError as error:
                    if contender.ours:
                        raise
                    failed[contender.name] = line.detail = error.message
                    continue
                line.detail = f"{figures['cpu_s']:.2f} CPU s"
            runs[contender.name].append(figures)
    found = {name: medians(took) for name, took in runs.items() if took and name not in failed}
    return found, failed
