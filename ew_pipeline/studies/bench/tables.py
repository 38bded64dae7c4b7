"""The tables of `ew bench`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from ew_pipeline.studies.bench.growth import Points, bandwidth, exponent, last_exponent, lines
from ew_pipeline.studies.bench.requirements import Requirement

GROWTH = ("exponent", "of the last two", "of bandwidth")


def as_table(found: dict[str, dict[str, Any]]) -> Table:
    """One line per contender."""
    table = Table(
        "", "CPU s", "wall s", "extra GB", "warm-up CPU s", "error observed", "error unobserved", "p_A"
    )
    for name, figures in found.items():
        rate = (figures.get("facts") or {}).get("anomaly_rate")
        table.add_row(
            name,
            f"{figures['cpu_s']:.2f}",
            f"{figures['wall_s']:.2f}",
            f"{figures['extra_gb']:.2f}",
            f"{figures['warm_up_cpu_s']:.1f}",
            *(
                "" if figures[key] is None else f"{figures[key]:.4f}"
                for key in ("observed_error", "unobserved_error")
            ),
            "" if rate is None else f"{100.0 * float(rate):.2f}%",
        )
    return table


def steps_table(steps: list[dict[str, Any]]) -> Table:
    """CPU seconds of each step by size, its growth, and the share of the memory bandwidth it reaches."""
    reached = bandwidth(steps[-1])
    table = Table("step, CPU s", *(f"{one['observed']:g} pairs" for one in steps), *GROWTH)
    for name, points in lines(steps).items():
        table.add_row(
            name,
            *(f"{seconds:.3g}" for _, seconds in points),
            *said_growth(name, points, reached),
        )
    return table


def said_growth(
    name: str, points: Points, reached: Mapping[str, Mapping[str, float]]
) -> tuple[str, str, str]:
    """What belongs under ``GROWTH``."""
    grown = len(points) > 1
    return (
        f"{exponent(points):.2f}" if grown else "",
        f"{last_exponent(points):.2f}" if grown else "",
        f"{100.0 * reached[name]['share']:.0f}%" if name in reached else "",
    )


def said_size(run: dict[str, Any]) -> str:
    """How many rows, and over how many weeks."""
    weeks = f"{run['weeks']} weeks" if run["weeks"] > 1 else "one week"
    return f"{run['rows']:.2g} rows of {weeks}"


def required_table(requirements: list[Requirement]) -> Table:
    """What is required, what was seen, and whether it holds."""
    table = Table("", "required", "seen", "")
    for line in requirements:
        verdict = {True: "holds", False: "FAILS", None: ""}[line.passed]
        table.add_row(line.what, line.required, line.words, verdict)
    return table
