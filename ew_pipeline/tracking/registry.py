"""The fitted detector as a registered model: champion is what the latest published week was made with."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ew_pipeline._version import __version__
from ew_pipeline.core.errors import EwError
from ew_pipeline.tracking.facts import SegmentFacts, WeekFacts
from ew_pipeline.tracking.files import DESCRIPTION

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

CHAMPION = "champion"
CHALLENGER = "challenger"
LOADER = "ew_pipeline.tracking.pyfunc"
DATA = "detector"  # folder of the model's own files, under data/


def register(client: MlflowClient, run_id: str, facts: WeekFacts, segment: SegmentFacts) -> None:
    """Log the saved model to the run and make a version of it, once.

    The model is its two files and the name of the module that reads them: nothing is pickled, and no code is
    copied.
    """
    if version_of(client, segment.model_name, run_id) is not None:
        return
    if not (Path(segment.model) / DESCRIPTION).exists():  # MLflow would upload nothing and say nothing
        raise EwError(f"there is no model in {segment.model}.", "run the week again.")
    model_id = _log_model(client, run_id, facts, segment)
    _ensure_registered(client, segment)
    client.create_model_version(
        segment.model_name,
        source=f"models:/{model_id}",
        run_id=run_id,
        model_id=model_id,
        tags={
            "ew.week": facts.week,
            "ew.week_index": str(facts.week_index),
            "ew.run_id": facts.run_id,
            "ew.data_hash": facts.data_hash,
        },
    )


def _log_model(client: MlflowClient, run_id: str, facts: WeekFacts, segment: SegmentFacts) -> str:
    """MLflow's description of the model, then the model's own files, which are large, without a copy between.

    Not ``log_model``: it takes the experiment from the state of the process instead of from the run.
    """
    import mlflow.pyfunc
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    experiment = client.get_run(run_id).info.experiment_id
    logged = client.create_logged_model(
        experiment, "detector", source_run_id=run_id, tags={"ew.week": facts.week}
    )
    about = {"ew.run_id": facts.run_id, "ew.week": facts.week, "ew.segment": segment.name}
    with tempfile.TemporaryDirectory() as folder:
        description, empty = Path(folder) / "description", Path(folder) / DATA
        empty.mkdir()
        mlflow.pyfunc.save_model(
            path=str(description),
            loader_module=LOADER,
            data_path=str(empty),
            mlflow_model=Model(run_id=run_id, model_id=logged.model_id, metadata=about),
            signature=_signature(),
            pip_requirements=[f"ew-pipeline=={__version__}"],
        )
        client.log_model_artifacts(logged.model_id, str(description))
    client.log_model_artifacts(logged.model_id, segment.model, f"data/{DATA}")
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    return str(logged.model_id)


def move_alias(client: MlflowClient, name: str, alias: str, run_id: str, week_index: int) -> None:
    """Let the alias point at the run's version, unless it points at a later week's."""
    version = version_of(client, name, run_id)
    if version is None:
        return
    holder = _holder(client, name, alias)
    if holder is not None and int(holder.tags.get("ew.week_index", week_index)) > week_index:
        return
    client.set_registered_model_alias(name, alias, version.version)


def version_of(client: MlflowClient, name: str, run_id: str) -> ModelVersion | None:
    """The version that the run made, if it did."""
    found = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'", max_results=1)
    return found[0] if found else None


def _holder(client: MlflowClient, name: str, alias: str) -> ModelVersion | None:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_model_version_by_alias(name, alias)
    except MlflowException:  # nobody holds it yet
        return None


def _ensure_registered(client: MlflowClient, segment: SegmentFacts) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(
            segment.model_name,
            description=f"Entrywise detector, segment {segment.name}: one version per run of a week.",
        )
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _signature() -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, DataType, Schema

    inputs = Schema(
        [
            ColSpec(DataType.string, "store_id"),
            ColSpec(DataType.string, "sku_id"),
            ColSpec(DataType.long, "units"),
            ColSpec(DataType.double, "level", required=False),
        ]
    )
    outputs = Schema(
        [ColSpec(DataType.double, "anomaly_probability"), ColSpec(DataType.double, "expected_units")]
    )
    return ModelSignature(inputs, outputs)
