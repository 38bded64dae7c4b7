"""What a week by row blocks was read from, kept in the run's folder: files with their hashes, and stores.

A file may be missing with all that is known of its stores, their past included. So the stores of a week are
also held against those of the weeks that were published before it.
"""

from __future__ import annotations

import json
from pathlib import Path

from ew_pipeline.distribute.partitions import Partitions
from ew_pipeline.publish.ledger import Ledger
from ew_pipeline.week import Week

INPUTS = "inputs.json"


def write_inputs(folder: Path, files: Partitions) -> None:
    content = {
        "data_hash": files.data_hash,
        "files": {one.path: {"sha256": one.sha256, "rows": one.rows} for one in files.files},
        "stores": files.store_ids.tolist(),
    }
    (folder / INPUTS).write_text(json.dumps(content, indent=1), encoding="utf-8")


def published_stores(ledger: Ledger, runs: Path, week: Week, recent: int) -> frozenset[str]:
    """The stores of the ``recent`` weeks before, as far as these were published from blocks."""
    stores: set[str] = set()
    for one in ledger.live():
        path = runs / one.run_id / INPUTS
        if week.shift(-recent) <= one.week < week and path.is_file():
            stores.update(json.loads(path.read_text(encoding="utf-8")).get("stores", ()))
    return frozenset(stores)
