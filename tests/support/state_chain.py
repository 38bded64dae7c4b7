"""Chains small enough for tests of the hidden state, without and with a panel around them."""

from __future__ import annotations

import numpy as np

from ew_pipeline.infer.follow import StateParameters
from ew_pipeline.intake.panel import Panel

PARAMETERS = StateParameters(onset=0.02, stay=0.8, shock=0.03, forgetting=0.9, start=2.0)


def small_panel(units, promo=None):
    """Stores x SKUs x weeks as a panel."""
    units = np.asarray(units, dtype=np.float32)
    n, m, weeks = units.shape
    store, sku = np.divmod(np.arange(n * m), m)
    return Panel(
        np.array([f"S{i}" for i in range(n)]),
        np.array([f"K{j}" for j in range(m)]),
        store.astype(np.int32),
        sku.astype(np.int32),
        tuple(str(t) for t in range(weeks)),
        units.reshape(n * m, weeks),
        promo,
    )


def healthy_chain(seed, stores=25, skus=60, weeks=24, size=5.0):
    """Sales with nothing wrong: levels, a season by SKU, weather by store; overdispersed."""
    rng = np.random.default_rng(seed)
    level = np.exp(rng.normal(0.0, 0.5, (stores, 1)) + rng.normal(1.2, 0.9, (1, skus)))
    level = level * np.exp(rng.normal(0.0, 0.4, (stores, skus)))
    season = np.exp(rng.normal(0.0, 0.1, (1, skus, weeks)) + rng.normal(0.0, 0.08, (stores, 1, weeks)))
    rate = level[:, :, None] * season
    return rng.poisson(rate * rng.gamma(size, 1.0 / size, rate.shape)).astype(np.float32), rate
