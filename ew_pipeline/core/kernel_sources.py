"""What a compiled function is made of: its own file and all files of the package that this imports.

numba keeps compiled functions by the content of their own file. A function that is inlined from another
file, or a constant that is frozen into the machine code, could change there without the kept one being given
up: a new commit would run the code of an old one, and say it was its own. So a hash of all sources is in the
name of the kept files. numba's stamp is inside them, next to pickled types that may have moved since: reading
it can fail before it is compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import IndexDataCacheFile

import ew_pipeline

PACKAGE = "ew_pipeline"
ROOT = Path(ew_pipeline.__file__).resolve().parent.parent
_IMPORT = re.compile(rf"^from ({PACKAGE}[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def keep_by_sources(compiled: Any, function: Callable[..., Any]) -> None:
    """Have numba keep ``compiled`` in files that are named by all its sources."""
    kept: Any = getattr(compiled, "_cache", None)
    path = Path(function.__code__.co_filename)
    if hasattr(kept, "_cache_file") and path.is_file():  # not without compilation, nor from an archive
        kept._cache_file = _KernelFile(kept, path)


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
