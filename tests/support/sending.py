"""Send a computed week to MLflow in this process, as the process beside a run does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ew_pipeline.core.settings import Settings
from ew_pipeline.results import WeekResult
from ew_pipeline.tracking.delivery import Delivery, deliver, write_delivery
from ew_pipeline.tracking.facts import week_facts


def send(
    result: WeekResult,
    settings: Settings,
    *,
    published: str | None = None,
    artifacts: Mapping[str, Path] | None = None,
) -> Delivery:
    """``published``: the id of its publication."""
    facts = week_facts(result)
    files = {place: str(path) for place, path in (artifacts or {}).items()}
    wanted = "published" if published else facts.status
    write_delivery(result.folder, Delivery(facts, wanted, artifacts=files, publication_id=published))
    return deliver(result.folder, settings)
