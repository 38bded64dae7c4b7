"""The steps of a run as tasks of a Prefect flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.tasks import exponential_backoff

from ew_pipeline.core.steps import FIRST_WAIT, RETRIES, Steps, is_transient

Result = TypeVar("Result")


class PrefectSteps(Steps):
    """Each step is a task of the flow that is running.

    A task takes no arguments and keeps no result: Prefect would look through every argument and store the
    results, and a week's scores are large. What may be used again is in the snapshot and the ledger.
    """

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.flow_run_id = flow_run.id

    def execute(self, name: str, call: Callable[[], Result], retry: bool) -> Result:
        step = task(
            lambda: call(),
            name=name,
            task_run_name=name,
            cache_policy=NO_CACHE,
            persist_result=False,
            retries=RETRIES if retry else 0,
            retry_delay_seconds=exponential_backoff(FIRST_WAIT),
            retry_condition_fn=_worth_a_retry,
            log_prints=False,
        )
        return step()


def _worth_a_retry(_task: object, _run: object, state: object) -> bool:
    error = state.result(raise_on_failure=False)  # type: ignore[attr-defined]
    return isinstance(error, BaseException) and is_transient(error)
