"""`ew checks …`: import, add; and what `ew evaluate --checks` shows of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from ew_pipeline.checks.evaluate import CheckEvaluation, evaluate_checks
from ew_pipeline.checks.record import CheckTable, Recorded, one_check, read_checks, record_checks
from ew_pipeline.core.console import ExitCode, emit_json, messages, results
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.resample import Estimate
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.store import newest_checks

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Correct = Annotated[
    bool, typer.Option("--correct", help="Let it win over another outcome that is recorded already.")
]
SHOWN = 20


def import_checks(
    file: Annotated[str, typer.Argument(help="A filled-in check list, or any table of checks.")],
    correct: Correct = False,
    json: Json = False,
) -> None:
    """Record what was found at the shelves. The same file again changes nothing.

    Columns: store_id, sku_id, week, outcome (confirmed, healthy or not_checked); optional checked_by, source
    (flag or random), note. Rows with an empty outcome are passed over. Ends with 1 when rows were refused or
    contradict what is recorded.
    """
    _record(read_checks(file), correct, json)


def add_check(
    store: Annotated[str, typer.Option(help="The store.")],
    sku: Annotated[str, typer.Option(help="The SKU.")],
    week: Annotated[str, typer.Option(help="The week of the flag.")],
    outcome: Annotated[str, typer.Option(help="confirmed, healthy or not_checked.")],
    by: Annotated[str | None, typer.Option(help="Who walked to the shelf; default: EW_ACTOR.")] = None,
    source: Annotated[str | None, typer.Option(help="flag or random; default: as published.")] = None,
    note: Annotated[str | None, typer.Option(help="Anything worth keeping.")] = None,
    correct: Correct = False,
    json: Json = False,
) -> None:
    """Record one check."""
    Week.parse(week)  # a typing error is the caller's, not the data's
    who = by or Settings().actor
    given = {"store_id": store, "sku_id": sku, "week": week, "outcome": outcome, "checked_by": who}
    _record(one_check(**given, source=source, note=note), correct, json)


def show_checks(first: str | None, last: str | None, json: bool) -> None:
    """`ew evaluate --checks`: how good the published flags were, by what was found at the shelves.

    Without weeks: from the first to the last that has checks.
    """
    with _ledger(Settings()) as ledger:
        weeks = newest_checks(ledger)["week"]
        if weeks.empty:
            raise UsageError("no check was recorded yet.", "record some: ew checks import FILE")
        begin, end = Week.parse(first or weeks.min()), Week.parse(last or weeks.max())
        found = evaluate_checks(ledger, begin, end)
    if json:
        emit_json(asdict(found))
    else:
        _print(found)


def _ledger(settings: Settings) -> Ledger:
    return Ledger.open(settings.ledger_url, home=settings.root)


def _record(table: CheckTable, correct: bool, json: bool) -> None:
    settings = Settings()
    with _ledger(settings) as ledger:
        done = record_checks(ledger, table, by=settings.actor, correct=correct)
    if json:
        emit_json(asdict(done))
    else:
        _say(done)
    clean = not done.refused and not done.conflicts
    raise typer.Exit(ExitCode.DONE if clean else ExitCode.DATA_REJECTED)


def _say(done: Recorded) -> None:
    say = messages().print
    parts = [f"{done.added} checks recorded", f"{done.unchanged} were known"]
    parts += [f"{done.empty} rows have no outcome yet"] if done.empty else []
    say(", ".join(parts) + ".", markup=False)
    if done.unlinked:
        say(
            f"{done.unlinked} of them are kept but not evaluated: no publication flagged or drew the pair.",
            markup=False,
        )
    for kind, rows in (("refused", done.refused), ("conflict", done.conflicts)):
        for row in rows[:SHOWN]:
            say(f"{kind:<9} {row.key}: {row.why}", markup=False, soft_wrap=True)
        if len(rows) > SHOWN:
            say(f"{kind:<9} … +{len(rows) - SHOWN}", markup=False)
    if done.conflicts:
        say("To let the new outcomes win: the same command with --correct", markup=False)


def _print(found: CheckEvaluation) -> None:
    out = results()
    out.print(
        f"{found.first} to {found.last}: {found.flags_checked} of {found.flags} flags checked "
        f"({found.flags_confirmed} confirmed), {found.random_checked} of {found.pairs - found.flags:,} "
        f"others at random ({found.random_confirmed} confirmed), {found.not_checked} not checked",
        markup=False,
        soft_wrap=True,
    )
    table = Table(box=None)
    for name in ("", "estimate", "90% interval"):
        table.add_column(name, justify="left" if not name else "right")
    for name in ("precision", "recall", "anomaly_rate"):
        table.add_row(name.replace("_", " "), *_cells(getattr(found, name), "{:.1%}"))
    table.add_row("lift over random", *_cells(found.lift, "{:.1f}"))
    for name in ("saving", "cost", "cost_ignoring"):
        table.add_row(name.replace("_", " "), *_cells(getattr(found, name), "{:,.0f}"))
    out.print(table)
    if found.calibration:
        curve = Table(box=None)
        for name in ("predicted", "found", "checks"):
            curve.add_column(name, justify="right")
        for one in found.calibration:
            curve.add_row(f"{one.predicted:.1%}", f"{one.confirmed:.1%}", str(one.checks))
        out.print(curve)
        out.print(f"calibration error {found.calibration_error:.1%}", markup=False)
    for reason in found.why:
        out.print(f"Note: {reason}.", markup=False, soft_wrap=True)


def _cells(estimate: Estimate, style: str) -> tuple[str, str]:
    if estimate.value != estimate.value:
        return "unknown", ""
    interval = f"{style.format(estimate.low)} to {style.format(estimate.high)}"
    return style.format(estimate.value), interval if estimate.low == estimate.low else ""
