"""The schedule on a Prefect server: work pool, deployments as infra/prefect.yaml has them, the next run.

What is there already stays as it is: deploying again would throw away a run that is overdue because the
machine was off, and start a schedule again that somebody has paused.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.servers.plan import Flows

ANSWER_SECONDS = 20.0
# 503 is what Prefect answers when its SQLite database is locked: nothing was done, and it may be asked again.
NOT_NOW = (429, 502, 503)
WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
POOL = "ew"
DEPLOYMENTS = ("weekly/weekly", "evaluation/evaluation")
EXECUTED = ("command", "env", "working_dir")  # each of them decides which program a flow run is
UNDER_WAY = ("RUNNING", "PENDING", "CANCELLING")
PLACEHOLDER = re.compile(r"\{\{ *\$(\w+) *\}\}")


class Api:
    """The server at ``url``, e.g. ``http://127.0.0.1:4200/api``; ``login`` is ``user:password``.

    In plain requests: importing Prefect's client takes seconds that `ew up` has no use for.
    """

    def __init__(self, url: str, login: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.headers = {"Content-Type": "application/json"}
        if login is not None:
            self.headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"

    def get(self, path: str) -> Any:
        """None when there is no such thing."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        return self._ask("POST", path, body)

    def patch(self, path: str, body: Any) -> None:
        self._ask("PATCH", path, body)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, self.headers, method=method)
        for wait in (*WAITS, None):
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                    text = answer.read()
                    break
            except urllib.error.HTTPError as error:
                if error.code == 404 and method == "GET":
                    return None
                if error.code == 401:
                    raise EwError(
                        f"Prefect at {self.url} asks for another login.",
                        "set PREFECT_API_AUTH_STRING to its user:password.",
                    ) from error
                if error.code not in NOT_NOW or wait is None:
                    said = error.read().decode(errors="replace")[:300]
                    raise EwError(f"Prefect refused {method} {path} with {error.code}: {said}") from error
            except (urllib.error.URLError, OSError) as error:
                raise EwError(
                    f"Prefect at {self.url} does not answer: {error}.",
                    "is it up, and PREFECT_API_URL right?",
                ) from error
            time.sleep(wait)
        return json.loads(text) if text else None


def answers(url: str) -> bool:
    """Whether somebody is there, whatever they say."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, OSError):
        return False


def ensure_pool(api: Api, own: bool) -> None:
    """Make the work pool of processes. On a server of our own, also close one that an older version made."""
    pool = api.get(f"/work_pools/{POOL}")
    if pool is None:
        known = api.get("/collections/views/aggregate-worker-metadata")
        template = closed(known["prefect"]["process"]["default_base_job_configuration"])
        api.post("/work_pools/", {"name": POOL, "type": "process", "base_job_template": template})
    elif own and (template := closed(pool["base_job_template"])) != pool["base_job_template"]:
        api.patch(f"/work_pools/{POOL}", {"base_job_template": template})


def closed(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job template without variables by which a flow run could choose what is executed."""
    job = dict(template["job_configuration"])
    schema = dict(template["variables"])
    offered = dict(schema["properties"])
    for name in EXECUTED:
        default = offered.pop(name, {}).get("default")
        if job.get(name) == f"{{{{ {name} }}}}":
            del job[name]
            if default is not None:
                job[name] = default
    schema |= {"properties": offered, "additionalProperties": False}
    return {**template, "job_configuration": job, "variables": schema}


@dataclass(frozen=True)
class Deployed:
    """Whether the server has the deployments that the file describes; ``stamp`` remembers that it has."""

    api: Api
    flows: Flows
    environment: Mapping[str, str]
    stamp: Path

    @property
    def command(self) -> list[str]:
        """Run in the folder of the flows."""
        return [
            *(sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"),
            *("--prefect-file", str(self.flows.file)),
        ]

    def is_current(self) -> bool:
        try:
            known = json.loads(self.stamp.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(known == self._state()) and None not in known["deployments"].values()

    def remember(self) -> None:
        state = self._state()
        missing = [name for name, found in state["deployments"].items() if found is None]
        if missing:
            raise EwError(
                f"Prefect has no deployment {' and '.join(missing)} after deploying {self.flows.file}.",
                "see the log of the deployment, and whether the file still names them.",
            )
        self.stamp.write_text(json.dumps(state, indent=2), encoding="utf-8")

    def _state(self) -> dict[str, Any]:
        text = self.flows.file.read_text(encoding="utf-8")
        filled = {name: self.environment.get(name) for name in sorted(set(PLACEHOLDER.findall(text)))}
        found = {name: self.api.get(f"/deployments/name/{name}") for name in DEPLOYMENTS}
        return {
            "asked": canonical_hash([text, filled]),
            "deployments": {name: None if one is None else one["id"] for name, one in found.items()},
        }


@dataclass(frozen=True)
class NextRun:
    """``at`` is None while the schedule is paused, or the server has not got round to it."""

    at: dt.datetime | None
    paused: bool
    zone: str

    @property
    def words(self) -> str:
        if self.at is None:
            return "the schedule is paused" if self.paused else "not scheduled yet"
        when = f"{self.at.astimezone(ZoneInfo(self.zone)):%A %d %B %Y, %H:%M} ({self.zone})"
        return f"now, overdue since {when}" if self.at <= dt.datetime.now(dt.UTC) else when


def next_run(api: Api) -> NextRun:
    """Of the weekly flow, as the server has planned it."""
    deployment = api.get(f"/deployments/name/{DEPLOYMENTS[0]}")
    schedules = deployment["schedules"]
    zone = next((one["schedule"].get("timezone") for one in schedules), None) or "UTC"
    paused = bool(deployment["paused"]) or not any(one["active"] for one in schedules)
    found = api.post(
        "/flow_runs/filter",
        {
            "deployments": {"id": {"any_": [deployment["id"]]}},
            "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
            "sort": "EXPECTED_START_TIME_ASC",
            "limit": 1,
        },
    )
    at = dt.datetime.fromisoformat(found[0]["expected_start_time"]) if found else None
    return NextRun(at, paused, zone)


def worker_is_online(api: Api, name: str) -> bool:
    """Whether the worker of this name has told the server that it waits for runs."""
    wanted = {"workers": {"status": {"any_": ["ONLINE"]}}}
    found = api.post(f"/work_pools/{POOL}/workers/filter", wanted)
    return any(one["name"] == name for one in found)


def crash_stale_runs(api: Api) -> list[str]:
    """Runs of our deployments that an earlier `ew up` has left under way; their names.

    Only for a server of our own, which has nothing under way when it starts. Each of them would hold the one
    place that its deployment has, and the next week would wait for it for ever. Runs without a deployment
    (`ew run` beside us) are left alone.
    """
    found = api.post(
        "/flow_runs/filter",
        {
            "flow_runs": {
                "state": {"type": {"any_": list(UNDER_WAY)}},
                "deployment_id": {"is_null_": False},
            }
        },
    )
    for run in found:
        state = {"type": "CRASHED", "name": "Crashed", "message": "its worker was gone when `ew up` started"}
        api.post(f"/flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    return [str(run["name"]) for run in found]
