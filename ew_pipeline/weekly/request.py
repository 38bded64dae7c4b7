"""The request of a week, with nothing left open: configuration, sources, and earlier checks to learn from."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake.source_passwords import with_passwords, without_password
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.reading import UNDECIDED
from ew_pipeline.ledger.store import newest_checks
from ew_pipeline.results import Override, WeekRequest

DETECTOR = "detector_"  # an option of the detector is named detector_<field>


def make_request(
    settings: Settings,
    *,
    sales: str,
    week: str | None = None,
    listing: str | None = None,
    costs: str | None = None,
    stores: str | None = None,
    skus: str | None = None,
    changes: Mapping[str, Any] | None = None,
    shadow: bool = False,
    override_why: str | None = None,
) -> WeekRequest:
    """Fill in the last complete week, and the champion's configuration where ``changes`` says nothing.

    A URL with ``***`` for its password is made whole (``intake.source_passwords``).
    """
    if override_why is not None and not override_why.strip():
        raise UsageError(
            "publishing a result that is held back needs a reason.", "--override 'why it is fine'"
        )
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        champion = ledger.champion()
    return WeekRequest(
        week=Week.parse(week) if week else Week.last_complete(time_zone=settings.time_zone),
        **with_passwords(sales=sales, listing=listing, costs=costs, stores=stores, skus=skus),
        config=change_config(champion.config if champion else RunConfig(), changes or {}),
        shadow=shadow,
        override=Override(settings.actor, override_why) if override_why is not None else None,
    )


def publish_command(request: WeekRequest, config: Path) -> str:
    """What to type to publish the week as it was computed (``config``) although the gate held it back."""
    given = {
        "sales": request.sales,
        "listing": request.listing,
        "costs": request.costs,
        "stores": request.stores,
        "skus": request.skus,
    }
    shown = {name: without_password(spec) for name, spec in given.items() if spec is not None}
    sources = " ".join(f"--{name} {shlex.quote(spec)}" for name, spec in shown.items())
    settings = f"--config {shlex.quote(str(config))}"
    blocks = "" if request.blocks_on is None else f" --blocks --dask {shlex.quote(request.blocks_on)}"
    return f"ew run --week {request.week} {sources} {settings}{blocks} --override 'why it is fine'"


def change_config(base: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """``base`` with some fields changed, one level deep (``{"gate": {"min_pairs": 50}}``)."""
    fields = base.model_dump()
    for name, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(fields.get(name), dict)
        fields[name] = {**fields[name], **value} if nested else value
    try:
        return RunConfig.model_validate(fields)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()
        )
        raise UsageError(
            f"the configuration is wrong: {faults}.", "ew run --help lists the settings."
        ) from None


def asked_changes(file: Path | None, **options: Any) -> dict[str, Any]:
    """Settings of a configuration file and of a command's options, which win; None is an option not given."""
    changes = read_config(file) if file is not None else {}
    for name, value in options.items():
        if value is None:
            continue
        if name.startswith(DETECTOR):
            changes["detector"] = {**changes.get("detector", {}), name.removeprefix(DETECTOR): value}
        else:
            changes[name] = value
    return changes


def read_config(path: Path) -> dict[str, Any]:
    """Changes from a TOML file, or from the ``config.json`` that a run leaves in its folder."""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except ValueError as error:  # TOML's, JSON's and the encoding's errors alike
        raise UsageError(f"the configuration {path} cannot be read: {error}.") from error
    if not isinstance(found, dict):
        raise UsageError(f"the configuration {path} holds no settings by name.")
    return found


def earlier_checks(ledger: Ledger, week: Week, config: RunConfig) -> pd.DataFrame | None:
    """The checks of the weeks before that a calibration may learn from; None unless the settings say so.

    Only checks of what a publication flagged or drew: of others nobody knows how likely they were to be made.
    A check stands for 1 / (its chance of being sent to be checked) pairs.
    """
    if config.calibration_labels != "checks" or not config.looks_back:
        return None
    window = {str(other) for other in week.shift(-config.calibration_weeks).through(week.shift(-1))}
    checks = newest_checks(ledger)
    checks = checks[
        checks["week"].isin(window)
        & (checks["outcome"] != UNDECIDED)
        & checks["publication_id"].notna()
        & checks["inclusion_probability"].notna()
    ]
    return pd.DataFrame(
        {
            "store_id": checks["store_id"],
            "sku_id": checks["sku_id"],
            "week": checks["week"],
            "wrong": (checks["outcome"] == "confirmed").to_numpy().astype(np.uint8),
            "weight": 1.0 / checks["inclusion_probability"].to_numpy(dtype=np.float64),
        }
    )
