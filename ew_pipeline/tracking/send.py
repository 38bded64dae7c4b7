"""Tell MLflow about a week: a parent run, a nested run per segment, their models.

Everything can be done twice: runs are found by the tag ``ew.run_id``, metrics carry the run's own time, and a
model version is made once per run. So a week that was sent half is sent again as a whole.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.drift_run import add_to_drift
from ew_pipeline.tracking.facts import SegmentFacts, WeekFacts
from ew_pipeline.tracking.pictures import save_rank_picture
from ew_pipeline.tracking.registry import CHALLENGER, CHAMPION, move_alias, register
from ew_pipeline.tracking.store import WEEKLY, experiment_id, explained, run_url, tracking_client

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

WHOLE_WEEK = "week"
MOST_METRICS, MOST_PARAMS, MOST_TAGS = 1000, 100, 100  # of one batch, by MLflow's limits
DIGEST_LENGTH = 32  # MLflow keeps 36 characters; the whole hash is a tag
LONGEST_VALUE = 5000


@dataclass(frozen=True)
class SentRun:
    """The parent run of a week. ``url`` is None without a server."""

    run_id: str
    url: str | None


def send_week(
    facts: WeekFacts,
    settings: Settings,
    artifacts: Mapping[str, Path] | None = None,
    on_run: Callable[[SentRun], None] | None = None,
) -> SentRun:
    """Track a week; ``artifacts`` are files and folders by their place in the run (``report.html``)."""
    client = tracking_client(settings)
    with explained(settings.tracking_uri):
        experiment = experiment_id(client, WEEKLY)
        parent = _run(client, experiment, facts, WHOLE_WEEK, name=f"{facts.week} {facts.run_id[-6:]}")
        run_id = parent.info.run_id
        sent = SentRun(run_id, run_url(settings.tracking_uri, experiment, run_id))
        if on_run is not None:
            on_run(sent)
        if parent.data.tags.get("ew.complete") != "true":
            log_all(client, run_id, facts.started_ms, facts.params, facts.metrics, {}, facts.tags)
            _log_dataset(client, run_id, facts, settings)
            for segment in facts.segments:
                _send_segment(client, experiment, run_id, facts, segment)
            log_all(
                client,
                run_id,
                facts.started_ms,
                {},
                {},
                {},
                {"ew.status": facts.status, "ew.complete": "true"},
            )
            client.set_terminated(run_id, "FINISHED")
        send_artifacts(client, run_id, artifacts or {})
    return sent


def send_status(
    facts: WeekFacts, run_id: str, status: str, settings: Settings, publication_id: str | None = None
) -> None:
    """Mark a tracked week. When it is published its models become champions and theta joins the drift run.

    The run that it supersedes is marked too. A champion is never replaced by the model of an earlier week,
    so that a backfill leaves the aliases alone.
    """
    client = tracking_client(settings)
    with explained(settings.tracking_uri):
        tags = {"ew.status": status, **({"ew.publication_id": publication_id} if publication_id else {})}
        nested = _nested(client, run_id)
        for run in (run_id, *(one.info.run_id for one in nested)):
            log_all(client, run, facts.started_ms, {}, {}, {}, tags)
        if status != "published":
            return
        for earlier in _published(client, facts.week):
            if earlier.info.run_id != run_id:
                client.set_tag(earlier.info.run_id, "ew.status", "superseded")
        names = {segment.name: segment.model_name for segment in facts.segments}
        for one in nested:
            name = names[one.data.tags["ew.segment"]]
            move_alias(client, name, CHAMPION, one.info.run_id, facts.week_index)
        add_to_drift(client, facts)


def send_artifacts(client: MlflowClient, run_id: str, artifacts: Mapping[str, Path]) -> None:
    """Upload files and folders to their places in the run."""
    for place, path in artifacts.items():
        if path.is_dir():
            client.log_artifacts(run_id, str(path), place)
            continue
        folder = PurePosixPath(place)
        target = folder.parent if folder.name == path.name else folder
        client.log_artifact(run_id, str(path), None if str(target) == "." else str(target))


def _send_segment(
    client: MlflowClient, experiment: str, parent_id: str, facts: WeekFacts, segment: SegmentFacts
) -> None:
    run = _run(client, experiment, facts, segment.name, name=segment.name, parent_id=parent_id)
    run_id = run.info.run_id
    metrics = {**segment.metrics, "week_index": float(facts.week_index)}
    log_all(client, run_id, facts.started_ms, segment.params, metrics, segment.curves, facts.tags)
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "rank_curve.png"
        if save_rank_picture(segment, picture):
            client.log_artifact(run_id, str(picture))
    if segment.model:
        register(client, run_id, facts, segment)
    if facts.status == "shadow":
        move_alias(client, segment.model_name, CHALLENGER, run_id, facts.week_index)
    log_all(client, run_id, facts.started_ms, {}, {}, {}, {"ew.status": facts.status})
    client.set_terminated(run_id, "FINISHED")


def _run(
    client: MlflowClient,
    experiment: str,
    facts: WeekFacts,
    part: str,
    *,
    name: str,
    parent_id: str | None = None,
) -> Run:
    """The run of this part of the week: the one that is there, or a new one."""
    where = f"tags.`ew.run_id` = '{facts.run_id}' and tags.`ew.part` = '{_part(part, parent_id)}'"
    found = client.search_runs([experiment], where, max_results=1)
    if found:
        return found[0]
    tags = {"ew.run_id": facts.run_id, "ew.part": _part(part, parent_id), "mlflow.source.name": "ew-pipeline"}
    if parent_id is not None:
        tags |= {"mlflow.parentRunId": parent_id, "ew.segment": part}
    return client.create_run(experiment, start_time=facts.started_ms, tags=tags, run_name=name)


def _part(part: str, parent_id: str | None) -> str:
    """Quotes would end the filter's string early."""
    return part if parent_id is None else "segment " + part.replace("'", "’")


def _nested(client: MlflowClient, parent_id: str) -> list[Run]:
    experiment = client.get_run(parent_id).info.experiment_id
    return list(client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent_id}'"))


def _published(client: MlflowClient, week: str) -> list[Run]:
    experiment = experiment_id(client, WEEKLY)
    where = (
        f"tags.`ew.week` = '{week}' and tags.`ew.part` = '{WHOLE_WEEK}' and tags.`ew.status` = 'published'"
    )
    return list(client.search_runs([experiment], where))


def log_all(
    client: MlflowClient,
    run_id: str,
    when: int,
    params: Mapping[str, str],
    metrics: Mapping[str, float],
    curves: Mapping[str, Iterable[tuple[int, float]]],
    tags: Mapping[str, str],
) -> None:
    """All of it in one call, or as few as MLflow allows: each is a round trip. ``when``: milliseconds."""
    from mlflow.entities import Metric, Param, RunTag

    points = [Metric(name, value, when, 0) for name, value in metrics.items()]
    points += [Metric(name, value, when, step) for name, curve in curves.items() for step, value in curve]
    settings = [Param(name, value[:LONGEST_VALUE]) for name, value in params.items()]
    labels = [RunTag(name, value[:LONGEST_VALUE]) for name, value in tags.items()]
    while points or settings or labels:
        client.log_batch(run_id, points[:MOST_METRICS], settings[:MOST_PARAMS], labels[:MOST_TAGS])
        points, settings, labels = points[MOST_METRICS:], settings[MOST_PARAMS:], labels[MOST_TAGS:]


def _log_dataset(client: MlflowClient, run_id: str, facts: WeekFacts, settings: Settings) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    columns = (("store_id", "string"), ("sku_id", "string"), ("week", "string"), ("units", "long"))
    schema = [{"type": kind, "name": name, "required": True} for name, kind in columns]
    dataset = Dataset(
        name=f"sales {facts.week}",
        digest=facts.data_hash[:DIGEST_LENGTH],
        source_type="local",
        source=json.dumps({"uri": str(settings.snapshots / facts.data_hash), "sha256": facts.data_hash}),
        schema=json.dumps({"mlflow_colspec": schema}),
        profile=json.dumps({"num_rows": facts.rows}),
    )
    client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "weekly")])])
