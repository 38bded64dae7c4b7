"""From codes and arrays to the tables of the contract. Ids and weeks are categorical: a year has to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ew_pipeline.simulate import events, population
from ew_pipeline.simulate.population import NEVER, IntArray, Pairs, Skus
from ew_pipeline.simulate.settings import ChainSettings, FloatArray

Columns = dict[str, npt.NDArray[np.generic]]


def frame(weeks: Sequence[Columns], names: dict[str, list[str]]) -> pd.DataFrame:
    """The weeks' columns below each other; a column in ``names`` holds codes into that list."""
    columns: dict[str, object] = {}
    for column in weeks[0]:
        values = np.concatenate([week[column] for week in weeks])
        columns[column] = category(values, names[column], column == "week") if column in names else values
    return pd.DataFrame(columns)


def category(codes: npt.NDArray[Any], names: Sequence[str], ordered: bool = False) -> pd.Categorical[str]:
    return pd.Categorical.from_codes(codes, categories=pd.Index(list(names)), ordered=ordered)


def week_column(index: IntArray, labels: list[str]) -> pd.Categorical[str]:
    """Week labels by index; missing where the index is ``NEVER``."""
    return category(np.where(index == NEVER, -1, index), labels, ordered=True)


def listing(pairs: Pairs, skus: Skus, names: dict[str, list[str]]) -> pd.DataFrame:
    """Who ranges what, from the first to the last week of the SKU's life."""
    delist = skus.delist[pairs.sku]
    return pd.DataFrame(
        {
            "store_id": category(pairs.store, names["store_id"]),
            "sku_id": category(pairs.sku, names["sku_id"]),
            "first_week": week_column(skus.launch[pairs.sku], names["week"]),
            "last_week": week_column(np.where(delist == NEVER, NEVER, delist - 1), names["week"]),
        }
    )


def costs(settings: ChainSettings, skus: Skus, pairs: Pairs, sku_ids: list[str], seed: int) -> pd.DataFrame:
    """A row for the whole chain (medians), then one per SKU."""
    return costs_frame(*population.costs_of_skus(settings, skus, pairs, seed), sku_ids)


def costs_frame(false_alarm: FloatArray, missed: FloatArray, sku_ids: Sequence[str]) -> pd.DataFrame:
    """Return the table of costs: a row for the whole chain (medians), then one per SKU."""
    return pd.DataFrame(
        {
            "store_id": pd.array([None] * (len(sku_ids) + 1), dtype="string"),
            "sku_id": pd.array([None, *sku_ids], dtype="string"),
            "cost_false_alarm": np.r_[np.round(np.median(false_alarm), 2), false_alarm],
            "cost_missed": np.r_[np.round(np.median(missed), 2), missed],
        }
    )


def write(frames: Mapping[str, pd.DataFrame], folder: Path) -> dict[str, Path]:
    """Write every table as ``folder/<name>.parquet``; returns the paths by name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.parquet" for name in frames}
    for name, path in paths.items():
        frames[name].to_parquet(path, index=False)
    return paths


def name_checks(checks: pd.DataFrame) -> pd.DataFrame:
    """Codes of outcome, source and clerk as words; nobody's name on a check that was not made."""
    clerk = checks["store_id"].astype("string") + "-C" + (checks["checked_by"] + 1).astype("string")
    outcome = category(checks["outcome"].to_numpy(), events.OUTCOMES)
    return checks.assign(
        outcome=outcome,
        checked_by=clerk.mask(np.asarray(outcome == "not_checked")),
        source=category(checks["source"].to_numpy(), events.SOURCES),
    )


def ids(prefix: str, count: int, width: int) -> list[str]:
    """Ids whose width does not follow the count: one more SKU must not rename the others."""
    return [f"{prefix}{number:0{width}d}" for number in range(1, count + 1)]
