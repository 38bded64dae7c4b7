"""What `ew up` starts: decided, and refused, before anything is started."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.provenance import PACKAGE
from ew_pipeline.core.settings import Settings
from ew_pipeline.servers.ports import LOOPBACK, listening
from ew_pipeline.servers.prefect import LOGIN, quiet_environment, server_login
from ew_pipeline.servers.standing import prefect_login
from ew_pipeline.servers.supervisor import HOME_MARK, MARK

FILE = Path("infra", "prefect.yaml")
PACKED = PACKAGE / "_infra" / "prefect.yaml"  # the same file, as the wheel holds it
FLOWS = Path("flows", "weekly.py")


@dataclass(frozen=True)
class Flows:
    """Where the flows are: ``root`` is the folder that ``flows/`` is in, ``file`` the schedule."""

    root: Path
    file: Path


@dataclass(frozen=True)
class Ports:
    """0: any that is free."""

    pages: int
    prefect: int
    mlflow: int


@dataclass(frozen=True)
class Plan:
    """``own_prefect``, ``own_mlflow``: whether we start the server, or somebody else has."""

    settings: Settings
    flows: Flows
    pages: str
    prefect: str
    own_prefect: bool
    mlflow: str
    own_mlflow: bool
    environment: Mapping[str, str] = field(repr=False)  # holds passwords

    @property
    def login(self) -> str | None:
        """Of the Prefect server, ``user:password``."""
        return self.environment.get(LOGIN)

    @property
    def api(self) -> str:
        return f"{self.prefect}/api" if self.own_prefect else self.prefect

    @property
    def logs(self) -> Path:
        return self.settings.root / "logs"

    @property
    def mark(self) -> str:
        return self.environment[MARK]


def make_plan(settings: Settings, sources: Mapping[str, str | None], ports: Ports) -> Plan:
    """``sources``: EW_SALES, EW_LISTING and EW_COSTS as they were given."""
    named = _found(sources)
    flows = find_flows(os.environ.get("EW_CHECKOUT"))
    given_prefect = settings.prefect_api_url
    given_mlflow = settings.mlflow_tracking_uri
    wanted = {"pages": ports.pages}
    if given_prefect is None:
        wanted["prefect"] = ports.prefect
    if given_mlflow is None:
        wanted["mlflow"] = ports.mlflow
    address = {name: f"http://{LOOPBACK}:{port}" for name, port in _chosen(wanted).items()}
    prefect = given_prefect.rstrip("/") if given_prefect is not None else address["prefect"]
    environment = {**os.environ, **named, MARK: uuid.uuid4().hex, HOME_MARK: str(settings.root)}
    environment |= {
        "EW_HOME": str(settings.root),
        "EW_CHECKOUT": str(flows.root),
        "PREFECT_API_URL": prefect if given_prefect is not None else f"{prefect}/api",
        "PYTHONUNBUFFERED": "1",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    environment.setdefault("PREFECT_LOGGING_LEVEL", "INFO")  # a run's messages are read in Prefect
    quiet_environment(settings, environment)
    if given_prefect is None:
        server_login(environment, prefect_login(settings), int(prefect.rpartition(":")[2]))
    environment.setdefault("PREFECT_UI_STATIC_DIRECTORY", str(Path(environment["PREFECT_HOME"], "ui")))
    return Plan(
        settings=settings,
        flows=flows,
        pages=address["pages"],
        prefect=prefect,
        own_prefect=given_prefect is None,
        mlflow=given_mlflow if given_mlflow is not None else address["mlflow"],
        own_mlflow=given_mlflow is None,
        environment=environment,
    )


def find_flows(checkout: str | None) -> Flows:
    """The flows and their schedule: of ``EW_CHECKOUT``, of the checkout this package is in, or packed."""
    places = [Path(checkout).expanduser().resolve()] if checkout else [PACKAGE.parent]
    for place in places:
        if (place / FILE).is_file() and (place / FLOWS).is_file():
            return Flows(place, place / FILE)
    if not checkout and PACKED.is_file() and (PACKAGE.parent / FLOWS).is_file():
        return Flows(PACKAGE.parent, PACKED)
    raise UsageError(
        f"the flows and their schedule ({FLOWS} and {FILE}) are not in {places[0]}.",
        "set EW_CHECKOUT to the folder of a checkout of ew-pipeline, or install the package again.",
    )


def _found(sources: Mapping[str, str | None]) -> dict[str, str]:
    """Absolute: flows run in another folder."""
    if not sources.get("EW_SALES"):
        raise UsageError(
            "there are no sales to run on Mondays: neither --sales nor EW_SALES names them.",
            "ew up --sales FILE [--listing FILE] [--costs FILE]",
        )
    named = {name: place for name, place in sources.items() if place}
    for name, place in named.items():
        if "://" not in place:
            named[name] = str(Path(place).expanduser().resolve())
            if not Path(named[name]).exists():
                raise UsageError(f"{name} is not there: {place}.", f"correct --{name[3:].lower()} or {name}")
    return named


def _chosen(wanted: Mapping[str, int]) -> dict[str, int]:
    """A port for each, all free at this moment; held until all are chosen, so that no two are the same."""
    with ExitStack() as held:
        listeners = {
            name: held.enter_context(listening(LOOPBACK, port, f"--{name}-port"))
            for name, port in _numbers_first(wanted.items())
        }
        return {name: int(listener.getsockname()[1]) for name, listener in listeners.items()}


def _numbers_first(wanted: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(wanted, key=lambda item: item[1] == 0)
