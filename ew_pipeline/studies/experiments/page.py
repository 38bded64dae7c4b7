"""`ew reproduce page`: the studies kept in a folder, as one page of Markdown with its pictures beside it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ew_pipeline.core.console import emit_json, results
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.experiments.report import KeptReport, Table, kept_reports
from ew_pipeline.studies.experiments.story import SECTIONS

DEFAULT_PLACE = Path("infra/docs/experiments.md")
HEAD = """\
<!-- Made by `ew reproduce page`; run it again rather than edit this page. -->
# The paper's experiments, measured

The experiments of section 4 of Farias, Li and Peng, *Fixing Inventory Inaccuracies At Scale*, on fresh data,
with every method on the same instances and what the paper prints beside them. Regret is cost per pair above
that of the ideal policy pi\\*, which knows expected sales and theta; its costs are uniform on [0, 10].
Under each study stand the command, the version of the code and the day. All of it again: `make experiments`.
"""


def page(
    out: Annotated[Path, typer.Option(file_okay=False, help="The folder that the studies were given.")],
    to: Annotated[Path, typer.Option(dir_okay=False, help="Where the page goes.")] = DEFAULT_PLACE,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a page on the studies that were run with --out.

    A study that was not run is named on the page. Nothing is fitted.
    """
    kept = {name: report for name, report in kept_reports(out).items() if name in SECTIONS}
    if not kept:
        raise UsageError(f"{out} holds no study.", f"run one first: ew reproduce table1 --out {out}")
    to.parent.mkdir(parents=True, exist_ok=True)
    pictures = {name: _copied(report, to) for name, report in kept.items()}
    to.write_text(markdown(kept, pictures), encoding="utf-8")
    missing = [name for name in SECTIONS if name not in kept]
    if json:
        emit_json({"page": str(to), "studies": list(kept), "missing": missing})
        return
    results().print(f"{to}: {', '.join(kept)}", soft_wrap=True)
    if missing:
        results().print(f"not run: {', '.join(missing)}", soft_wrap=True)


def markdown(kept: dict[str, KeptReport], pictures: dict[str, str | None]) -> str:
    """The whole page; ``pictures`` are paths from the page."""
    parts = [HEAD]
    for name, (heading, sentences) in SECTIONS.items():
        if name not in kept:
            continue
        report, picture = kept[name], pictures.get(name)
        parts.append(f"## {heading}\n")
        parts += [_escaped(line) + "\n" for line in sentences(report.figures)]
        if picture is not None:
            parts.append(f"![{heading}]({picture})\n")
        parts += [_table(table) for table in report.tables]
        if report.differences:
            parts.append("What differs from the paper:\n")
            parts.append("".join(f"- {_escaped(line)}\n" for line in report.differences))
        made = report.made
        parts.append(f"Made on {made.day} by version {made.code} with `{made.command}`.\n")
    missing = [name for name in SECTIONS if name not in kept]
    if missing:
        commands = ", ".join(f"`ew reproduce {name}`" for name in missing)
        parts.append(f"Not run for this page: {commands}.\n")
    return "\n".join(parts)


def _copied(report: KeptReport, to: Path) -> str | None:
    if report.picture is None:
        return None
    name = f"{to.stem}-{report.experiment}.png"
    shutil.copyfile(report.picture, to.parent / name)
    return name


def _table(table: Table) -> str:
    head = "| " + " | ".join(_cell(name) for name in table.head) + " |"
    rule = "|---|" + "---:|" * (len(table.head) - 1)
    rows = ["| " + " | ".join(_cell(value) for value in row) + " |" for row in table.rows]
    return "\n".join([f"{_escaped(table.title)}:\n", head, rule, *rows, ""])


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|")


def _escaped(text: str) -> str:
    """pi* and M* are no emphasis."""
    return text.replace("*", "\\*")
