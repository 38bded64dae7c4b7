"""What a week by row blocks was read from, kept in the run's folder: files with their hashes, and stores.

A file may be missing with all that is known of its stores, their past included. So the stores of a week are
also held against those of the weeks that were published before it, and of the same week if it was before.
"""

from __future__ import annotations

import json
from pathlib import Path

from ew_pipeline.cluster.partitions import Partitions
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger

INPUTS = "inputs.json"


def write_inputs(folder: Path, files: Partitions) -> None:
    content = {
        "data_hash": files.data_hash,
        "files": {one.path: {"sha256": one.sha256, "rows": one.rows} for one in files.files},
        "stores": files.store_ids.tolist(),
    }
    (folder / INPUTS).write_text(json.dumps(content, indent=1), encoding="utf-8")


def published_stores(ledger: Ledger, runs: Path, week: Week, recent: int) -> frozenset[str]:
    """The stores of this week and of the ``recent`` before, as far as these were ever published from blocks:
    a version that lacks some of them does not make them forgotten."""
    stores: set[str] = set()
    for run in {one.run_id for k in range(recent + 1) for one in ledger.publications(week.shift(-k))}:
        path = runs / run / INPUTS
        if path.is_file():
            stores.update(json.loads(path.read_text(encoding="utf-8")).get("stores", ()))
    return frozenset(stores)
