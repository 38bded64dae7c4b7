"""`ew bench`."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from ew_pipeline.bench.contenders import CONTENDERS, OURS, Contender
from ew_pipeline.bench.measure import Size, measure
from ew_pipeline.console import emit_json, results, step
from ew_pipeline.errors import UsageError

SMALLEST = 1000


def bench(
    observed: Annotated[float, typer.Option(help="Observed pairs.")] = 1e7,
    rows: Annotated[int, typer.Option(help="Stores.")] = 70_000,
    cols: Annotated[int, typer.Option(help="SKUs.")] = 10_000,
    rank: Annotated[int, typer.Option(help="Rank of the simulated demand.")] = 5,
    peers: Annotated[bool, typer.Option(help="Also run other libraries.")] = True,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds over all contenders; medians are shown.")] = 1,
    growth: Annotated[
        str, typer.Option(help="Further sizes for ours, e.g. 1e5,1e6,1e8; rows and columns shrink along.")
    ] = "",
    picture: Annotated[Path | None, typer.Option(help="Draw the growth here (.svg, .png).")] = None,
    seed: Annotated[int, typer.Option(help="Of the simulated data.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Time and memory of our steps and of other libraries', each in a process of its own, turn by turn.

    Times are CPU and wall seconds from the sparse sales in memory; compilation is apart.
    """
    if observed < SMALLEST:
        raise UsageError(f"{observed:g} pairs are too few to time.", f"ask for at least {SMALLEST}.")
    size = Size(rows, cols, int(observed), rank, seed)
    chosen = [c for c in CONTENDERS if peers or c.name in OURS]
    skipped = {c.name: c.missing for c in chosen if c.missing}
    found = compare([c for c in chosen if not c.missing], size, repeats)
    sizes = [float(text) for text in growth.split(",") if text.strip()]
    grown = grow(size, sizes, found) if sizes else {}
    if picture is not None and grown:
        draw_growth(grown, picture)
    if json:
        emit_json({"size": size, "contenders": found, "skipped": skipped, "growth": grown})
        return
    results().print(as_table(found))
    for name, why in skipped.items():
        results().print(f"{name}: skipped, {why}")
    for name, line in grown.items():
        results().print(f"{name}: CPU time grows like observed^{line['exponent']:.2f}")


def compare(contenders: list[Contender], size: Size, repeats: int) -> dict[str, dict[str, Any]]:
    """Medians over ``repeats`` turns; contenders alternate, so that load strikes all alike."""
    runs: dict[str, list[dict[str, Any]]] = {c.name: [] for c in contenders}
    for _ in range(repeats):
        for contender in contenders:
            with step(contender.name) as line:
                figures = measure(contender, size)
                line.detail = f"{figures['cpu_s']:.2f} CPU s"
            runs[contender.name].append(figures)
    return {
        name: {**took[-1], **{key: statistics.median(run[key] for run in took) for key in _TIMES}}
        for name, took in runs.items()
    }


_TIMES = ("cpu_s", "wall_s", "extra_gb", "warm_up_cpu_s")


def grow(size: Size, sizes: list[float], found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """CPU seconds of ours by number of observed pairs, with the exponent of a line through the logarithms.

    Rows and columns go with the square root, so that the density stays what it is.
    """
    grown: dict[str, dict[str, Any]] = {}
    for contender in CONTENDERS:
        if contender.name not in OURS:
            continue
        seconds = {float(size.observed): float(found[contender.name]["cpu_s"])}
        for observed in sizes:
            ratio = math.sqrt(observed / size.observed)
            other = Size(
                max(int(size.rows * ratio), 20),
                max(int(size.cols * ratio), 20),
                int(observed),
                size.rank,
                size.seed,
            )
            with step(f"{contender.name}, {observed:g} pairs"):
                seconds[observed] = float(measure(contender, other)["cpu_s"])
        points = sorted(seconds.items())
        grown[contender.name] = {"cpu_s": points, "exponent": exponent(points)}
    return grown


def exponent(points: list[tuple[float, float]]) -> float:
    """The slope of log time in log size."""
    sizes, seconds = np.log(np.array(points)).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def as_table(found: dict[str, dict[str, Any]]) -> Table:
    """One line per contender."""
    table = Table("", "CPU s", "wall s", "extra GB", "error observed", "error unobserved", "p_A (true 4%)")
    for name, figures in found.items():
        facts = figures.get("facts") or {}
        rate = facts.get("anomaly_rate")
        table.add_row(
            name,
            f"{figures['cpu_s']:.1f}",
            f"{figures['wall_s']:.1f}",
            f"{figures['extra_gb']:.2f}",
            *(
                "" if figures[key] is None else f"{figures[key]:.4f}"
                for key in ("observed_error", "unobserved_error")
            ),
            "" if rate is None else f"{100.0 * float(rate):.2f}%",
        )
    return table


def draw_growth(grown: dict[str, dict[str, Any]], path: Path) -> None:
    """CPU seconds against observed pairs, both logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for name, line in grown.items():
        axes.loglog(*zip(*line["cpu_s"], strict=True), marker="o", label=name)
    axes.set_xlabel("observed pairs")
    axes.set_ylabel("CPU seconds")
    axes.legend()
    figure.savefig(path)
