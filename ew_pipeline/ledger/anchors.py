"""Where the chain ended, written down outside the database after every change.

Whoever cuts off the end of the ledger, or puts an old copy in its place, would have to know of this file too:
``anchors/<ledger id>.jsonl`` in the home, one line per transaction. Copies of it (a backup, an e-mail, a tag
on the run) are worth more than the file itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from ew_pipeline.core.provenance import canonical_json
from ew_pipeline.ledger.chain import Head
from ew_pipeline.ledger.records import moment, now

FOLDER = "anchors"


def anchor_file(home: Path, ledger_id: str) -> Path:
    return home / FOLDER / f"{ledger_id}.jsonl"


def write_anchor(home: Path | None, head: Head) -> None:
    """Add a line. The ledger is already committed: a home that takes no files must not undo that, and the
    next anchor covers this one's links as well."""
    if home is None:
        return
    line = canonical_json({"at": moment(now()), "seq": head.seq, "hash": head.hash}) + "\n"
    file = anchor_file(home, head.ledger_id)
    try:
        file.parent.mkdir(exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())  # one write: lines of two processes do not mix
        finally:
            os.close(handle)
    except OSError:
        return


def read_anchors(home: Path | None, ledger_id: str) -> Iterator[tuple[int, str]]:
    """(seq, hash) of every whole line; a line that a crash cut short is passed over."""
    if home is None:
        return
    try:
        lines = anchor_file(home, ledger_id).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            found = json.loads(line)
            yield int(found["seq"]), str(found["hash"])
        except (ValueError, TypeError, KeyError):
            continue
