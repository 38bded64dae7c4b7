"""What the publication of a week said of the pairs that were checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import DRAWN
from ew_pipeline.ledger import Ledger, Publication

Pair = tuple[str, str]
PRICED = ["anomaly_probability", "cost_false_alarm", "cost_missed"]


@dataclass(frozen=True)
class Evidence:
    """``drawn``: of the random share; None when the run drew none, so that it cannot be told.

    ``inclusion``: the probability that the pair was sent to be checked, where it is known.
    """

    publication_id: int
    flagged: bool
    drawn: bool | None
    anomaly_probability: float
    cost_false_alarm: float
    cost_missed: float
    inclusion: float | None


def evidence_of(ledger: Ledger, week: Week, pairs: set[Pair]) -> Mapping[Pair, Evidence]:
    """By pair; pairs that no publication of the week scored are absent.

    The live publication speaks first. A flag of an earlier one counts too: somebody may have walked to that
    shelf before it was superseded.
    """
    publications = [one for one in ledger.publications(week) if one.kind == "publish"]
    live = ledger.current(week)
    if live is None:
        return {}
    publications.sort(key=lambda one: (one.id != live.source_id, -one.id))
    found: dict[Pair, Evidence] = {}
    for publication in publications:
        for pair, evidence in _flags(ledger, publication, pairs).items():
            found.setdefault(pair, evidence)
    for publication in publications:
        for pair, evidence in _drawn(ledger, publication, pairs - set(found)).items():
            found[pair] = evidence
    source = next(one for one in publications if one.id == live.source_id)
    for pair, evidence in _unflagged(source, pairs - set(found)).items():
        found[pair] = evidence
    return found


def _flags(ledger: Ledger, publication: Publication, pairs: set[Pair]) -> dict[Pair, Evidence]:
    flags = ledger.flags(publication.id)
    columns = [flags[name] for name in ("store_id", "sku_id", *PRICED)]
    return {
        (store, sku): Evidence(publication.id, True, False, p, c0, c1, 1.0)
        for store, sku, p, c0, c1 in zip(*columns, strict=True)
        if (store, sku) in pairs
    }


def _drawn(ledger: Ledger, publication: Publication, pairs: set[Pair]) -> dict[Pair, Evidence]:
    drawn = ledger.random_checks(publication.id)
    columns = [drawn[name] for name in ("store_id", "sku_id", *PRICED, "inclusion_probability")]
    return {
        (store, sku): Evidence(publication.id, False, True, p, c0, c1, chance)
        for store, sku, p, c0, c1, chance in zip(*columns, strict=True)
        if (store, sku) in pairs
    }


def _unflagged(publication: Publication, pairs: set[Pair]) -> dict[Pair, Evidence]:
    if not pairs or publication.scores is None or not publication.scores.is_file():
        return {}
    scores = _read(publication.scores)
    scores = scores[~scores["flagged"].to_numpy(dtype=bool)]
    if scores.empty:
        return {}
    inclusion = float(scores[DRAWN].mean()) if DRAWN in scores else None
    keys = pd.MultiIndex.from_arrays([scores["store_id"].astype("str"), scores["sku_id"].astype("str")])
    scores = scores[keys.isin(pairs)]
    drawn = scores[DRAWN].astype(bool).tolist() if DRAWN in scores else [None] * len(scores)
    columns = [scores["store_id"].astype("str"), scores["sku_id"].astype("str"), *(scores[n] for n in PRICED)]
    return {
        (store, sku): Evidence(publication.id, False, was_drawn, p, c0, c1, inclusion if was_drawn else None)
        for (store, sku, p, c0, c1), was_drawn in zip(zip(*columns, strict=True), drawn, strict=True)
    }


def _read(place: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    present = pq.ParquetFile(place).schema_arrow.names
    wanted = ["store_id", "sku_id", "flagged", *PRICED, DRAWN]
    return pd.read_parquet(place, columns=[name for name in wanted if name in present])
