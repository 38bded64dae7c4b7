"""Fits of past weeks, kept by the panel they were made from.

A calibration needs the evidence of up to sixteen past weeks, and most of them were fitted a week ago from
just the same sales.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from ew_pipeline.backtest.evidence import WeekFit
from ew_pipeline.core.files import Arrays, KeptFiles, code_hash
from ew_pipeline.core.provenance import canonical_json
from ew_pipeline.intake.panel import Panel

MOST_BYTES = 1_000_000_000
SOURCES = (
    "core/arrays.py",
    "core/kernels.py",
    "method/**/*.py",
    "intake/panel.py",
    "intake/history.py",
    "backtest/evidence.py",
)


class FitCache:
    """``backtest.evidence.WeekFits`` on disk."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._files = KeptFiles(folder, most_bytes)
        self.found = 0
        self.made = 0
        self._counting = threading.Lock()  # weeks are fitted side by side

    def find(self, past: Panel, make: Callable[[Panel], WeekFit]) -> WeekFit:
        name = panel_key(past)
        known = _fit(self._files.read(name), int(past.observed[:, -1].sum()))
        if known is not None:
            with self._counting:
                self.found += 1
            return known
        with self._counting:
            self.made += 1
        fit = make(past)
        self._files.write(name, asdict(fit))
        return fit


def panel_key(past: Panel) -> str:
    """The hash of everything that the fit of the last week depends on."""
    digest = hashlib.sha256(code_hash(SOURCES).encode())
    head = {
        "stores": past.store_ids.tolist(),
        "skus": past.sku_ids.tolist(),
        "weeks": list(past.weeks),
        "promo": past.promo is not None,
    }
    digest.update(canonical_json(head).encode())
    for values in (past.store, past.sku, past.units, past.promo):
        if values is not None:
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _fit(kept: Arrays | None, pairs: int) -> WeekFit | None:
    if kept is None or set(kept) != {field.name for field in fields(WeekFit)}:
        return None
    if any(array.shape != (pairs,) or array.dtype != np.float64 for array in kept.values()):
        return None
    return WeekFit(**kept)
