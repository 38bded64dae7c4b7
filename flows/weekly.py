"""The weekly flow: one week from its sales to published flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.runtime import flow_run
from prefect.states import Completed, State

from ew_pipeline.cluster.segments import fit_segments_on
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.intake.source_passwords import from_environment
from ew_pipeline.outputs.summary import summary_markdown
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.request import make_request
from ew_pipeline.weekly.run import Outcome, run_week
from flows.drift import announce
from flows.follow import follow_drift
from flows.steps import PrefectSteps

TOP_FLAGS = 20


def _run_name() -> str:
    return f"week {flow_run.parameters.get('week') or 'last complete'}"


@flow(name="weekly", flow_run_name=_run_name, persist_result=False, validate_parameters=False)
def weekly(
    sales: str | None = None,
    week: str | None = None,
    listing: str | None = None,
    costs: str | None = None,
    stores: str | None = None,
    skus: str | None = None,
    config: dict[str, Any] | None = None,
    shadow: bool = False,
    override_why: str | None = None,
    dask: str | None = None,
) -> State[Outcome]:
    """Check the data, fit the detector, decide, and publish the week's flags if they are fit to be.

    ``week`` defaults to the last complete one; ``sales``, ``listing`` and ``costs`` to the variables
    EW_SALES, EW_LISTING and EW_COSTS of the process. Prefect stores parameters: a URL among them has ``***``
    for its password, and the variable has the whole. ``config`` holds fields of ``RunConfig`` that differ
    from the champion's. ``dask``: the scheduler of a cluster whose workers fit the segments.
    The state is named after the outcome: Published, Unchanged, Held or Shadow.
    """
    settings = Settings().on_cluster(dask)
    sales = sales or from_environment("sales")
    if sales is None:
        raise UsageError("there are no sales.", "set EW_SALES for the worker, or the parameter `sales`.")
    request = make_request(
        settings,
        week=week,
        sales=sales,
        listing=listing or from_environment("listing"),
        costs=costs or from_environment("costs"),
        stores=stores,
        skus=skus,
        changes=config or {},
        shadow=shadow,
        override_why=override_why,
    )
    steps = PrefectSteps()
    with Tracking(settings) as tracking:
        outcome = run_week(request, settings, steps, tracking, fit_segments_on)
    drift = follow_drift(outcome, settings, steps)
    for alert in drift.new if drift is not None else ():
        announce(alert)
    _show(outcome, str(request.week).lower())
    return Completed(name=outcome.status.capitalize(), message=_message(outcome), data=outcome)


def _show(outcome: Outcome, key: str) -> None:
    create_link_artifact(
        link=Path(outcome.report).as_uri(),
        link_text="report",
        key=f"report-{key}",
        description="The week's page",
    )
    if outcome.result is None:
        return
    summary = summary_markdown(
        outcome.result, override=outcome.result.override, publish_anyway=outcome.publish_anyway
    )
    create_markdown_artifact(summary, key=f"summary-{key}")
    top = outcome.result.flags.head(TOP_FLAGS)
    columns = [
        "store_id",
        "sku_id",
        "units",
        "expected_units",
        "anomaly_probability",
        "expected_saving",
        "reasons",
    ]
    create_table_artifact(
        top[columns].astype({"store_id": str, "sku_id": str}).round(3).to_dict("records"), key=f"flags-{key}"
    )


def _message(outcome: Outcome) -> str:
    if outcome.result is None:
        return "the same inputs are published already"
    if outcome.status == "held":
        return "held back: " + "; ".join(check.words for check in outcome.result.held)
    return f"{len(outcome.result.flags)} pairs to check"
