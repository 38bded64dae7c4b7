"""How good a contender's result is, and what all contenders share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.studies.ensemble import SparseInstance

SWEEPS = 10
UNOBSERVED = 300_000  # pairs at which factors are compared with the truth


@dataclass(frozen=True)
class Outcome:
    """Relative error of demand on observed and on unobserved pairs, and theta where there is one."""

    observed_error: float | None = None
    unobserved_error: float | None = None
    facts: dict[str, float | str] | None = None


def error_at(instance: SparseInstance, left: NDArray[Any], right: NDArray[Any]) -> float:
    """Of the factors, at pairs chosen at random, hardly any of them observed."""
    rng = np.random.default_rng(5)
    i = rng.integers(0, len(left), UNOBSERVED)
    j = rng.integers(0, len(right), UNOBSERVED)
    truth = np.einsum("er,er->e", instance.left[i], instance.right[j])
    return relative_error(np.einsum("er,er->e", left[i], right[j]), truth)


def relative_error(found: NDArray[Any], truth: NDArray[Any]) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))
