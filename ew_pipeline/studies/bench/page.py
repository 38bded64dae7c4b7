"""What `ew bench` says: tables, growth with the number of pairs, and what is required of each figure.

`ew bench page` puts what the benchmarks printed as JSON between two marks of a page, as Markdown.
"""

from __future__ import annotations

import json as jsonlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from ew_pipeline.core.console import results, step
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.bench.machine import said_machine
from ew_pipeline.studies.bench.measure import child
from ew_pipeline.studies.bench.stored import Size, store

GROWTH = ("exponent", "of the last two", "of bandwidth")
Points = list[tuple[float, float]]
Figures = Mapping[str, Mapping[str, Any]]
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


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


def steps_at(folder: Path, rank: int) -> dict[str, Any]:
    """What ``passes`` prints of the data in a folder, in a process of its own."""
    return child("ew_pipeline.studies.bench.passes", str(folder), str(rank))


def grow(size: Size, sizes: Sequence[float]) -> list[dict[str, Any]]:
    """The steps at each number of observed pairs; the density stays what it is."""
    found = []
    for observed in sorted(sizes):
        with tempfile.TemporaryDirectory(prefix="ew-bench-") as folder, step(f"steps at {observed:g} pairs"):
            store(size.grown(observed), Path(folder))
            found.append(steps_at(Path(folder), size.rank))
    return found


def lines(found: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """CPU seconds by observed pairs, for every step."""
    ordered = sorted(found, key=lambda one: one["observed"])
    return {
        name: [(float(one["observed"]), float(one["passes"][name]["cpu_s"])) for one in ordered]
        for name in ordered[0]["passes"]
    }


def exponent(points: Points) -> float:
    """The slope of log time in log size."""
    sizes, seconds = np.log(np.array(points)).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def last_exponent(points: Points) -> float:
    """The same between the two largest sizes."""
    return exponent(sorted(points)[-2:])


def bandwidth(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Of the passes that memory may bound: GB per CPU second, and its share of the measured most."""
    most = float(found["stream_gb_per_cpu_s"])
    reached = {
        name: one["bytes"] / one["cpu_s"] / 1e9 for name, one in found["passes"].items() if one["bytes"]
    }
    return {name: {"gb_per_cpu_s": rate, "share": rate / most} for name, rate in reached.items()}


def draw_growth(grown: Mapping[str, Points], path: Path) -> None:
    """CPU seconds against observed pairs, both logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, points in grown.items():
        whole = name.startswith("whole")
        axes.loglog(
            *zip(*points, strict=True),
            marker="o",
            markersize=5 if whole else 3,
            linewidth=2.2 if whole else 1.0,
            label=f"{name} ({exponent(points):.2f})",
        )
    axes.set_xlabel("observed pairs")
    axes.set_ylabel("CPU seconds")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", title="step (exponent)")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


@dataclass(frozen=True)
class Requirement:
    """One line of the table. ``seen`` is None where the peer or the step was not run, ``passed`` also where
    nothing is required."""

    what: str
    required: str
    seen: float | None
    unit: str
    passed: bool | None

    @property
    def words(self) -> str:
        return "not run" if self.seen is None else f"{self.seen:.3g}{self.unit}"


def at_least(what: str, seen: float | None, least: float, unit: str) -> Requirement:
    passed = None if seen is None else seen >= least
    return Requirement(what, f">= {least:g}{unit}", seen, unit, passed)


def at_most(what: str, seen: float | None, most: float, unit: str) -> Requirement:
    passed = None if seen is None else seen <= most
    return Requirement(what, f"<= {most:g}{unit}", seen, unit, passed)


def reported(what: str, seen: float | None, unit: str) -> Requirement:
    return Requirement(what, "", seen, unit, None)


def times_faster(found: Figures, ours: str, peer: str, key: str) -> float | None:
    """How many times the peer's seconds are ours."""
    if ours not in found or peer not in found:
        return None
    return float(found[peer][key]) / float(found[ours][key])


def of_fits(found: Figures) -> list[Requirement]:
    """The fits beside other libraries', in one run, in CPU and in wall time. The limit of ``fast`` is on CPU
    time: it was set on one core, and a part of what takes so little cannot be shared out."""
    extra = {name: figures["extra_gb"] for name, figures in found.items()}
    fixed = "ours: default, fixed rank"
    quick = times_faster(found, "ours: fast", "implicit ALS", "wall_s")
    return [
        *_faster(found, "ALS as cmfrec (rank, lambda, sweeps)", "ours: ALS as cmfrec", "cmfrec ALS", 4.0),
        _faster(found, "fast, sales to f, beside implicit", "ours: fast", "implicit ALS", 8.0)[0],
        reported("fast, sales to f, beside implicit, wall", quick, "x"),
        at_most("fast, memory beyond the sales", extra.get("ours: fast"), 0.5, " GB"),
        *_faster(found, "default at a fixed rank, beside implicit", fixed, "implicit ALS", 1.0),
        at_most("default at a fixed rank, memory beyond the sales", extra.get(fixed), 1.0, " GB"),
        *_faster(
            found, "default, automatic rank and noise, beside Spark ALS", "ours: default", "Spark ALS", 1.0
        ),
        *(
            at_most(
                f"default, error on {where} pairs over the best ALS",
                _error_over_best(found, f"{where}_error"),
                1.0,
                "",
            )
            for where in ("observed", "unobserved")
        ),
    ]


def _faster(found: Figures, what: str, ours: str, peer: str, least: float) -> list[Requirement]:
    return [
        at_least(f"{what}, {time}", times_faster(found, ours, peer, key), least, "x")
        for time, key in (("CPU", "cpu_s"), ("wall", "wall_s"))
    ]


def of_growth(grown: Mapping[str, float], largest: Mapping[str, Any]) -> list[Requirement]:
    """Exponents of CPU time in the number of observed pairs, and the memory of the largest size."""
    memory = at_most(f"memory of all at {largest['observed']:g} pairs", largest["peak_gb"], 16.0, " GB")
    return [
        *(at_most(f"growth of: {step}", exponent, 1.05, "") for step, exponent in grown.items()),
        memory,
    ]


def of_reading(read: Figures) -> list[Requirement]:
    """A long parquet file to the matrix."""
    faster = [
        at_least(
            f"long parquet to SalesMatrix, beside pandas, {time}",
            float(read["pandas"][key]) / float(read["ours"][key]),
            2.0,
            "x",
        )
        for time, key in (("CPU", "cpu_s"), ("wall", "wall_s"))
    ]
    return [*faster, at_most("long parquet to SalesMatrix, memory", read["ours"]["peak_gb"], 0.5, " GB")]


def _error_over_best(found: Figures, key: str) -> float | None:
    errors = [float(figures[key]) for name, figures in found.items() if "ALS" in name and figures[key]]
    ours = found.get("ours: default")
    return None if ours is None or not errors else float(ours[key]) / min(errors)


def page(
    kept: Annotated[list[Path], typer.Argument(help="What `ew bench … --json` printed.")],
    into: Annotated[Path, typer.Option(help="The page; what is between the marks is replaced.")],
    picture: Annotated[Path | None, typer.Option(help="Where the growth is drawn (.svg, .png).")] = None,
) -> None:
    """Put the tables of earlier benchmarks into a page. Nothing is run."""
    text = into.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UsageError(f"{into} has not one {BEGIN} and one {END}.", "put them where the tables belong.")
    documents = [jsonlib.loads(path.read_text(encoding="utf-8")) for path in kept]
    drawn = _draw(documents, into, picture)
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    into.write_text(f"{before}{BEGIN}\n{markdown(documents)}{drawn}{END}{after}", encoding="utf-8")
    results().print(str(into), soft_wrap=True)


def markdown(documents: Sequence[dict[str, Any]]) -> str:
    """All tables, in the order of the documents."""
    parts = [_table(("", "required", "seen", ""), _required(documents))]
    machines = dict.fromkeys(said_machine(one["machine"]) for one in documents if "machine" in one)
    parts += [f"Measured on {words}\n" for words in machines]
    for document in documents:
        if "contenders" in document:
            head = ("", "CPU s", "wall s", "extra GB", "warm-up, CPU s", "error observed / unobserved")
            parts.append(_table(head, [_contender(*item) for item in document["contenders"].items()]))
            parts += [f"{name}: not run, {why}.\n" for name, why in document["skipped"].items()]
        if document.get("steps"):
            parts.append(_steps(document["steps"]))
        if "runs" in document:
            parts.append(_stages(document["runs"]))
    return "\n".join(parts)


def _required(documents: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (
            line["what"],
            line["required"],
            "not run" if line["seen"] is None else f"{line['seen']:.3g}{line['unit']}",
            {True: "holds", False: "**fails**", None: ""}[line["passed"]],
        )
        for document in documents
        for line in document["requirements"]
    ]


def _contender(name: str, figures: dict[str, Any]) -> tuple[str, ...]:
    errors = [figures[key] for key in ("observed_error", "unobserved_error")]
    return (
        name,
        f"{figures['cpu_s']:.2f}",
        f"{figures['wall_s']:.1f}",
        f"{figures['extra_gb']:.2f}",
        f"{figures['warm_up_cpu_s']:.1f}",
        " / ".join("" if error is None else f"{error:.4f}" for error in errors).strip(" /"),
    )


def _steps(steps: list[dict[str, Any]]) -> str:
    reached = bandwidth(steps[-1])
    head = ("step, CPU s", *(f"{one['observed']:.0e} pairs" for one in steps), *GROWTH)
    rows = [
        (
            name,
            *(f"{seconds:.3g}" for _, seconds in points),
            *said_growth(name, points, reached),
        )
        for name, points in lines(steps).items()
    ]
    return _table(head, rows)


def _stages(runs: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run["stages_s"]))
    rows = [(name, *(f"{run['stages_s'].get(name, 0.0):.1f}" for run in runs)) for name in names]
    rows += [
        (label, *(f"{run[key]:.1f}" for run in runs))
        for label, key in (("whole run", "wall_s"), ("CPU of all processes", "cpu_s"), ("peak GB", "peak_gb"))
    ]
    return _table(("stage, s", *(said_size(run) for run in runs)), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    body = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in body)


def _draw(documents: Sequence[dict[str, Any]], into: Path, picture: Path | None) -> str:
    steps = [one for document in documents for one in document.get("steps", ())]
    if picture is None or not steps:
        return ""
    draw_growth(lines(steps), picture)
    place = os.path.relpath(picture, into.parent)
    return f"\n![CPU time of each step as the data grow]({place})\n"
