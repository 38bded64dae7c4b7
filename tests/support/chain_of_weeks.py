"""A small chain over many weeks whose anomalies are known: shared by the tests of evaluation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ew_pipeline.core.week import Week
from ew_pipeline.intake.panel import Panel

FIRST = Week(2025, 40)


def simulated(
    stores: int = 12, skus: int = 14, weeks: int = 26, rate: float = 0.08, seed: int = 0, mean: float = 9.0
) -> tuple[Panel, np.ndarray]:
    """A panel, and where (pairs x weeks) a record was wrong: then a tenth is sold."""
    rng = np.random.default_rng(seed)
    level = mean * np.outer(rng.gamma(4, 0.25, stores), rng.gamma(4, 0.25, skus)).ravel()
    wave = np.repeat(rng.gamma(50, 0.02, (1, weeks)), level.size, axis=0)
    wrong = rng.random((level.size, weeks)) < rate
    units = rng.poisson(
        level[:, None] * wave * rng.gamma(15, 1 / 15, wrong.shape) * np.where(wrong, 0.1, 1.0)
    )
    store, sku = np.divmod(np.arange(level.size), skus)
    panel = Panel(
        np.array([f"S{k:02d}" for k in range(stores)]),
        np.array([f"K{k:02d}" for k in range(skus)]),
        store.astype(np.int32),
        sku.astype(np.int32),
        tuple(str(FIRST.shift(k)) for k in range(weeks)),
        units.astype(np.float32),
    )
    return panel, wrong


def as_frame(panel: Panel) -> pd.DataFrame:
    """The same as a long table."""
    row, week = np.nonzero(panel.observed)
    return pd.DataFrame(
        {
            "store_id": panel.store_ids[panel.store[row]],
            "sku_id": panel.sku_ids[panel.sku[row]],
            "week": np.array(panel.weeks)[week],
            "units": panel.units[row, week].astype(np.int64),
        }
    )


def shuffled_after(panel: Panel, t: int, seed: int = 1) -> Panel:
    """The same up to week ``t``; everything later is thrown about."""
    rng = np.random.default_rng(seed)
    units = panel.units.copy()
    later = units[:, t + 1 :].ravel()
    units[:, t + 1 :] = (rng.permutation(later) * 7 + 3).reshape(units[:, t + 1 :].shape)
    return Panel(panel.store_ids, panel.sku_ids, panel.store, panel.sku, panel.weeks, units, panel.promo)
