"""Evaluations in MLflow: one run per evaluated publication in the experiment ``ew-evaluation``.

The ledger's rows hold everything, so what MLflow has not been told, because it was away or is new, is sent
from them at the next evaluation. Metrics are named ``measure/policy``: MLflow draws those of one measure side
by side.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.tracking.pictures import save_cost_picture
from ew_pipeline.tracking.send import log_all, send_artifacts
from ew_pipeline.tracking.store import EVALUATION, experiment_id, explained, tracking_client

if TYPE_CHECKING:
    from mlflow import MlflowClient

MEASURES = (
    "cost_ratio",
    "regret_to_constant",
    "auc",
    "average_precision",
    "calibration_gap",
    "lift_top_k",
    "mean_predicted",
)
DECISIONS = ("precision", "recall", "cost", "saving")
PAGE_OF = 500  # runs asked for at a time


@dataclass(frozen=True)
class EvaluationFacts:
    """A row of the ledger's evaluations. ``files`` by their place in the MLflow run."""

    evaluation_id: int
    evaluated_ms: int
    document: Mapping[str, Any]
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same evaluation in any ledger; two ledgers may share an MLflow server."""
        of = self.document
        return f"{of['run_id']} {of['label']} {of['label_version']} {of['data_hash'][:16]}"


def send_evaluations(rows: Sequence[EvaluationFacts], settings: Settings) -> list[str]:
    """Tell MLflow of every evaluation that it does not know; the ids of the runs that were made."""
    if not rows:
        return []
    client = tracking_client(settings)
    with explained(settings.tracking_uri):
        experiment = experiment_id(client, EVALUATION)
        known = set(_known(client, experiment))
        return [_send(client, experiment, one) for one in rows if one.key not in known]


def metrics_of(document: Mapping[str, Any]) -> dict[str, float]:
    """The figures of an evaluation, as ``measure/policy``; what is not a number is left out."""
    found: dict[str, Any] = {
        "week_index": Week.parse(document["week"]).index,
        "pairs": document["pairs"],
        "anomalies": document["anomalies"],
    }
    for name, policy in document["policies"].items():
        found |= {f"{measure}/{name}": policy[measure] for measure in MEASURES}
        found |= {f"cost_ratio_low/{name}": policy["cost_ratio_interval"][0]}
        found |= {f"cost_ratio_high/{name}": policy["cost_ratio_interval"][1]}
        found |= {f"tpr_at_{rate}/{name}": value for rate, value in policy["tpr_at"].items()}
        found |= {f"{figure}/{name}": policy["decisions"][figure]["value"] for figure in DECISIONS}
        for band in policy["bands"]:
            found[f"cost_ratio_from_{band['low']:g}_units/{name}"] = band["cost_ratio"]
        for segment in policy["segments"]:
            found[f"cost_ratio_in_{_key(segment['name'])}/{name}"] = segment["cost_ratio"]
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def _known(client: MlflowClient, experiment: str) -> Iterator[str]:
    token = None
    while True:
        page = client.search_runs(
            [experiment], "tags.`ew.complete` = 'true'", max_results=PAGE_OF, page_token=token
        )
        yield from (run.data.tags["ew.evaluation"] for run in page)
        token = page.token
        if not token:
            return


def _send(client: MlflowClient, experiment: str, facts: EvaluationFacts) -> str:
    of = facts.document
    half = client.search_runs([experiment], f"tags.`ew.evaluation` = '{facts.key}'", max_results=1)
    if half:  # begun and not finished: go on with it
        run_id = str(half[0].info.run_id)
    else:
        tags = {"ew.evaluation": facts.key, "mlflow.source.name": "ew-pipeline"}
        name = f"{of['week']} publication {of['publication']} {of['label']}"
        made = client.create_run(experiment, start_time=facts.evaluated_ms, tags=tags, run_name=name)
        run_id = str(made.info.run_id)
    params = {
        "label_rule": of["label"],
        "label_version": of["label_version"],
        "costs": of["costs"],
        "zero_rule": of["zero_rule"],
        "policies": ", ".join(of["policies"]),
    }
    tags = {
        "ew.week": of["week"],
        "ew.data_hash": of["data_hash"],
        "ew.code_version": of["code_version"],
        "ew.publication_id": str(of["publication"]),
        "ew.run_id": of["run_id"],
        "ew.evaluation_id": str(facts.evaluation_id),
    }
    log_all(client, run_id, facts.evaluated_ms, params, metrics_of(of), {}, tags)
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "cost.png"
        save_cost_picture(of, picture)
        there = {place: path for place, path in facts.files.items() if path.is_file()}
        send_artifacts(client, run_id, {"cost.png": picture, **there})
    client.set_tag(run_id, "ew.complete", "true")
    client.set_terminated(run_id, "FINISHED")
    return run_id


def _key(words: str) -> str:
    """A segment's name as part of a name that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", words)[:60]
