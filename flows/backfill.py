"""The backfill flow: many weeks in one flow run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from ew_pipeline.cluster.weeks import run_weeks
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.weekly.backfill import Backfill, backfill_weeks, progress, weeks_between
from ew_pipeline.weekly.request import make_request
from flows.steps import PrefectSteps

Result = TypeVar("Result")


class WeekSteps(PrefectSteps):
    """The steps of one of many weeks: tasks that carry the week in their name."""

    def __init__(self, week: Week) -> None:
        super().__init__(quiet=True)
        self.week = week

    def execute(self, name: str, call: Callable[[], Result], retry: bool) -> Result:
        return super().execute(f"{self.week}: {name}", call, retry)


def _run_name() -> str:
    return f"backfill {flow_run.parameters.get('first')} to {flow_run.parameters.get('last')}"


@flow(name="backfill", flow_run_name=_run_name, persist_result=False, validate_parameters=False)
def backfill(
    first: str,
    last: str,
    sales: str,
    listing: str | None = None,
    costs: str | None = None,
    stores: str | None = None,
    skus: str | None = None,
    config: dict[str, Any] | None = None,
    parallel: int = 1,
    recheck: bool = False,
    override_why: str | None = None,
    dask: str | None = None,
) -> State[Backfill]:
    """Run the weeks from ``first`` to ``last``; see ``ew_pipeline.weekly.backfill``.

    ``dask``: the scheduler of a cluster whose workers run the weeks.
    The state is Completed when every week is live, else Partial; its message names the weeks that are not.
    """
    settings = Settings().on_cluster(dask)
    weeks = weeks_between(Week.parse(first), Week.parse(last))
    request = make_request(
        settings,
        week=first,
        sales=sales,
        listing=listing,
        costs=costs,
        stores=stores,
        skus=skus,
        changes=config or {},
        override_why=override_why,
    )
    with progress(len(weeks)) as on_done:
        found = backfill_weeks(
            request,
            weeks,
            settings,
            parallel=parallel,
            recheck=recheck,
            make_steps=WeekSteps,
            on_done=on_done,
            cluster_weeks=run_weeks,
        )
    rows = [
        {"week": str(done.week), "outcome": done.status, "run": done.run_id or "", "what": done.words}
        for done in found.weeks
    ]
    create_table_artifact(rows, key="backfill")
    return _state(found)


def _state(found: Backfill) -> State[Backfill]:
    bad = found.bad
    message = f"{len(found.weeks) - len(bad)} of {len(found.weeks)} weeks are published"
    if bad:
        message += "; not: " + ", ".join(f"{done.week} ({done.status})" for done in bad)
    return Completed(name="Partial" if bad else "Completed", message=message, data=found)
