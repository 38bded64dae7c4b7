"""The series: by week and segment, from what is live. Held and shadow runs never became live: not in here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from ew_pipeline.core.week import Week
from ew_pipeline.drift.kinds import ALPHA, CARRIED, DISPERSION, KINDS, RATE, REPORTING, Kind

POOLED = "pooled"
HALF_WIDTH = float(ndtri(0.95))  # of a 90% interval, in standard deviations
MISSING = math.nan


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
