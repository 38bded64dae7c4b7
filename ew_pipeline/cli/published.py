"""`ew flags`, `ew report`, `ew promote`, `ew rollback`: what is live, and changing it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ew_pipeline.core.console import emit_json, messages, results
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.outputs.check_list import render_flags
from ew_pipeline.weekly.attempt import show_live

WeekOption = Annotated[str, typer.Option("--week", help="ISO week, or its first day.")]
Why = Annotated[str, typer.Option("--why", help="The reason; it is recorded.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def flags(
    week: WeekOption,
    store: Annotated[str | None, typer.Option(help="Only this store.")] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Instead, the pairs that were drawn at random to be checked.")
    ] = False,
    format: Annotated[str, typer.Option("--format", help="csv, json or parquet.")] = "csv",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of stdout.")] = None,
    json: Json = False,
) -> None:
    """The check list of a published week, best first in each store."""
    with _ledger(Settings()) as ledger:
        publication = _live(ledger, week)
        listed = ledger.random_checks if random else ledger.flags
        frame = listed(publication.id, store)
    text = render_flags(frame, "json" if json else format)
    if output is not None:
        output.write_bytes(text)
        messages().print(
            f"{len(frame)} {'random checks' if random else 'flags'} of {publication.week} in {output}",
            markup=False,
        )
    else:
        sys.stdout.buffer.write(text)


def report(week: WeekOption, json: Json = False) -> None:
    """Where the live report of a week is; its files are put back when they are missing."""
    settings = Settings()
    with _ledger(settings) as ledger:
        publication = _live(ledger, week)
    page = show_live(publication, settings) / "report.html"
    if json:
        emit_json({"week": str(publication.week), "report": str(page), "run_id": publication.run_id})
    else:
        results().print(str(page), markup=False, soft_wrap=True)


def promote(
    run: Annotated[str, typer.Argument(help="The run whose configuration becomes the champion.")],
    why: Why,
    json: Json = False,
) -> None:
    """Make a run's configuration the one that `ew run` uses from now on."""
    settings = Settings()
    with _ledger(settings) as ledger:
        role = ledger.promote(run, by=settings.actor, why=why)
    if json:
        emit_json({"run_id": role.run_id, "config_hash": role.config_hash, "by": role.assigned_by})
    else:
        messages().print(
            f"Champion from now on: the configuration of {role.run_id} ({role.config_hash[:12]}).",
            markup=False,
        )


def rollback(week: WeekOption, why: Why, json: Json = False) -> None:
    """Make the publication before the live one of a week live again; both stay in the ledger."""
    settings = Settings()
    with _ledger(settings) as ledger:
        publication = ledger.rollback(Week.parse(week), by=settings.actor, why=why)
    folder = show_live(publication, settings)
    if json:
        emit_json(
            {"week": str(publication.week), "run_id": publication.run_id, "version": publication.version}
        )
    else:
        messages().print(
            f"{publication.week} shows {publication.run_id} again (version {publication.version}): {folder}",
            markup=False,
            soft_wrap=True,
        )


def _ledger(settings: Settings) -> Ledger:
    return Ledger.open(settings.ledger_url, home=settings.root)


def _live(ledger: Ledger, week: str) -> Publication:
    wanted = Week.parse(week)
    publication = ledger.current(wanted)
    if publication is None:
        latest = max(ledger.live(), key=lambda one: one.week, default=None)
        known = f"the last published week is {latest.week}" if latest else "no week is published yet"
        raise UsageError(
            f"{wanted} is not published; {known}.", f"run it: ew run --week {wanted} --sales FILE"
        )
    return publication
