"""Child processes: their environment, and that they do not outlive their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Called in the child: the kernel ends it when its parent does. On Linux alone; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for what is started in the block; afterwards they are as they were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
