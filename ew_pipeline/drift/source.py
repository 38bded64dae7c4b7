"""The weeks that are live, as rows for the charts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.week import Week
from ew_pipeline.drift.kinds import CARRIED
from ew_pipeline.ledger import Ledger, Publication, Run

APART = 4  # published weeks between a week and the one its assortment is compared with
NOT_OF_THETA = ("random_state", "probability")  # settings of the detector that leave theta what it is
OF_THE_METHOD = ("history", "history_weeks", "zero_rule", "inferred_weeks", "promotions", "segment_by")


def read_rows(ledger: Ledger, last_week: Week | None = None) -> pd.DataFrame:
    """A row per live week and segment, oldest first; empty when nothing is published."""
    live = [one for one in ledger.live() if last_week is None or one.week <= last_week]
    newest = live[-1].week if live else Week(1970, 1)
    rows = ledger.segments_series(newest, max(len(live), 1))
    runs = {run.run_id: run for run in ledger.runs()}
    carried = carried_over(ledger, live)
    by_run = [runs.get(str(run_id)) for run_id in rows["run_id"]]
    segments = zip(rows["publication_id"], rows["segment"], strict=True)
    return rows.assign(
        stores_reporting=[_reporting(run) for run in by_run],
        method=pd.Series([_method(run) for run in by_run], index=rows.index, dtype="object"),
        carried_over=[carried.get((int(number), str(name)), math.nan) for number, name in segments],
    )


def carried_over(ledger: Ledger, live: Sequence[Publication]) -> dict[tuple[int, str], float]:
    """By publication and segment: the share of pairs whose store and SKU were scored four weeks before.

    Read from the stored scores once; from then on from the drift points, so that scores may be pruned.
    """
    known = _recorded(ledger)
    found: dict[tuple[int, str], float] = {}
    for place in range(APART, len(live)):
        now, then = live[place], live[place - APART]
        if recorded := known.get((now.id, then.id)):
            found |= {(now.id, segment): value for segment, value in recorded.items()}
        else:
            found |= {(now.id, segment): value for segment, value in _compare(now, then).items()}
    return found


def reference_of(live: Sequence[Publication]) -> dict[int, int]:
    """The publication each one's assortment is compared with."""
    return {live[place].id: live[place - APART].id for place in range(APART, len(live))}


def _recorded(ledger: Ledger) -> dict[tuple[int, int], dict[str, float]]:
    known: dict[tuple[int, int], dict[str, float]] = {}
    points = ledger.table("drift_points", series=CARRIED)
    for row in points[points["value"].notna()].to_dict("records"):
        detail = json.loads(row["detail"]) if isinstance(row["detail"], str) else {}
        if "compared_with" in detail:
            key = (int(row["publication_id"]), int(detail["compared_with"]))
            known.setdefault(key, {})[str(row["segment"])] = float(row["value"])
    return known


def _compare(now: Publication, then: Publication) -> dict[str, float]:
    if now.scores is None or then.scores is None or not (now.scores.is_file() and then.scores.is_file()):
        return {}
    before = pq.read_table(then.scores, columns=["store_id", "sku_id"]).to_pandas()
    pairs = pq.read_table(now.scores, columns=["store_id", "sku_id", "segment"]).to_pandas()
    both = pairs["store_id"].isin(before["store_id"].unique()) & pairs["sku_id"].isin(
        before["sku_id"].unique()
    )
    return {
        str(name): float(share) for name, share in both.groupby(pairs["segment"].astype(str)).mean().items()
    }


def _reporting(run: Run | None) -> float:
    coverage: Mapping[str, Any] = (run.coverage if run is not None else None) or {}
    expected = coverage.get("stores_expected")
    return float(coverage["stores_reporting"]) / float(expected) if expected else math.nan


def _method(run: Run | None) -> str | None:
    """A key of the settings that theta depends on; a change of costs or caps is none of them."""
    if run is None:
        return None
    detector = {k: v for k, v in dict(run.config.get("detector", {})).items() if k not in NOT_OF_THETA}
    return canonical_hash([detector, {name: run.config.get(name) for name in OF_THE_METHOD}])
