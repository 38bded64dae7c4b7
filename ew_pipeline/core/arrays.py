"""Names of array types, and how many cores there are."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
Real = NDArray[np.floating[Any]]


def available_threads() -> int:
    """The cores this process may use, which on a shared machine can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
