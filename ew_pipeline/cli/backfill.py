"""`ew backfill`: many weeks, with progress and time left."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from ew_pipeline.cli.options import (
    ConfigFile,
    CostTable,
    Dask,
    Listing,
    Mode,
    Sales,
    SegmentBy,
    Skus,
    Stores,
)
from ew_pipeline.cluster.weeks import run_weeks
from ew_pipeline.core.console import emit_json, messages
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.intake.source_passwords import passwords_in_environment
from ew_pipeline.servers.prefect import prefect_api
from ew_pipeline.weekly.backfill import Backfill, backfill_weeks, line, progress, weeks_between
from ew_pipeline.weekly.request import asked_changes, make_request
from flows.follow import judge_published


def backfill(
    first: Annotated[str, typer.Option("--from", help="First week.")],
    last: Annotated[str, typer.Option("--to", help="Last week.")],
    sales: Sales,
    listing: Listing = None,
    costs: CostTable = None,
    stores: Stores = None,
    skus: Skus = None,
    segment_by: SegmentBy = None,
    mode: Mode = None,
    config: ConfigFile = None,
    parallel: Annotated[int, typer.Option(min=1, help="Weeks side by side, each in its own process.")] = 1,
    dask: Dask = None,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="Read also weeks whose files are unchanged.")
    ] = False,
    override: Annotated[
        str | None, typer.Option(help="Publish also what the gate holds back, and why.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run many weeks. Stopped or killed, the same command goes on where it was.

    Weeks whose inputs are published already are passed over; a week that fails or is held back does not stop
    the others and is named at the end. Exit codes: 0 all is well; 3 a week failed; 1 the data of one were
    rejected; 4 one was held back.
    """
    settings = Settings()
    changes = asked_changes(config, segment_by=segment_by, detector_mode=mode)
    asked = {"sales": sales, "listing": listing, "costs": costs, "stores": stores, "skus": skus}
    found = run_backfill(
        settings.on_cluster(dask),
        first=first,
        last=last,
        asked=asked,
        changes=changes,
        parallel=parallel,
        recheck=recheck,
        override_why=override,
    )
    if json:
        emit_json(describe(found))
    say(found)
    if any(done.status == "published" for done in found.weeks):
        judge_published(settings, Steps())
    raise typer.Exit(found.exit_code)


def run_backfill(
    settings: Settings,
    *,
    first: str,
    last: str,
    asked: dict[str, Any],
    changes: dict[str, Any],
    parallel: int = 1,
    recheck: bool = False,
    override_why: str | None = None,
) -> Backfill:
    """Through one Prefect flow, or directly when the settings say so."""
    weeks = weeks_between(Week.parse(first), Week.parse(last))
    request = make_request(settings, week=first, changes=changes, override_why=override_why, **asked)
    if not settings.orchestrate:
        with progress(len(weeks)) as on_done:
            return backfill_weeks(
                request,
                weeks,
                settings,
                parallel=parallel,
                recheck=recheck,
                on_done=on_done,
                cluster_weeks=run_weeks,
            )
    with prefect_api(settings) as api:
        from flows.backfill import backfill as flow  # imports Prefect, while its server boots

        api.wait()
        with passwords_in_environment(asked) as shown:
            return cast(
                Backfill,
                flow(
                    first=first,
                    last=last,
                    config=changes,
                    parallel=parallel,
                    recheck=recheck,
                    override_why=override_why,
                    dask=settings.dask_address,
                    **shown,
                ),
            )


def say(found: Backfill) -> None:
    """The closing tally: how many, where the time went, and every week that needs somebody."""
    out = messages().print
    counts: dict[str, int] = {}
    for done in found.weeks:
        counts[done.status] = counts.get(done.status, 0) + 1
    tally = ", ".join(f"{count} {status}" for status, count in counts.items())
    out(f"{len(found.weeks)} weeks: {tally}.", markup=False)
    slowest = sorted(found.timings.items(), key=lambda item: -item[1])
    if slowest:
        out(
            "Time: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in slowest),
            markup=False,
            soft_wrap=True,
        )
    for done in found.bad:
        out(line(done), markup=False, soft_wrap=True)


def describe(found: Backfill) -> dict[str, Any]:
    """For a program."""
    return {
        "exit_code": int(found.exit_code),
        "weeks": [{**vars(done), "week": str(done.week)} for done in found.weeks],
        "timings": found.timings,
    }
