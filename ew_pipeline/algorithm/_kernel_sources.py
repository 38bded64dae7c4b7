"""What a compiled function is made of: its own file and all files of the package that this imports.

numba keeps compiled functions by the time stamp of their own file. A function that is inlined from another
file, or a constant that is frozen into the machine code, could change there without the kept one being given
up: a new commit would run the code of an old one, and say it was its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = "ew_pipeline"
_IMPORT = re.compile(rf"^from ({PACKAGE}[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def keep_by_sources(compiled: Any, function: Callable[..., Any]) -> None:
    """Have numba's cache of ``compiled`` ask for the content of all its sources, beside its own stamp."""
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    path = Path(function.__code__.co_filename)
    if file is not None and path.is_file():  # not without compilation, nor from an archive
        file._source_stamp = (file._source_stamp, sources_hash(path))


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
    root = Path(__file__).resolve().parent.parent.parent
    for module, names in _IMPORT.findall(text):
        place = root.joinpath(*module.split("."))
        if (file := place.with_suffix(".py")).is_file():
            yield file
        else:
            words = (place / f"{word}.py" for word in re.findall(r"\w+", names))
            yield from (file for file in words if file.is_file())
