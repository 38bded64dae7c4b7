"""One run that lives for years: theta and health of every published week, at step = week index.

MLflow draws the curves of one run, not of a metric across runs; this run is the trend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ew_pipeline.tracking.facts import MODEL_NAME, WeekFacts
from ew_pipeline.tracking.store import DRIFT, experiment_id

if TYPE_CHECKING:
    from mlflow import MlflowClient

OF_THE_WEEK = ("flagged_share", "expected_saving", "expected_cost", "coverage.stores_reporting")
OF_A_SEGMENT = ("rank", "null_gain", "dispersion", "converged")


def drift_run_id(client: MlflowClient) -> str:
    """The run; made the first time."""
    experiment = experiment_id(client, DRIFT)
    # Should two first weeks ever race on a server, the older run is everyone's from then on.
    found = client.search_runs(
        [experiment], "tags.`ew.drift` = 'weekly'", order_by=["attributes.start_time ASC"], max_results=1
    )
    if found:
        return str(found[0].info.run_id)
    tags = {"ew.drift": "weekly", "mlflow.source.name": "ew-pipeline"}
    return str(client.create_run(experiment, tags=tags, run_name="theta by week").info.run_id)


def add_to_drift(client: MlflowClient, facts: WeekFacts) -> None:
    """Add the week's points. The same run twice adds nothing; one that supersedes adds a later point."""
    from mlflow.entities import Metric, RunTag

    run_id = drift_run_id(client)
    points = [Metric(name, value, facts.started_ms, facts.week_index) for name, value in _points(facts)]
    last = client.get_run(run_id).data.tags.get("ew.last_week", "")
    client.log_batch(run_id, points, tags=[RunTag("ew.last_week", max(last, facts.week))])


def _points(facts: WeekFacts) -> Iterator[tuple[str, float]]:
    for name, value in facts.metrics.items():
        if name.startswith("theta.") or name in OF_THE_WEEK:
            yield name, value
    several = len(facts.segments) > 1
    for segment in facts.segments:
        prefix = f"{segment.model_name.removeprefix(MODEL_NAME)[1:]}/" if several else ""
        for name, value in segment.metrics.items():
            of_the_week_too = name.startswith("theta.") or name in OF_THE_WEEK
            if (several and of_the_week_too) or (name in OF_A_SEGMENT and not of_the_week_too):
                yield prefix + name, value
