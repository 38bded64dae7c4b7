"""What a study found, said once: tables for people, figures for machines, and both kept for the page.

A report that is kept says how it was made: command, code version and day.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ew_pipeline.core import console
from ew_pipeline.core.console import emit_json
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.provenance import code_version
from ew_pipeline.studies.experiments import display
from ew_pipeline.studies.experiments.requirements import Verdict

SUFFIX = ".report.json"
PARTS_OF_A_PATH = 2


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the row."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Made:
    """How a report was made."""

    command: str
    code: str
    day: str


@dataclass(frozen=True)
class Report:
    """One study.

    Attributes
    ----------
    experiment : its name, and that of its files.
    options : those of the command that matter to the result.
    figures : everything measured, as plain values; what --json prints.
    tables : the same for people; those in ``details`` are not for the page.
    differences : one line on each thing that differs from the paper.
    """

    experiment: str
    options: Mapping[str, Any]
    figures: Mapping[str, Any]
    tables: tuple[Table, ...]
    details: tuple[Table, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeptReport:
    """A report read back, for the page."""

    experiment: str
    figures: Mapping[str, Any]
    tables: tuple[Table, ...]
    differences: tuple[str, ...]
    made: Made
    picture: Path | None


def verdict_table(title: str, verdicts: Sequence[Verdict]) -> Table:
    """What is required beside what was measured."""
    return Table(title, display.VERDICT_HEAD, tuple(display.verdict_row(v) for v in verdicts))


def present(report: Report, out: Path | None, *, as_json: bool) -> None:
    """Print the report, and keep it in ``out``."""
    document = {
        "experiment": report.experiment,
        **report.options,
        **report.figures,
        "differences": list(report.differences),
    }
    if out is not None:
        kept = {
            "figures": document,
            "tables": [asdict(table) for table in report.tables],
            "made": asdict(Made(_command(report), code_version(), datetime.now(UTC).date().isoformat())),
        }
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        (out / f"{report.experiment}{SUFFIX}").write_text(text + "\n", encoding="utf-8")
    if as_json:
        emit_json(document)
        return
    for table in (*report.tables, *report.details):
        console.print_table(table.title, table.head, table.rows)
    if report.differences:
        console.print_lines("What differs from the paper", report.differences)


def kept_reports(folder: Path) -> dict[str, KeptReport]:
    """The reports kept in ``folder``, by experiment."""
    found = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            name = kept["figures"]["experiment"]
            picture = folder / f"{name}.png"
            found[name] = KeptReport(
                experiment=name,
                figures=kept["figures"],
                tables=tuple(
                    Table(t["title"], tuple(t["head"]), tuple(tuple(row) for row in t["rows"]))
                    for t in kept["tables"]
                ),
                differences=tuple(kept["figures"]["differences"]),
                made=Made(**kept["made"]),
                picture=picture if picture.exists() else None,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is no report of a study.", "run the study again.") from error
    return found


def _command(report: Report) -> str:
    """The command as it can be typed again, without what changes nothing of the result."""
    words = ["ew", "reproduce", report.experiment]
    for name, value in report.options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", _shortened(str(value))]
    return shlex.join(words)


def _shortened(value: str) -> str:
    """Paths keep their last parts: the others tell of one machine."""
    parts = Path(value).parts
    return str(Path(*parts[-PARTS_OF_A_PATH:])) if len(parts) > PARTS_OF_A_PATH else value
