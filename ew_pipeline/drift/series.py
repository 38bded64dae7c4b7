"""What is followed from week to week, and where it comes from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy.special import logit, ndtri

from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, Publication, Run

Group = Literal["anomaly", "composition", "dispersion", "outcome"]
LEAST, MOST = 1e-6, 1.0 - 1e-6
NEXT_TO_NOTHING = 0.1
RATE, ALPHA, DISPERSION = "anomaly_rate", "alpha", "dispersion"
REPORTING, CARRIED = "stores_reporting", "carried_over"
POOLED = "pooled"
HALF_WIDTH = float(ndtri(0.95))  # of a 90% interval, in standard deviations
MISSING = math.nan
APART = 4  # published weeks between a week and the one its assortment is compared with
NOT_OF_THETA = ("random_state", "probability")  # settings of the detector that leave theta what it is
OF_THE_METHOD = ("history", "history_weeks", "zero_rule", "inferred_weeks", "promotions", "segment_by")


def log_odds(value: float) -> float:
    return float(logit(min(max(value, LEAST), MOST)))


def share_left(value: float) -> float:
    """Log odds after a tenth is added: of what anomalies leave, 2% and 6% are the same to anybody, and
    log odds alone would make three standard deviations of it."""
    return log_odds((value + NEXT_TO_NOTHING) / (1.0 + NEXT_TO_NOTHING))


def log(value: float) -> float:
    return float(np.log(max(value, LEAST)))


def same(value: float) -> float:
    return float(value)


@dataclass(frozen=True)
class Kind:
    """A series.

    Attributes
    ----------
    scale : from the value to the scale of the chart.
    floor : the least standard deviation from week to week on that scale. A lasting change of less than
        about one and a half floors is never reported, however steady the series was: it is of no use to know.
    explains : how far a change of this series alone has been seen to move the log odds of p_A (and three
        times that for alpha); for the dispersion, times its own change. Beyond, the anomalies have changed
        as well.
    alarms : False for what only follows from the others, such as the flagged share.
    look_at : what to look at when it has changed.
    """

    name: str
    title: str
    group: Group
    scale: Callable[[float], float]
    floor: float
    style: Literal["percent", "number", "whole"]
    explains: float = 0.0
    alarms: bool = True
    look_at: str = ""


KINDS: tuple[Kind, ...] = (
    Kind(
        RATE,
        "records wrong (p_A)",
        "anomaly",
        log_odds,
        0.05,
        "percent",
        look_at="deliveries, stock counts and shelf processes of the weeks since; the stores with most flags",
    ),
    Kind(
        ALPHA,
        "sales left (alpha)",
        "anomaly",
        share_left,
        0.15,
        "percent",
        look_at="how deep the flagged pairs fell: sold out at once, or sales that fade",
    ),
    Kind(
        DISPERSION,
        "overdispersion (1/s0)",
        "dispersion",
        log,
        0.06,
        "number",
        explains=2.5,
        look_at="promotions or events that only some stores had, and merged or doubled SKUs",
    ),
    Kind(
        "observed_share",
        "observed share of the matrix",
        "composition",
        log_odds,
        0.1,
        "percent",
        0.8,
        look_at="the listing, and stores or days missing from the sales",
    ),
    Kind(
        "demand",
        "expected sales per pair",
        "composition",
        log,
        0.15,  # holidays move demand by a third for two weeks, and theta not at all
        "number",
        0.3,
        look_at="season, price changes, and units sold in another measure",
    ),
    Kind(
        "rank",
        "rank",
        "composition",
        same,
        0.7,  # chance may choose the next rank for weeks; the spectrum says whether it matters
        "whole",
        0.8,
        look_at="new kinds of stores or SKUs in the matrix; consider --segment-by",
    ),
    Kind(
        "spectrum",
        "effective number of factors",
        "composition",
        log,
        0.1,  # a factor of a tenth of the first, found in some weeks only, moves it by .17
        "number",
        0.8,
        look_at="new kinds of stores or SKUs in the matrix; consider --segment-by",
    ),
    Kind(
        CARRIED,
        "pairs whose store and SKU were there four weeks ago",
        "composition",
        same,
        0.03,
        "percent",
        0.3,
        look_at="range reviews, and ids that were renamed",
    ),
    Kind(
        "skus",
        "SKUs",
        "composition",
        log,
        0.05,
        "whole",
        0.3,
        look_at="range reviews and delistings, and ids that were renamed",
    ),
    Kind(
        "stores",
        "stores",
        "composition",
        log,
        0.05,
        "whole",
        0.3,
        look_at="stores opened, closed, or without data",
    ),
    Kind(
        REPORTING,
        "stores that reported",
        "composition",
        same,
        0.02,
        "percent",
        0.3,
        look_at="the feeds of the stores that are missing",
    ),
    Kind("flagged_share", "flagged share", "outcome", log_odds, 0.1, "percent", alarms=False),
    Kind("expected_cost", "expected cost per pair", "outcome", log, 0.1, "number", alarms=False),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Point:
    """A value of a week with its 90% interval (NaN: it has none), and on the chart's scale with its error.

    ``given`` is NaN when the week says nothing: theta is not identified, or lies on its bound.
    """

    value: float
    low: float
    high: float
    given: float
    error: float


NOTHING = Point(MISSING, MISSING, MISSING, MISSING, MISSING)


@dataclass(frozen=True, eq=False)
class Series:
    """One series of one segment.

    ``begins``: at these places the method changed; what was before is over. ``families``: what a week's theta
    is theta of. alpha and p_A of two anomaly families are different things, also on the same sales, so weeks
    are compared within their family.
    """

    segment: str
    kind: Kind
    weeks: tuple[Week, ...]
    points: tuple[Point, ...]
    publications: tuple[int, ...]
    begins: tuple[int, ...] = ()
    families: tuple[str, ...] | None = None


def build_series(rows: pd.DataFrame) -> tuple[Series, ...]:
    """All series of ``rows``: a row per week and segment with the columns of the ledger's ``segments``,
    ``publication_id``, and where known ``carried_over``, ``stores_reporting`` (share) and ``method``.

    With one segment, "pooled" says the same again and is left out; with several, it carries theta only.
    """
    several = rows.loc[rows["segment"] != POOLED, "segment"].nunique() > 1
    made: list[Series] = []
    for segment, own in rows.sort_values(["segment", "week"], kind="stable").groupby("segment", sort=True):
        if segment == POOLED and not several:
            continue
        made += _of_segment(str(segment), own, chain=segment == POOLED or not several)
    return tuple(sorted(made, key=lambda one: (one.segment != POOLED, one.segment)))


def _of_segment(segment: str, own: pd.DataFrame, chain: bool) -> list[Series]:
    weeks = tuple(Week.parse(str(week)) for week in own["week"])
    publications = tuple(int(number) for number in own["publication_id"])
    records = [{str(name): value for name, value in row.items()} for row in own.to_dict("records")]
    reference = _reference_demand(records)
    begins = _method_changes(records)
    made = []
    for kind in KINDS:
        if (kind.name == REPORTING and not chain) or (
            segment == POOLED and kind.name not in (RATE, ALPHA, REPORTING)
        ):
            continue
        points = tuple(_point(kind, record, reference) for record in records)
        if any(math.isfinite(point.value) for point in points):
            of_method = begins if kind.group in ("anomaly", "dispersion") else ()
            of_family = tuple(str(r.get("anomaly")) for r in records) if kind.group == "anomaly" else None
            made.append(Series(segment, kind, weeks, points, publications, of_method, of_family))
    return made


def _point(kind: Kind, record: Mapping[str, Any], reference: float) -> Point:
    if kind.name in (RATE, ALPHA):
        return _theta_point(kind, record)
    value = _value(kind.name, record)
    if not math.isfinite(value):
        return NOTHING
    # The variance of an average pair over that of Poisson sales: a change of demand alone does not move it.
    given = math.log1p(value * reference) if kind.name == DISPERSION else kind.scale(value)
    return Point(value, MISSING, MISSING, given, 0.0)


def _theta_point(kind: Kind, record: Mapping[str, Any]) -> Point:
    value = _number(record[kind.name])
    low, high = _number(record[f"{kind.name}_low"]), _number(record[f"{kind.name}_high"])
    usable = bool(record["identified"]) and not bool(record["at_bound"]) and math.isfinite(high - low)
    if not usable:
        return Point(value, low, high, MISSING, MISSING)
    error = (kind.scale(high) - kind.scale(low)) / (2.0 * HALF_WIDTH)
    return Point(value, low, high, kind.scale(value), error)


def _value(name: str, record: Mapping[str, Any]) -> float:
    pairs = _number(record["pairs"])
    if name in ("stores", "skus", "rank", CARRIED, REPORTING):
        return _number(record.get(name))
    if name == "observed_share":
        return pairs / (_number(record["stores"]) * _number(record["skus"]))
    if name == "demand":
        return _number(record["expected_units"]) / pairs
    if name == "flagged_share":
        return _number(record["pairs_flagged"]) / pairs
    if name == "expected_cost":
        return (_number(record["expected_cost_ignoring"]) - _number(record["expected_saving"])) / pairs
    if name == DISPERSION:
        size = _number(record["dispersion_size"])
        return 0.0 if math.isnan(size) or math.isinf(size) else 1.0 / size
    return _effective_factors(record["singular_values"])


def _effective_factors(kept: Any) -> float:
    """(sum s)^2 / sum s^2: r for r equal singular values, near 1 when the first one is everything."""
    values = json.loads(kept) if isinstance(kept, str) else (kept if isinstance(kept, list | tuple) else [])
    s = np.array([value for value in values if value is not None], dtype=np.float64)
    return float(s.sum() ** 2 / np.sum(s**2)) if s.size and s.max() > 0 else MISSING


def _reference_demand(records: Sequence[Mapping[str, Any]], first: int = 8) -> float:
    """Expected sales per pair in the first weeks: fixed, so that no later week moves the past."""
    known = [_number(r["expected_units"]) / _number(r["pairs"]) for r in records[:first]]
    known = [value for value in known if math.isfinite(value)]
    return float(np.median(known)) if known else 1.0


def _method_changes(records: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    methods = [record.get("method") for record in records]
    return tuple(
        place
        for place in range(1, len(methods))
        if isinstance(methods[place], str) and methods[place] != methods[place - 1]
    )


def _number(value: Any) -> float:
    return MISSING if value is None or value is pd.NA else float(value)


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
