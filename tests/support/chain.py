"""A small chain on disk and a quick configuration, for tests that run whole weeks."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.results import WeekResult
from ew_pipeline.simulate import ChainSettings, simulate_chain
from ew_pipeline.tracking.delivery import Delivery, write_delivery
from ew_pipeline.tracking.facts import week_facts
from ew_pipeline.tracking.weekly import TrackedRun, Tracking
from ew_pipeline.weekly.request import make_request
from ew_pipeline.weekly.run import Outcome, run_week

LAST_WEEK = "2026-W08"
# Quick, and published unless a test wants otherwise: what the gate does is tested by itself.
QUICK: dict[str, Any] = {
    "history_weeks": 4,
    "probability": "posterior",
    "cross_section": False,
    "detector": {"mode": "variational", "rank": 1, "noise": "poisson", "anomaly": "exponential"},
    "gate": {"max_flagged_share": 1.0, "min_pairs": 10, "min_null_gain": -1e9, "min_reporting_share": 0.0},
}


def write_chain(folder: Path, seed: int = 0, **settings: Any) -> dict[str, str]:
    """The tables of a chain of 16 stores, 50 SKUs and 8 weeks, as parquet; paths by table.

    Easy on purpose (no overdispersion, many wrong records): these tests are not about how well it finds them.
    """
    easy = {"median_units": 15.0, "dispersion_size": math.inf, "phantom_rate": 0.08, "late_store_rate": 0.0}
    chosen = {"stores": 16, "skus": 50, "weeks": 8, **easy, **settings}
    chain = simulate_chain(ChainSettings.small(**chosen), seed)
    return {name: str(path) for name, path in chain.write(folder).items()}


def sources(tables: dict[str, str]) -> dict[str, str]:
    """What `ew run` takes of them."""
    return {name: tables[name] for name in ("sales", "listing", "costs") if name in tables}


@cache
def tracking() -> Tracking:
    """One MLflow for all tests of this process: starting one takes longer than a small week."""
    return Tracking(Settings(home=Path(tempfile.mkdtemp(prefix="ew-mlflow-"))))


class Untold(Tracking):
    """MLflow is away: what it would be told stays beside the run. For tests that do not ask MLflow."""

    def __init__(self) -> None:
        super().__init__(Settings(), early=False)

    def track(self, result: WeekResult, artifacts: Mapping[str, Path] | None = None) -> TrackedRun:
        facts = week_facts(result)
        write_delivery(result.folder, Delivery(facts, wanted=facts.status))
        return TrackedRun(result.folder, None, reason="MLflow is away")


def run_plainly(
    home: Path, tables: dict[str, str], week: str = LAST_WEEK, *, tracked: bool = False, **asked: Any
) -> Outcome:
    """One week in this process, without Prefect, and without MLflow unless it is ``tracked``."""
    settings = Settings(home=home)
    changes = {**QUICK, **asked.pop("changes", {})}
    request = make_request(settings, week=week, changes=changes, **{**sources(tables), **asked})
    return run_week(request, settings, Steps(quiet=True), tracking() if tracked else Untold())
