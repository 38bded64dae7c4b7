"""MLflow, set up: quiet, offline, and in the home unless ``MLFLOW_TRACKING_URI`` names another place."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.database import follow_the_home, locked, prepare_database

if TYPE_CHECKING:
    from mlflow import MlflowClient

WEEKLY = "ew-weekly"
DRIFT = "ew-drift"
EVALUATION = "ew-evaluation"
EXPERIMENTS = (WEEKLY, DRIFT, EVALUATION)
LONGEST_WORDS = 200
QUIET: Mapping[str, str] = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_RECORD_ENV_VARS_IN_MODEL_LOGGING": "false",
    "MLFLOW_LOG_UV_FILES": "false",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    # MLflow's own patience is minutes a call; ours is a few tries of the whole week, and later again.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "GIT_PYTHON_REFRESH": "quiet",
}


class TrackingError(EwError):
    """MLflow cannot be reached or refuses. The week itself is not affected."""


def quiet_environment(environment: MutableMapping[str, str]) -> None:
    """MLflow's variables, before mlflow is imported; what the user has set stays."""
    for name, value in QUIET.items():
        environment.setdefault(name, value)


def prepare_tracking(settings: Settings) -> str:
    """Make MLflow ready to be told about weeks, and return its tracking URI.

    Any number of processes may do this at once. Afterwards mlflow's own functions point there as well.
    """
    quiet_environment(os.environ)
    uri = settings.tracking_uri
    with explained(uri):
        if not is_server(uri):
            artifacts = settings.root / "mlartifacts"
            with locked(settings.root / "mlflow.lock"):
                prepare_database(uri)
                if settings.mlflow_tracking_uri is None:
                    follow_the_home(uri, (artifacts / WEEKLY).as_uri().removesuffix(WEEKLY), WEEKLY)
                _point_to(uri)
                _ensure_experiments(_client(uri), artifacts)
        else:
            _point_to(uri)
            _ensure_experiments(_client(uri), None)
    return uri


def tracking_client(settings: Settings) -> MlflowClient:
    """A client of the prepared MLflow."""
    return _client(prepare_tracking(settings))


def is_server(uri: str) -> bool:
    """Whether MLflow is asked over the network, where artifacts are the server's business."""
    return uri.partition(":")[0] in ("http", "https", "databricks", "databricks-uc", "uc")


def experiment_id(client: MlflowClient, name: str) -> str:
    """The id of one of ``EXPERIMENTS``."""
    found = client.get_experiment_by_name(name)
    if found is None:
        raise TrackingError(f"MLflow has lost its experiment {name}.", "send the week again.")
    return str(found.experiment_id)


def run_url(uri: str, experiment_id: str, run_id: str) -> str | None:
    """The run's page; the embedded MLflow has none until ``mlflow server`` is started on it."""
    if uri.partition(":")[0] not in ("http", "https"):
        return None
    return f"{uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def _client(uri: str) -> MlflowClient:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _point_to(uri: str) -> None:
    import mlflow

    # mlflow also writes the variable that Settings read, and would redirect those made later.
    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    if before is None:
        os.environ.pop("MLFLOW_TRACKING_URI", None)
    else:
        os.environ["MLFLOW_TRACKING_URI"] = before


def _ensure_experiments(client: MlflowClient, artifacts: Path | None) -> None:
    from mlflow.exceptions import MlflowException

    for name in EXPERIMENTS:
        found = client.get_experiment_by_name(name)
        if found is not None:
            if found.lifecycle_stage == "deleted":
                client.restore_experiment(found.experiment_id)
            continue
        location = None if artifacts is None else (artifacts / name).as_uri()
        try:
            client.create_experiment(name, artifact_location=location)
        except MlflowException:
            if client.get_experiment_by_name(name) is None:  # else another machine was first
                raise


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """MLflow without its remarks, and with its errors (and those of what is beneath it) in words."""
    try:
        with _hushed():
            yield
    except EwError:
        raise
    except Exception as error:  # requests, urllib3, sqlalchemy, alembic, sqlite3, mlflow: all end up here
        raise TrackingError(*_diagnosis(uri, error)) from error


@contextmanager
def _hushed() -> Iterator[None]:
    """Loggers and warnings that the environment came too late for, or that have no variable."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _diagnosis(uri: str, error: Exception) -> tuple[str, str]:
    words = root_words(error)
    if is_server(uri):
        return (
            f"MLflow at {shown(uri)} does not answer: {words}.",
            "start it, or correct MLFLOW_TRACKING_URI; the week can be sent again later.",
        )
    if isinstance(error, OSError):
        return (
            f"MLflow at {shown(uri)} cannot be set up: {words}.",
            "make the home writeable, or choose another: EW_HOME=/path/to/folder.",
        )
    return (
        f"MLflow's database {shown(uri)} cannot be used: {words}.",
        "see that it is MLflow's, is not locked and has room; moved away, it is made anew.",
    )


def shown(text: str) -> str:
    """A URI, or words with one in them, without user and password."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def root_words(error: BaseException) -> str:
    """What the first error of the chain said, in one line of the console: MLflow wraps it in a page."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    said = str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = shown(lines[0] if lines else type(error).__name__).rstrip(".")
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"
