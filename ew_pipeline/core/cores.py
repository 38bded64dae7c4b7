"""How many threads are worth starting here."""

from __future__ import annotations

import os


def available_threads() -> int:
    """The cores this process may use, which on a shared machine can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
