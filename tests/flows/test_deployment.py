"""The schedule as it is deployed: a real server and worker on loopback run the week and publish it."""

from __future__ import annotations

import json
import tomllib

from flows_support import QUICK_TOML
from prefect_servers import ROOT, background, call, environment, free_port, wait_for
from weekly.chain import LAST_WEEK, sources, write_chain

from ew_pipeline.publish.ledger import Ledger
from ew_pipeline.settings import Settings
from ew_pipeline.week import Week


def test_the_deployed_week_is_published(tmp_path):

    tables = sources(write_chain(tmp_path / "chain"))
    port = free_port()
    variables = environment(
        tmp_path,
        PREFECT_HOME=str(tmp_path / "prefect"),
        PREFECT_API_URL=f"http://127.0.0.1:{port}/api",
        EW_HOME=str(tmp_path / "ew"),
        EW_CHECKOUT=str(ROOT),
        EW_SALES=tables["sales"],
        EW_LISTING=tables["listing"],
        EW_COSTS=tables["costs"],
    )
    server_log, worker_log = tmp_path / "server.log", tmp_path / "worker.log"
    with background(
        ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"],
        variables,
        server_log,
    ) as server:
        wait_for(f"http://127.0.0.1:{port}/api/health", server, server_log)
        made = call(["prefect", "work-pool", "create", "ew", "--type", "process"], variables)
        assert made.returncode == 0, made.stderr + made.stdout
        deployed = call(
            ["prefect", "--no-prompt", "deploy", "--all", "--prefect-file", "infra/prefect.yaml"], variables
        )
        assert deployed.returncode == 0, deployed.stderr + deployed.stdout
        shown = call(["prefect", "deployment", "inspect", "weekly/weekly", "--output", "json"], variables)
        deployment = json.loads(shown.stdout)
        (schedule,) = deployment["schedules"]
        assert schedule["schedule"]["cron"] == "0 6 * * 1"
        assert deployment["global_concurrency_limit"]["limit"] == 1
        with background(["prefect", "worker", "start", "--pool", "ew"], variables, worker_log) as _:
            parameters = {"week": LAST_WEEK, "config": tomllib.loads(QUICK_TOML)}
            ran = call(
                [
                    "prefect",
                    "deployment",
                    "run",
                    "weekly/weekly",
                    "--watch",
                    "--params",
                    json.dumps(parameters),
                ],
                variables,
            )
        assert ran.returncode == 0, ran.stdout + ran.stderr + worker_log.read_text()
    with Ledger.open(Settings(home=tmp_path / "ew").ledger_url, home=tmp_path / "ew") as ledger:
        publication = ledger.current(Week.parse(LAST_WEEK))
        assert publication is not None, worker_log.read_text()
        assert ledger.run(publication.run_id).flow_run_id
        assert ledger.verify() == []
