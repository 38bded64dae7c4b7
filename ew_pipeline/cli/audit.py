"""`ew audit …`: verify, replay, as-of, export, prune."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ew_pipeline.audit.export import export as make_package
from ew_pipeline.audit.history import LiveWeek, parse_moment
from ew_pipeline.audit.history import as_of as look_back
from ew_pipeline.audit.history import prune as remove_old
from ew_pipeline.audit.verify import Verification
from ew_pipeline.audit.verify import verify as check_all
from ew_pipeline.core.console import ExitCode, emit_json, messages, results, step
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Head, Ledger, Publication

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def verify(
    ledger_only: Annotated[
        bool, typer.Option("--ledger-only", help="The hash chain alone; files are not read.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(help="LEDGER:SEQ:HASH that an earlier call printed: nothing was cut off since."),
    ] = None,
    json: Json = False,
) -> None:
    """Check that nothing was edited, inserted or deleted since it was written.

    The ledger's hash chain, every file of every published run, every snapshot, and the live copies.
    Ends with 3 and the list when something is wrong.
    """
    settings = Settings()
    expected = _head(head)
    with open_ledger(settings) as ledger, ExitStack() as lines:

        def next_part(name: str) -> None:
            lines.close()
            if not json:
                lines.enter_context(step(f"check {name}"))

        found = check_all(ledger, settings, files=not ledger_only, expected=expected, on_part=next_part)
    if json:
        emit_json({"intact": found.intact, **_verification(found)})
    else:
        _print_verification(found)
    raise typer.Exit(ExitCode.DONE if found.intact else ExitCode.FAILED)


def replay(
    run: Annotated[str, typer.Argument(help="The run to make again; its id is on every flag and report.")],
    json: Json = False,
) -> None:
    """Make a run again from its snapshot and compare every number with what was stored.

    Ends with 0 when theta, expected units, probabilities, costs, thresholds and flags are equal to 1e-9,
    else with 3 and the differences.
    """
    # Fits a model: the other commands of this module start without these imports.
    from ew_pipeline.audit.replay import replay as make_again
    from ew_pipeline.audit.replay import words

    settings = Settings()
    with open_ledger(settings) as ledger:
        found = make_again(ledger, settings, run, say=None if json else _say)
    if json:
        emit_json({"equal": found.equal, **found.as_dict()})
    else:
        for line in words(found):
            results().print(line, markup=False, soft_wrap=True)
    raise typer.Exit(ExitCode.DONE if found.equal else ExitCode.FAILED)


def as_of(
    date: Annotated[str, typer.Argument(help="2026-11-16 (the end of that day) or 2026-11-16T06:30.")],
    week: Annotated[str | None, typer.Option(help="Only this week.")] = None,
    json: Json = False,
) -> None:
    """What was live at a moment, week by week, who stood behind it, and what became of it."""
    settings = Settings()
    moment = parse_moment(date, settings.time_zone)
    with open_ledger(settings) as ledger:
        past = look_back(ledger, moment)
    wanted = None if week is None else Week.parse(week)
    weeks = [one for one in past.weeks if wanted in (None, one.publication.week)]
    if json:
        emit_json(
            {
                "as_of": moment.isoformat(),
                "champion": None if past.champion is None else past.champion.run_id,
                "weeks": [_live_week(one) for one in weeks],
            }
        )
        return
    if not weeks:
        messages().print(f"Nothing was live on {moment:%Y-%m-%d %H:%M %Z}.", markup=False)
        return
    table = Table(title=f"Live on {moment:%Y-%m-%d %H:%M %Z}", title_justify="left", box=None)
    for name in ("week", "version", "run", "flags", "published", "by", "then"):
        table.add_column(name, no_wrap=name in ("week", "run"))
    for one in weeks:
        live = one.publication
        then = "; ".join(_happened(later) for later in one.later) or "still live"
        table.add_row(
            str(live.week), str(live.version), live.run_id, str(live.flags_count),
            f"{live.published_at:%Y-%m-%d %H:%M}", _by(live), then,
        )  # fmt: skip
    results().print(table, markup=False)


def export(
    first: Annotated[str, typer.Option("--from", help="First week.")],
    last: Annotated[str, typer.Option("--to", help="Last week.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A new folder, or a file that ends in .zip.")
    ],
    slim: Annotated[
        bool, typer.Option("--slim", help="Without snapshots, scores and models; their hashes stay.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a package that an outside auditor can verify without our database."""
    settings = Settings()
    with open_ledger(settings) as ledger:
        made = make_package(
            ledger, settings, Week.parse(first), Week.parse(last), output, by=settings.actor, slim=slim
        )
    if json:
        emit_json({**vars(made), "place": str(made.place)})
        return
    print_line = messages().print
    print_line(
        f"{made.publications} publications with {made.flags:,} flags and {made.files} files in {made.place}",
        markup=False,
        soft_wrap=True,
    )
    print_line(f"Hand over on another way: {made.package_hash}", markup=False, soft_wrap=True)


def prune(
    keep_weeks: Annotated[
        int | None,
        typer.Option(min=1, help="Newest published weeks to keep whole; default: EW_KEEP_WEEKS, or 104."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed.")] = False,
    json: Json = False,
) -> None:
    """Remove scores and model arrays of old weeks; flags, snapshots and reports stay.

    The removal is recorded in the ledger, so that `ew audit verify` still passes, and a run can still be
    replayed from its snapshot.
    """
    settings = Settings()
    with open_ledger(settings) as ledger:
        kept = settings.keep_weeks if keep_weeks is None else keep_weeks
        found = remove_old(ledger, kept, by=settings.actor, dry_run=dry_run)
    files, size = sum(len(one.files) for one in found), sum(one.bytes for one in found)
    if json:
        emit_json(
            {
                "removed": not dry_run,
                "files": files,
                "bytes": size,
                "runs": [{"run_id": one.run_id, "week": str(one.week), "bytes": one.bytes} for one in found],
            }
        )
        return
    verb = "would be" if dry_run else "were"
    weeks = f", {found[0].week} to {found[-1].week}" if found else ""
    messages().print(
        f"{files} files of {len(found)} runs ({size / 1e6:,.1f} MB) {verb} removed{weeks}.", markup=False
    )


def open_ledger(settings: Settings) -> Ledger:
    return Ledger.open(settings.ledger_url, home=settings.root)


def _say(text: str) -> None:
    messages().print(text, markup=False, soft_wrap=True)


def _head(text: str | None) -> Head | None:
    if text is None:
        return None
    parts = text.split(":")
    if len(parts) != 3 or not parts[1].isdigit():
        raise UsageError(f"{text!r} is not a head of a chain.", "write LEDGER:SEQ:HASH, as verify prints it.")
    return Head(parts[0], int(parts[1]), parts[2])


def _verification(found: Verification) -> dict[str, object]:
    described = {**vars(found), "head": None if found.head is None else _head_text(found.head)}
    return {**described, "findings": found.findings}


def _head_text(head: Head) -> str:
    return f"{head.ledger_id}:{head.seq}:{head.hash}"


def _print_verification(found: Verification) -> None:
    for finding in found.findings:
        results().print(f"{finding.kind:<10}{finding.words}", markup=False, soft_wrap=True)
    looked = f"{found.publications} publications"
    if found.files_checked:
        looked += f", {found.files:,} files ({found.pruned} of them pruned), {found.snapshots} snapshots"
    verdict = "intact" if found.intact else f"{len(found.findings)} WRONG"
    results().print(f"{verdict}: {looked}", markup=False, soft_wrap=True)
    if found.head is not None:
        results().print(f"head: {_head_text(found.head)}", markup=False, soft_wrap=True)


def _live_week(one: LiveWeek) -> dict[str, object]:
    return {
        **_publication(one.publication),
        "later": [_publication(later) for later in one.later],
        "still_live": not one.later,
    }


def _publication(one: Publication) -> dict[str, object]:
    return {
        "week": str(one.week),
        "publication": one.id,
        "version": one.version,
        "kind": one.kind,
        "run_id": one.run_id,
        "flags": one.flags_count,
        "published_at": one.published_at.isoformat(),
        "published_by": one.published_by,
        "override": one.override,
        "reason": one.reason,
        "data_hash": one.data_hash,
        "config_hash": one.config_hash,
        "code_version": one.code_version,
    }


def _by(one: Publication) -> str:
    if one.kind == "rollback":
        return f"{one.published_by} (rolled back: {one.reason})"
    if one.override is not None:
        return f"{one.override.who} (override: {one.override.why})"
    return one.published_by


def _happened(later: Publication) -> str:
    verb = "rolled back to" if later.kind == "rollback" else "superseded by"
    return f"v{later.version} {later.published_at:%Y-%m-%d %H:%M} {verb} {later.run_id} by {_by(later)}"
