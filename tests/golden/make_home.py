"""A home as commit 12bcf5a left it: four published runs of three weeks, a champion, a held run, a check.

``python tests/golden/make_home.py``, with that commit on PYTHONPATH, makes it in /tmp/ew-home and packs it as
``home.tar.xz``. It is not to be made again: later versions have to open this one (``test_old_home.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.command_line import ew, home_at

ARCHIVE = Path(__file__).parent / "home.tar.xz"
HOME = Path("/tmp/ew-home")
WEEKS = [f"2026-W{number:02d}" for number in range(1, 13)]  # the last one has not been run
CHAMPION = {
    "max_checks_per_store": 3,
    "cross_section": False,
    "detector": {"mode": "variational", "rank": 2, "noise": "poisson", "anomaly": "exponential"},
}
STRICT = {**CHAMPION, "gate": {"min_pairs": 100_000}}
# Caches and locks say nothing, and a lock names the machine.
LEFT_OUT = ("cache", "locks", "mlflow.lock")


def sales() -> pd.DataFrame:
    """Twelve weeks of 15 stores and 40 SKUs: rank two, Poisson, one pair in twelve sells too little."""
    rng = np.random.default_rng(12)
    stores, skus = (rng.gamma(4.0, 0.25, (count, 2)) for count in (15, 40))
    rate = 8.0 * stores @ skus.T
    rows = []
    for week in WEEKS:
        wrong = rng.random(rate.shape) < 1 / 12
        left = rng.exponential(0.15, rate.shape).clip(max=1.0)
        units = rng.poisson(np.where(wrong, left, 1.0) * rate)
        for (store, sku), sold in np.ndenumerate(units):
            rows.append((f"S{store + 1:02d}", f"K{sku + 1:03d}", week, int(sold)))
    return pd.DataFrame(rows, columns=["store_id", "sku_id", "week", "units"])


def make_home() -> None:
    """The weeks as a retailer would have run them."""
    HOME.mkdir()
    os.chdir(HOME)  # MLflow records where it was started
    tables = HOME / "tables"
    tables.mkdir()
    sales().to_parquet(tables / "sales.parquet", index=False, compression="zstd")
    champion, strict = tables / "champion.json", tables / "strict.json"
    champion.write_text(json.dumps(CHAMPION))
    strict.write_text(json.dumps(STRICT))

    def run(week: str, *asked: str | Path, expect: int = 0) -> str:
        call = ("run", "--week", week, "--sales", tables / "sales.parquet", *asked, "--json")
        return str(ew(*call, expect=expect).json["run_id"])

    first = run(WEEKS[-4], "--config", champion)
    ew("promote", first, "--why", "it is quick")
    run(WEEKS[-3])
    run(WEEKS[-3], "--max-checks-per-store", "2")
    flag = ew("flags", "--week", WEEKS[-4], "--json").json[0]
    pair = ("--store", flag["store_id"], "--sku", flag["sku_id"])
    ew("checks", "add", *pair, "--week", WEEKS[-4], "--outcome", "confirmed")
    run(WEEKS[-2], "--config", strict, expect=4)
    run(WEEKS[-2])


def without_pictures() -> None:
    """Data Docs carry three megabytes of pictures and fonts, the same in every run."""
    from great_expectations.data_context.store.html_site_store import HtmlSiteStore

    mock.patch.object(HtmlSiteStore, "copy_static_assets").start()


def pack() -> None:
    """Names and numbers of users are nobody's."""

    def nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(HOME.iterdir()):
            if path.name not in LEFT_OUT:
                archive.add(path, path.name, filter=nobody)


if __name__ == "__main__":
    os.environ |= {"USER": "retailer", "LOGNAME": "retailer"}
    without_pictures()
    with home_at(HOME, tracked=True):
        make_home()
    pack()
    os.chdir("/")
    shutil.rmtree(HOME)
