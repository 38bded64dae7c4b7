"""`ew bench page`: what the benchmarks printed as JSON, as Markdown between two marks of a page."""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ew_pipeline.core.console import results
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.bench.growth import bandwidth, draw_growth, lines
from ew_pipeline.studies.bench.machine import said_machine
from ew_pipeline.studies.bench.tables import GROWTH, said_growth, said_size

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


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
