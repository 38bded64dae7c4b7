"""numba's decorators with types that mypy can follow.

numba ships no type information, so a bare ``@njit`` turns a typed function into ``Any``. These
wrappers keep the signature. ``cache=True`` everywhere: a second process must not compile again.

Kernels are compiled for one kind of processor, not for the one at hand: wider vectors add up sums in
another order, and the sampler turns a last bit into another draw. A week must have the same flags on
whichever machine it is run, and again when it is audited years later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import llvmlite.binding
import numba
import numba.core.config

from ew_pipeline.core.kernel_sources import keep_by_sources

BASELINE = "x86-64-v3"  # AVX2 and FMA: servers since 2013
_BASELINE_FEATURES = ("avx2", "fma", "bmi2", "f16c", "lzcnt", "movbe")

FAST_MATH = {"reassoc", "contract", "nnan", "ninf", "nsz"}

P = ParamSpec("P")
R = TypeVar("R")
config = cast(Any, numba.core.config)  # its names come from the environment, so mypy knows none


def _compile_for_baseline() -> None:
    """Has an effect only before anything was compiled; NUMBA_CPU_NAME in the environment goes first."""
    host = llvmlite.binding.get_host_cpu_features()
    if config.CPU_NAME is None and all(host.get(name, False) for name in _BASELINE_FEATURES):
        config.CPU_NAME, config.CPU_FEATURES = BASELINE, ""


def kernel_target() -> str:
    """The processor that kernels are compiled for; results of different ones may differ in a few flags."""
    return str(config.CPU_NAME or llvmlite.binding.get_host_cpu_name())


_compile_for_baseline()


def load_numba() -> None:
    """What numba loads with the first compiled function, half a second: a run may do it while it waits."""
    _nothing(0)


def njit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile for one thread; releases the GIL, cached on disk."""
    return _kept(numba.njit(cache=True, nogil=True, error_model="numpy"), function)


def njit_fast(function: Callable[P, R]) -> Callable[P, R]:
    """The same with fused and reordered arithmetic, for sums where the last bits do not matter.

    Divisions are as they are written. With all of LLVM's fast arithmetic, vectors of single-precision
    quotients are made from the processor's estimate of the reciprocal, which differs between makers, and
    from the quotients of a loop that is not vectorised: which of the two runs can depend on where in memory
    the arrays happen to be.
    """
    return _kept(numba.njit(cache=True, nogil=True, fastmath=FAST_MATH, error_model="numpy"), function)


def njit_inline(function: Callable[P, R]) -> Callable[P, R]:
    """For small loops that belong inside another kernel, so that LLVM sees them together."""
    return cast(
        Callable[P, R], numba.njit(inline="always", fastmath=FAST_MATH, error_model="numpy")(function)
    )


def _kept(compile_with: Any, function: Callable[P, R]) -> Callable[P, R]:
    compiled = compile_with(function)
    keep_by_sources(compiled, function)
    return cast(Callable[P, R], compiled)


@njit
def _nothing(number: int) -> int:
    return number
