"""`ew drift`: is theta moving, and does anybody know."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from ew_pipeline.core.console import ExitCode, emit_json, messages, print_table, results
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import DriftSettings, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.drift.alerts import acknowledge as acknowledge_alert
from ew_pipeline.drift.page import last_week
from ew_pipeline.drift.run import DriftReport, describe, run_drift
from ew_pipeline.ledger import Ledger
from ew_pipeline.servers.prefect import prefect_api


def drift(
    week: Annotated[
        str | None, typer.Option(help="Judge up to this week; default: the last published.")
    ] = None,
    acknowledge: Annotated[
        list[int] | None, typer.Option(help="Alert that was looked at; may be given several times.")
    ] = None,
    why: Annotated[str, typer.Option(help="What was found; recorded with --acknowledge.")] = "",
    weeks_between_alarms: Annotated[
        float | None, typer.Option(min=2, help="Stable weeks per false alarm, at least; default 52.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with 4 when an alert is open.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Follow alpha, p_A and what they are measured on from week to week, with a verdict.

    Verdicts: stable; anomaly drift (the anomalies themselves changed); composition change (what is observed
    changed); overdispersion change. An alert stays open until somebody acknowledges it.
    Exit codes: 0 done; 2 wrong call; 4 with --strict while an alert is open.
    """
    settings, own = Settings(), DriftSettings()
    if why and not acknowledge:
        raise UsageError("--why goes with an alert.", 'ew drift --acknowledge ALERT --why "what was found"')
    if weeks_between_alarms is not None:
        own = own.model_copy(update={"weeks_between_alarms": weeks_between_alarms})
    if acknowledge:
        with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
            for alert in acknowledge:
                said = acknowledge_alert(ledger, alert, by=settings.actor, why=why)
                messages().print(f"Alert {said.id} acknowledged by {said.acknowledged_by}.", markup=False)
    report = judge(settings, own, None if week is None else Week.parse(week))
    if json:
        emit_json(describe(report))
    else:
        show(report)
    raise typer.Exit(ExitCode.HELD_BACK if strict and report.open_alerts else ExitCode.DONE)


def judge(settings: Settings, own: DriftSettings, week: Week | None) -> DriftReport:
    """Through Prefect when a server is configured, because its automations wait for the event."""
    if not (settings.orchestrate and settings.prefect_api_url):
        return run_drift(settings, own, week=week)
    with prefect_api(settings) as api:
        from flows.drift import drift as flow

        api.wait()
        report = flow(week=None if week is None else str(week), weeks_between_alarms=own.weeks_between_alarms)
        return cast(DriftReport, report)  # a flow that names its state gives back what is in it


def show(report: DriftReport) -> None:
    """The table of series and the verdicts on stdout."""
    found = report.assessment
    several = len(found.segments) > 1
    head = (*(("segment",) if several else ()), "series", "value", "90% interval", "statistic", "state")
    rows = []
    for chart in found.charts:
        last = last_week(chart)
        cells = (last["title"], last["value"], last["interval"], last["statistic"], last["state"])
        rows.append((last["segment"], *cells) if several else cells)
    print_table(f"{found.weeks[-1]}, limit of the statistic ±{found.limit:.2f}", head, rows)
    for one in report.verdicts:
        results().print(f"{one.segment}: {one.verdict}. {one.words}", markup=False, soft_wrap=True)
        if one.look_at:
            results().print(f"  Look at: {one.look_at}.", markup=False, soft_wrap=True)
    for alert in report.open_alerts:
        messages().print(
            f'Open, {alert.segment} {alert.week}: ew drift --acknowledge {alert.id} --why "…"',
            markup=False,
            soft_wrap=True,
        )
    for failure in report.failures:
        messages().print(f"Not sent: {failure}", markup=False, soft_wrap=True)
    messages().print(f"Page: {report.page}", markup=False, soft_wrap=True)
