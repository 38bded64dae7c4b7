"""`ew up`: everything that runs the weeks on a schedule, in the foreground, until Ctrl-C."""

from __future__ import annotations

import datetime as dt
import os
import shlex
import time
from typing import Annotated, Any

import typer

from ew_pipeline.core.console import emit_json, messages
from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.servers.parts import MLFLOW, PREFECT, servers, worker
from ew_pipeline.servers.plan import Plan, Ports, make_plan
from ew_pipeline.servers.prefect import LOGIN
from ew_pipeline.servers.schedule import (
    DEPLOYMENTS,
    POOL,
    Api,
    Deployed,
    NextRun,
    answers,
    crash_stale_runs,
    ensure_pool,
    next_run,
)
from ew_pipeline.servers.standing import holding, login_file, record, up_folder
from ew_pipeline.servers.supervisor import (
    Ended,
    Supervisor,
    end_all,
    left_behind,
    tail,
    tell,
)

SCHEDULED_SECONDS = 30.0  # until the server has planned the runs of a new deployment
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")]


def up(
    sales: Annotated[str | None, typer.Option(envvar="EW_SALES", help="What the weeks are run on.")] = None,
    listing: Annotated[str | None, typer.Option(envvar="EW_LISTING", help="What is ranged.")] = None,
    costs: Annotated[str | None, typer.Option(envvar="EW_COSTS", help="Costs of checks and misses.")] = None,
    pages_port: Port = 8080,
    prefect_port: Port = 4200,
    mlflow_port: Port = 5000,
    json: Annotated[bool, typer.Option("--json", help="Print JSON once everything is ready.")] = False,
) -> None:
    """Prefect and MLflow servers, the pages, a worker and the schedule, on this machine alone.

    Everything is kept in EW_HOME, logs in its folder logs/. With PREFECT_API_URL or MLFLOW_TRACKING_URI set,
    that server is used and none of ours is started. Our Prefect server asks for a login, which is in
    up/prefect.login of the home, for this user alone. A part that dies is started again. Ctrl-C ends all.
    """
    settings = Settings()
    sources = {"EW_SALES": sales, "EW_LISTING": listing, "EW_COSTS": costs}
    with holding(settings):
        plan = make_plan(settings, sources, Ports(pages_port, prefect_port, mlflow_port))
        if count := end_all(lambda: left_behind(str(settings.root), plan.mark)):
            tell("ended", "left over", f"{count} processes of an earlier `ew up` that was killed")
        with Supervisor(plan.environment, plan.logs) as supervisor:
            try:
                found = bring_up(plan, supervisor)
                if json:
                    emit_json(found)
                supervisor.watch()
            except Ended:
                messages().print("Ending all parts.", markup=False)


def bring_up(plan: Plan, supervisor: Supervisor) -> dict[str, Any]:
    """Start every part and the schedule; where they are."""
    began = time.monotonic()
    api = Api(plan.api, plan.login)
    for part in servers(plan):
        supervisor.start(part)
    crashed: list[str] = []
    if plan.own_prefect:
        supervisor.wait_for(PREFECT)
        crashed = crash_stale_runs(api)
    else:
        _given(plan)
    for name in crashed:
        tell("crashed", "flow run", f"{name}: its worker was gone; run that week again if it is missing")
    ensure_pool(api, plan.own_prefect)
    supervisor.start(worker(plan))
    deploy(plan, supervisor, api)
    supervisor.wait_for()
    if not plan.own_mlflow:
        tell("given", MLFLOW, f"{plan.mlflow} (MLFLOW_TRACKING_URI)")
    coming = _planned(api, supervisor)
    found = {
        "home": str(plan.settings.root),
        "pages": plan.pages,
        "prefect": plan.api if not plan.own_prefect else plan.prefect,
        "prefect_api": plan.api,
        "prefect_login": str(login_file(plan.settings)) if plan.own_prefect else None,
        "mlflow": plan.mlflow,
        "pool": POOL,
        "deployments": list(DEPLOYMENTS),
        "next_run": None if coming.at is None else coming.at.isoformat(),
        "crashed": crashed,
        "logs": str(plan.logs),
        "pid": os.getpid(),
        "since": f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
        "seconds": round(time.monotonic() - began, 1),
    }
    record(plan.settings, found)
    _say_ready(plan, coming)
    return found


def deploy(plan: Plan, supervisor: Supervisor, api: Api) -> None:
    """The deployments of infra/prefect.yaml, unless the server has them as they are there."""
    deployed = Deployed(api, plan.flows, plan.environment, up_folder(plan.settings) / "deployed.json")
    if deployed.is_current():
        tell("ok", "deployments", f"{', '.join(DEPLOYMENTS)}, as before")
        return
    log = plan.logs / "deploy.log"
    if supervisor.run(deployed.command, log, plan.flows.root) != 0:
        raise EwError(
            f"{plan.flows.file} could not be deployed. The end of {log}:\n{tail(log)}",
            "correct the file, or set EW_CHECKOUT to a checkout whose flows can be imported.",
        )
    deployed.remember()
    tell("ok", "deployments", ", ".join(DEPLOYMENTS))


def _given(plan: Plan) -> None:
    if not answers(f"{plan.api}/health"):
        raise EwError(
            f"Prefect's server at {plan.api} does not answer.",
            "start it, or unset PREFECT_API_URL: `ew up` then starts one of its own.",
        )
    tell("given", PREFECT, f"{plan.api} (PREFECT_API_URL)")


def _planned(api: Api, supervisor: Supervisor) -> NextRun:
    """The server plans runs a few seconds after a deployment is new."""
    deadline = time.monotonic() + SCHEDULED_SECONDS
    while (coming := next_run(api)).at is None and not coming.paused and time.monotonic() < deadline:
        supervisor.poll()
        supervisor.pause(0.5)
    return coming


def _say_ready(plan: Plan, coming: NextRun) -> None:
    address, lines = f"PREFECT_API_URL={plan.api}", [f"next run: {coming.words}"]
    if plan.own_prefect:
        login = login_file(plan.settings)
        address += f' {LOGIN}="$(cat {shlex.quote(str(login))})"'
        lines.append(f"Prefect's pages ask once for a password; it is the line in {login}")
    for line in (
        *lines,
        f"Run the last complete week now: {address} prefect deployment run {DEPLOYMENTS[0]}",
        f"Logs are in {plan.logs}; Ctrl-C ends all.",
    ):
        messages().print(line, markup=False, soft_wrap=True)
