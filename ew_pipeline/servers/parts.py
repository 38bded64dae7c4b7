"""The commands of the parts, and how to tell that each does its work."""

from __future__ import annotations

import socket
import sys
from urllib.parse import urlsplit

from ew_pipeline.core.errors import EwError
from ew_pipeline.servers.plan import Plan
from ew_pipeline.servers.ports import LOOPBACK
from ew_pipeline.servers.schedule import POOL, Api, answers, worker_is_online
from ew_pipeline.servers.supervisor import Part

PREFECT_SERVER = "prefect.server.api.server:create_app"
PREFECT, MLFLOW, PAGES, WORKER = "Prefect", "MLflow", "pages", "worker"


def servers(plan: Plan) -> list[Part]:
    """What listens on a port of ours."""
    parts = []
    if plan.own_prefect:
        parts.append(
            Part(
                PREFECT,
                _python(
                    *("-m", "uvicorn", "--factory", PREFECT_SERVER),
                    *_on("--host", "--port", plan.prefect),
                    *("--log-level", "warning", "--lifespan", "on", "--timeout-graceful-shutdown", "3"),
                ),
                plan.prefect,
                lambda: answers(f"{plan.api}/health"),
            )
        )
    if plan.own_mlflow:
        home = plan.settings.root
        parts.append(
            Part(
                MLFLOW,
                _python(
                    *("-m", "mlflow", "server", *_on("--host", "--port", plan.mlflow), "--workers", "1"),
                    *("--backend-store-uri", f"sqlite:///{home / 'mlflow.db'}"),
                    *("--default-artifact-root", (home / "mlartifacts").as_uri(), "--no-serve-artifacts"),
                ),
                plan.mlflow,
                lambda: answers(f"{plan.mlflow}/health"),
            )
        )
    parts.append(
        Part(
            PAGES,
            _python("-m", "ew_pipeline.cli", "serve", *_on("--host", "--port", plan.pages)),
            plan.pages,
            lambda: answers(f"{plan.pages}/health"),
        )
    )
    return parts


def worker(plan: Plan) -> Part:
    """What runs the flows; it asks the Prefect server for them."""
    name = f"ew-up-{socket.gethostname()}-{plan.mark[:8]}"
    api = Api(plan.api, plan.login)

    def ready() -> bool:
        try:
            return worker_is_online(api, name)
        except EwError:
            return False

    command = _python("-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", name)
    return Part(WORKER, command, f"work pool {POOL}", ready)


def _on(host: str, port: str, address: str) -> tuple[str, ...]:
    return (host, LOOPBACK, port, str(urlsplit(address).port))


def _python(*words: str) -> list[str]:
    return [sys.executable, *words]
