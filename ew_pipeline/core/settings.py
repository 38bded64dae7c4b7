"""Settings: of the machine and of alerts (from the environment), and how a week is run (changes the flags).

All are built at the edge, by a command or a flow, and passed down.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ew_pipeline.core.arrays import available_threads
from ew_pipeline.core.provenance import canonical_hash


class Settings(BaseSettings):
    """The machine's side: each is an environment variable ``EW_<NAME>``. None of them changes a flag."""

    model_config = SettingsConfigDict(env_prefix="EW_", frozen=True, extra="ignore")

    home: Path = Field(Path(".ew"), description="folder of everything the embedded default keeps")
    database_url: str | None = Field(
        None, description="the ledger, e.g. postgresql+psycopg://…; default: ledger.db in the home"
    )
    time_zone: str = Field("UTC", description="in which the last complete week is found")
    threads: int = Field(
        default_factory=available_threads, ge=1, description="of a fit, and chains side by side"
    )
    orchestrate: bool = Field(True, description="run through Prefect; false calls the same steps directly")
    actor: str = Field(
        default_factory=lambda: os.environ.get("USER") or "unknown",
        description="who is recorded for overrides, promotions and checks",
    )
    mlflow_tracking_uri: str | None = Field(
        None,
        validation_alias="MLFLOW_TRACKING_URI",
        description="MLflow server; default: mlflow.db in the home",
    )
    prefect_api_url: str | None = Field(
        None, validation_alias="PREFECT_API_URL", description="Prefect server; default: embedded"
    )
    dask_address: str | None = Field(None, description="scheduler of an existing Dask cluster")
    keep_weeks: int = Field(
        104, ge=1, description="newest published weeks whose scores and models `ew audit prune` leaves whole"
    )

    def on_cluster(self, address: str | None) -> Settings:
        """The same with another Dask scheduler, if one is given."""
        return self if address is None else self.model_copy(update={"dask_address": address})

    @property
    def root(self) -> Path:
        """The home as an absolute path."""
        return self.home.expanduser().resolve()

    @property
    def ledger_url(self) -> str:
        return self.database_url or f"sqlite:///{self.root / 'ledger.db'}"

    @property
    def tracking_uri(self) -> str:
        return self.mlflow_tracking_uri or f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    @property
    def reports(self) -> Path:
        """One folder per week: the live report and check lists."""
        return self.root / "reports"

    @property
    def evaluations(self) -> Path:
        """One folder per evaluated week, and one per backtest: their pages."""
        return self.root / "evaluations"

    @property
    def runs(self) -> Path:
        """One folder per run: everything it made, published or not."""
        return self.root / "runs"

    @property
    def cache(self) -> Path:
        """What can be worked out again: removing it costs time and nothing else."""
        return self.root / "cache"


class DriftSettings(BaseSettings):
    """How often a false alarm may come, and who is told: environment variables too."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore")

    weeks_between_alarms: float = Field(
        52.0,
        ge=2,
        validation_alias="EW_DRIFT_WEEKS_BETWEEN_ALARMS",
        description="stable weeks per false alarm, all series of all segments together, at least",
    )
    alert_url: str | None = Field(
        None,
        validation_alias="EW_ALERT_URL",
        description="where alerts are sent: https://… (a JSON POST) or mailto:…; several with commas",
    )


class ContractLimits(BaseModel):
    """When a batch is rejected rather than cleaned of its faulty rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_faulty_share: float = Field(0.01, ge=0, le=1, description="faulty rows of the week, at most")


class GateLimits(BaseModel):
    """When a result is held back from publication."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_flagged_share: float = Field(0.15, gt=0, le=1, description="flagged of the scored pairs")
    min_pairs: int = Field(200, ge=1, description="scored pairs of the week")
    min_reporting_share: float = Field(0.8, ge=0, le=1, description="stores that reported, of those expected")
    max_rank_change: int = Field(3, ge=0, description="against the last published week")
    min_null_gain: float = Field(3.0, description="nats by which the model with anomalies must win")


class DetectorSettings(BaseModel):
    """Arguments of ``EntrywiseDetector``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["auto", "thorough", "variational", "large", "fast", "paper", "paper-practical"] = "auto"
    rank: int | Literal["auto"] = "auto"
    noise: Literal["auto", "poisson", "negative_binomial"] = "auto"
    anomaly: Literal["auto", "exponential", "thinning", "zero", "uniform", "uniform_onset"] = "auto"
    max_rank: int = Field(10, ge=1)
    random_state: int = Field(0, ge=0)


class RunConfig(BaseModel):
    """Everything besides the data that can change a flag; its hash goes on every published row."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zero_rule: Literal["auto", "explicit", "listing", "inferred"] = "auto"
    inferred_weeks: int = Field(8, ge=1, description="sold in so many weeks before counts as ranged")
    history: bool = Field(True, description="use the pairs' own past when the source holds it")
    history_weeks: int = Field(8, ge=1)
    probability: Literal["auto", "posterior", "drop", "history", "calibrated"] = Field(
        "auto",
        description="what is priced: the detector's posterior or drop, the drop against the weeks around by "
        "the pair's own past, or what past labels have taught; auto takes the last of them that there is",
    )
    calibration_labels: Literal["pair", "text", "code", "checks"] = Field(
        "pair", description="what a calibration learns from: a rule on the sales around a week, or checks"
    )
    calibration_weeks: int = Field(
        47, ge=11, description="weeks before this one that a calibration may look at"
    )
    max_calibrated_pairs: int = Field(
        500_000, ge=1, description="above so many pairs the detector's own posterior is priced"
    )
    cross_section: bool = Field(
        True, description="also fit the week without its past, and say what that alone would flag"
    )
    promotions: Literal["exclude", "include"] = Field(
        "exclude", description="promoted pairs: left out of the week, or compared like any other"
    )
    segment_by: str | None = Field(
        None, description="column of sales, listing, stores or skus: one matrix per value"
    )
    min_pair_entries: int = Field(
        5, ge=1, description="pairs a store or SKU needs in the week (or weeks of its own past) to be scored"
    )
    default_cost_false_alarm: float = Field(1.0, ge=0)
    default_cost_missed: float = Field(3.0, ge=0)
    max_checks_per_store: int | None = Field(None, ge=0)
    random_check_share: float = Field(
        0.0, ge=0, le=1, description="of the pairs that are not flagged, drawn to be checked all the same"
    )
    contract: ContractLimits = ContractLimits()
    gate: GateLimits = GateLimits()
    detector: DetectorSettings = DetectorSettings()

    @model_validator(mode="before")
    @classmethod
    def _as_once_written(cls, values: Any) -> Any:
        """The choice was a setting of the detector once; recorded configurations still say it there."""
        detector = values.get("detector") if isinstance(values, Mapping) else None
        if not isinstance(detector, Mapping) or "probability" not in detector:
            return values
        rest = {name: value for name, value in detector.items() if name != "probability"}
        return {**values, "detector": rest, "probability": detector["probability"]}

    @property
    def hash(self) -> str:
        return canonical_hash(self.model_dump(mode="json"))

    @property
    def recent_weeks(self) -> int:
        """How many weeks before tell what a pair sells, and which stores and pairs there are."""
        return max(self.history_weeks if self.history else 0, self.inferred_weeks)

    @property
    def looks_back(self) -> bool:
        """Whether the pairs' own past may be what is priced."""
        return self.history and self.probability in ("auto", "history", "calibrated")
