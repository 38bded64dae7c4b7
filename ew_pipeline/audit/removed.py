"""Files that were removed on purpose, as the ledger knows them."""

from __future__ import annotations

import json

from ew_pipeline.ledger import Ledger

Removed = dict[str, dict[str, str]]  # run -> path in its folder -> sha256


def removed_files(ledger: Ledger) -> Removed:
    """Everything that was ever pruned, by run."""
    found: Removed = {}
    rows = ledger.table("removals")
    for run_id, files in zip(rows["run_id"], rows["files"], strict=True):
        found.setdefault(str(run_id), {}).update(json.loads(files))
    return found
