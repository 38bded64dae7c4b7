"""What the ledger gives back, what a run that ended early hands in, and how moments and paths are kept."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.assemble import Coverage
from ew_pipeline.intake.contract import Contract
from ew_pipeline.results import Override

BASIS = "labels"  # what evaluations of published weeks are measured by
PUBLISHED = "published"  # among the policies of an evaluation: what the list said
Status = Literal["computed", "held", "published", "unchanged", "rejected", "failed", "shadow"]
STATUSES: tuple[Status, ...] = get_args(Status)
InputKey = tuple[str, str, str]  # data, config and code: equal keys give equal flags


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run that ended before it had a result."""

    run_id: str
    week: Week
    started_at: dt.datetime
    config: RunConfig
    folder: Path
    shadow: bool = False
    data_hash: str | None = None
    contract: Contract | None = None
    coverage: Coverage | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    flow_run_id: str | None = None


@dataclass(frozen=True)
class Run:
    """An attempt at a week, as last recorded (``revision`` counts from 1)."""

    run_id: str
    revision: int
    week: Week
    status: Status
    recorded_at: dt.datetime
    recorded_by: str
    started_at: dt.datetime
    finished_at: dt.datetime
    shadow: bool
    data_hash: str | None
    config_hash: str
    code_version: str
    seed: int
    flow_run_id: str | None
    mlflow_run_id: str | None
    pairs_scored: int | None
    pairs_flagged: int | None
    expected_saving: float | None
    expected_cost: float | None
    expected_cost_ignoring: float | None
    config: Mapping[str, Any]  # of the version that ran it; `RunConfig.model_validate` reads it
    contract: Mapping[str, Any] | None
    coverage: Mapping[str, Any] | None
    gate: tuple[Mapping[str, Any], ...]
    pricing: Mapping[str, Any] | None
    warnings: tuple[str, ...]
    timings: Mapping[str, float]
    environment: Mapping[str, str]
    folder: Path
    error: str | None


@dataclass(frozen=True)
class Publication:
    """What became live for a week, and who and what stands behind it.

    ``created`` is False when publishing found the same inputs already live. ``source_id`` is the publication
    whose flags and files these are: itself, or for a rollback the one that is live again.
    """

    id: int
    week: Week
    version: int
    kind: Literal["publish", "rollback"]
    run_id: str
    supersedes: int | None
    source_id: int
    published_at: dt.datetime
    published_by: str
    override: Override | None
    reason: str | None
    data_hash: str
    config_hash: str
    code_version: str
    pairs_scored: int
    flags_count: int
    flags_hash: str
    expected_saving: float
    report: Path
    report_hash: str
    scores: Path | None
    scores_hash: str | None
    files: Mapping[str, str]  # path in the run's folder -> sha256
    created: bool = True

    @property
    def input_key(self) -> InputKey:
        return (self.data_hash, self.config_hash, self.code_version)


@dataclass(frozen=True)
class ConfigRole:
    """A configuration that was made champion or challenger, as it was written then."""

    id: int
    role: str
    run_id: str
    config_hash: str
    values: Mapping[str, Any]
    assigned_at: dt.datetime
    assigned_by: str
    why: str

    @property
    def config(self) -> RunConfig:
        """The configuration, if this version of the code still knows all of it."""
        return read_config(self.values, f"the {self.role} since {self.assigned_at:%Y-%m-%d}")


def read_config(values: Mapping[str, Any], whose: str) -> RunConfig:
    """A configuration out of the ledger; settings that are no longer known are an error, never dropped."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        unread = sorted({".".join(map(str, item["loc"])) for item in error.errors()})
        raise UsageError(
            f"the configuration of {whose} is not one of this version: {name_some(unread, len(unread))}.",
            "run a week with a configuration of this version in shadow, and promote that run.",
        ) from None


@dataclass(frozen=True)
class Problem:
    """Something in the ledger that is not as it was written.

    ``kind``: edited, inserted, deleted (a row of ``table``), broken (the chain itself), or truncated (the end
    of the chain is gone). ``key``: the row.
    """

    kind: Literal["edited", "inserted", "deleted", "broken", "truncated"]
    table: str
    key: str
    words: str


class Places:
    """Paths inside the home are kept relative to it: the home can move, or be mounted elsewhere."""

    def __init__(self, home: Path | None) -> None:
        self.home = None if home is None else home.expanduser().resolve()

    def keep(self, path: Path) -> str:
        path = path.absolute()
        if self.home is not None and path.is_relative_to(self.home):
            return path.relative_to(self.home).as_posix()
        return path.as_posix()

    def find(self, kept: str) -> Path:
        return Path(kept) if self.home is None else self.home / kept


def moment(value: dt.datetime) -> str:
    """UTC in ISO text of one width, so that text sorts in time."""
    if value.tzinfo is None:
        raise DataError(f"{value} has no time zone.", "pass an aware datetime, e.g. datetime.now(UTC).")
    return value.astimezone(dt.UTC).isoformat(timespec="microseconds")


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
