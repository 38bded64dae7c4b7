"""How often a false alarm may come, and who is told. Environment variables, like all settings."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class DriftSettings(BaseSettings):
    """``EW_DRIFT_WEEKS_BETWEEN_ALARMS`` and ``EW_ALERT_URL``."""

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
