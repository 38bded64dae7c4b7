"""numba's decorators with types that mypy can follow.

numba ships no type information, so a bare ``@njit`` turns a typed function into ``Any``. These
wrappers keep the signature. ``cache=True`` everywhere: a second process must not compile again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile for one thread; releases the GIL, cached on disk."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def njit_fast(function: Callable[P, R]) -> Callable[P, R]:
    """The same with fused and reordered arithmetic, for sums where the last bits do not matter."""
    return cast(
        Callable[P, R], numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")(function)
    )


def njit_parallel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile for many threads. Use only where each output cell is written by one iteration:
    results must not depend on the number of threads."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, parallel=True)(function))


def njit_inline(function: Callable[P, R]) -> Callable[P, R]:
    """For small loops that belong inside another kernel, so that LLVM sees them together."""
    return cast(Callable[P, R], numba.njit(inline="always", fastmath=True, error_model="numpy")(function))
