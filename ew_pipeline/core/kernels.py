"""numba's decorators with types that mypy can follow.

numba ships no type information, so a bare ``@njit`` turns a typed function into ``Any``. These
wrappers keep the signature. ``cache=True`` everywhere: a second process must not compile again.

Kernels are compiled for one kind of processor, not for the one at hand: wider vectors add up sums in
another order, and the sampler turns a last bit into another draw. A week must have the same flags on
whichever machine it is run, and again when it is audited years later.

numba keeps a compiled function by the content of its own file. A function inlined from another file, or a
constant frozen into the machine code, could change there without the kept one being given up. So a hash of
all sources, the file and what it imports of the package, is in the name of the kept files. numba's stamp is
inside them, next to pickled types that may have moved since: reading it can fail before it is compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import llvmlite.binding
import numba
import numba.core.config
from numba.core.caching import IndexDataCacheFile

import ew_pipeline

BASELINE = "x86-64-v3"  # AVX2 and FMA: servers since 2013
_BASELINE_FEATURES = ("avx2", "fma", "bmi2", "f16c", "lzcnt", "movbe")
P = ParamSpec("P")
R = TypeVar("R")
config = cast(Any, numba.core.config)  # its names come from the environment, so mypy knows none
FAST_MATH = {"reassoc", "contract", "nnan", "ninf", "nsz"}
ROOT = Path(ew_pipeline.__file__).resolve().parent.parent
_IMPORT = re.compile(r"^from (ew_pipeline[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


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
    """Compile ``function``, and have numba keep it in files that are named by all its sources."""
    compiled = compile_with(function)
    kept: Any = getattr(compiled, "_cache", None)
    path = Path(cast(Any, function).__code__.co_filename)
    if hasattr(kept, "_cache_file") and path.is_file():  # not without compilation, nor from an archive
        kept._cache_file = _KernelFile(kept, path)
    return cast(Callable[P, R], compiled)


class _KernelFile(IndexDataCacheFile):
    """Where one function is kept. What was made of other sources of its module goes when one is kept anew."""

    def __init__(self, kept: Any, path: Path) -> None:
        self.module, self.sources = path.stem, sources_hash(path)[:32]
        name = f"{kept._impl.filename_base}.{self.sources}"
        super().__init__(kept.cache_path, name, kept._cache_file._source_stamp)  # type: ignore[no-untyped-call]

    def _save_index(self, overloads: Any) -> None:
        super()._save_index(overloads)  # type: ignore[no-untyped-call]
        for place in Path(self._cache_path).glob(f"{self.module}.*.nb[ic]"):
            if self.sources not in place.name:
                with suppress(OSError):  # another process was quicker
                    place.unlink()


@cache
def sources_hash(path: Path) -> str:
    """A hash of the file and of what it imports of the package, and so on."""
    known: dict[Path, bytes] = {}
    waiting = [path]
    while waiting:
        one = waiting.pop()
        if one not in known:
            known[one] = one.read_bytes()
            waiting += _imported(known[one].decode())
    digest = hashlib.sha256()
    for content in sorted(known.values()):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def _imported(text: str) -> Iterator[Path]:
    """Files that a module's imports name, those under a function or a condition left out. A package's own
    ``__init__`` is none of them: there is no code in ours that a kernel could be made of."""
    for module, names in _IMPORT.findall(text):
        place = ROOT.joinpath(*module.split("."))
        if (file := place.with_suffix(".py")).is_file():
            yield file
        elif not place.is_dir():
            raise FileNotFoundError(f"{module}, which a kernel is made of, is not in {ROOT}.")
        else:
            words = (place / f"{word}.py" for word in re.findall(r"\w+", names))
            yield from (file for file in words if file.is_file())


@njit
def _nothing(number: int) -> int:
    return number
