"""Files of a week, a run or an evaluation: those in its folder, and no others whatever the address says."""

from __future__ import annotations

import mimetypes
import re
import zipfile
from pathlib import Path

from fastapi import Response
from fastapi.responses import FileResponse

from ew_pipeline.outputs.check_list import ARCHIVE, FOLDER
from ew_pipeline.web.errors import NotThere
from ew_pipeline.web.guard import POLICY, policy_with_script

INDEX = "index.html"
HEAD_BYTES = 4096
OWN_SCRIPT = re.compile(rb"script-src '(sha256-[A-Za-z0-9+/=]{43,44})'")
TYPES = {".parquet": "application/vnd.apache.parquet", ".log": "text/plain", ".jsonl": "application/jsonl"}
DATA_DOCS = "data_docs"
# Great Expectations' pages bring scripts and styles of their own; what they ask of the network is not loaded.
DATA_DOCS_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def find_file(folder: Path, path: str) -> Path | None:
    """The file at ``path`` in ``folder``; a folder's is its index. Nothing hidden, nothing outside.

    Links are followed before it is looked where they lead, so a link out of the folder leads nowhere.
    """
    parts = [part for part in path.split("/") if part]
    if "\0" in path or "\\" in path or any(part.startswith(".") for part in parts):
        return None
    root = folder.resolve()
    try:
        found = root.joinpath(*parts).resolve()
        if found.is_dir():
            found = (found / INDEX).resolve()
        return found if found.is_relative_to(root) and found.is_file() else None
    except OSError:  # a name that is too long, a loop of links
        return None


def answer_file(folder: Path, path: str) -> Response:
    """The file, or a store's list out of the archive of lists; otherwise ``NotThere``."""
    found = find_file(folder, path)
    if found is None:
        member = _in_archive(folder, path)
        if member is not None:
            return Response(
                member, media_type="text/csv; charset=utf-8", headers={"Content-Security-Policy": POLICY}
            )
        raise NotThere(f"there is no file {path!r} here.")
    return page_file(found, in_data_docs=path.startswith(f"{DATA_DOCS}/"))


def page_file(file: Path, *, in_data_docs: bool = False) -> Response:
    """A file as it lies there, with a policy that lets it run its own script and nothing else."""
    kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    policy = POLICY
    if in_data_docs:
        policy = DATA_DOCS_POLICY
    elif kind == "text/html" and (digest := _own_script(file)):
        policy = policy_with_script(digest)
    return FileResponse(file, media_type=kind, headers={"Content-Security-Policy": policy})


def _own_script(file: Path) -> str | None:
    """The hash of the page's script, as the page itself declares it."""
    with file.open("rb") as opened:
        found = OWN_SCRIPT.search(opened.read(HEAD_BYTES))
    return None if found is None else found[1].decode()


def _in_archive(folder: Path, path: str) -> bytes | None:
    archive = find_file(folder, ARCHIVE)
    if archive is None or not path.startswith(f"{FOLDER}/"):
        return None
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.read(path)
    except (KeyError, zipfile.BadZipFile):
        return None
