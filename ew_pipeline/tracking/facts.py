"""What MLflow is told about a week: plain data, made once from the result.

They are kept as ``tracking.json`` in the run's folder. So a week that could not be tracked is sent later
without its scores, and the process that talks to MLflow needs nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.decide.flags import ScoreTotals
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.method.theta import Theta
from ew_pipeline.results import CrossSection, WeekResult

MODEL_NAME = "ew-detector"
ONLY_SEGMENT = "all"
POOLED = "pooled"


@dataclass(frozen=True)
class SegmentFacts:
    """One fitted matrix: one nested run, one registered model."""

    name: str
    model_name: str  # in the registry
    model: str  # folder of the saved model; empty: there is none
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    curves: Mapping[str, tuple[tuple[int, float], ...]]  # metric: (step, value), …


@dataclass(frozen=True)
class WeekFacts:
    """A computed week. ``status``: computed, held or shadow, and published once it is."""

    run_id: str
    week: str
    week_index: int
    started_ms: int
    status: str
    data_hash: str
    rows: int
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    segments: tuple[SegmentFacts, ...]


def week_facts(result: WeekResult) -> WeekFacts:
    """Everything that is tracked of a result."""
    coverage, provenance = result.coverage, result.provenance
    status = "shadow" if result.shadow else "held" if result.held else "computed"
    params = {
        **_flat(result.config.model_dump(mode="json")),
        "zero_rule_used": coverage.zero_rule,
        "seed": str(provenance.seed),
        **_pricing_params(result.pricing),
    }
    metrics = {
        "week_index": float(result.week.index),
        **_theta(result.pooled),
        **_over_weeks(result, POOLED),
        **_decision(result.totals),
        "random_checks": float(len(result.random_checks)),
        **_pricing_metrics(result.pricing),
        **_cross_section(result.cross_section),
        "segments": float(len(result.segments)),
        "coverage.stores_expected": float(coverage.stores_expected),
        "coverage.stores_reporting": float(coverage.stores_reporting),
        "coverage.pairs_observed": float(coverage.pairs_observed),
        "coverage.pairs_zero": float(coverage.pairs_zero),
        "coverage.pairs_zero_filled": float(coverage.pairs_zero_filled),
        "coverage.pairs_promoted": float(coverage.pairs_promoted),
        "coverage.pairs_unlisted": float(coverage.pairs_unlisted),
        "coverage.pairs_not_scored": float(coverage.pairs_not_scored),
        "coverage.history_weeks": float(coverage.history_weeks),
        "rows_quarantined": float(result.contract.rows_quarantined),
        "gate.failed": float(len(result.held)),
        **{f"seconds.{_key(step)}": seconds for step, seconds in result.timings.items()},
        "seconds.total": float(sum(result.timings.values())),
    }
    tags = {
        "ew.week": str(result.week),
        "ew.data_hash": provenance.data_hash,
        "ew.config_hash": provenance.config_hash,
        "ew.code_version": provenance.code_version,
        "ew.shadow": str(result.shadow).lower(),
        "ew.started_at": result.started_at.isoformat(),
        **({"ew.flow_run_id": provenance.flow_run_id} if provenance.flow_run_id else {}),
        **{
            f"ew.gate.{_key(check.name)}": f"{'passed' if check.passed else 'held'}: {check.words}"
            for check in result.gate
        },
    }
    return WeekFacts(
        run_id=result.run_id,
        week=str(result.week),
        week_index=result.week.index,
        started_ms=int(result.started_at.timestamp() * 1000),
        status=status,
        data_hash=provenance.data_hash,
        rows=coverage.pairs_observed,
        params=params,
        metrics=_finite(metrics),
        tags=tags,
        segments=tuple(_segment(segment, result) for segment in result.segments),
    )


def facts_from(found: Mapping[str, Any]) -> WeekFacts:
    """Facts from their JSON form."""
    segments = [
        SegmentFacts(
            **{
                **segment,
                "curves": {
                    name: tuple((int(step), float(value)) for step, value in points)
                    for name, points in segment["curves"].items()
                },
            }
        )
        for segment in found["segments"]
    ]
    return WeekFacts(**{**found, "segments": tuple(segments)})


def model_name(segment: str) -> str:
    """``ew-detector``, or ``ew-detector-<segment>``; two segments never share one."""
    if segment == ONLY_SEGMENT:
        return MODEL_NAME
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", segment).strip("-")[:40]
    return f"{MODEL_NAME}-{safe}" if safe == segment else f"{MODEL_NAME}-{safe}-{canonical_hash(segment)[:8]}"


def _segment(segment: SegmentResult, result: WeekResult) -> SegmentFacts:
    inverse_size = 0.0 if math.isinf(segment.dispersion_size) else 1.0 / segment.dispersion_size
    params = {
        "segment": segment.name,
        "rank": str(segment.rank),
        "noise": segment.noise,
        "anomaly": segment.anomaly,
        "mode": segment.mode,
        "mode_reason": segment.mode_reason,
    }
    metrics = {
        **_theta(segment.theta),
        **_over_weeks(result, segment.name),
        **_decision(result.totals_of(segment.name)),
        "rank": float(segment.rank),
        "null_gain": segment.null_gain,
        "dispersion": inverse_size,  # 0 is Poisson
        "dispersion_size": segment.dispersion_size,
        "converged": float(segment.converged),
        "stores": float(segment.stores),
        "skus": float(segment.skus),
        "pairs": float(segment.pairs),
        "warnings": float(len(segment.warnings)),
        "seconds.fit": segment.seconds,
    }
    values = enumerate(segment.singular_values, start=1)
    curves = {
        "rank_curve.leave_one_out": segment.rank_curve,
        "rank_curve.held_out": segment.held_out_curve,
        "rank_weight": tuple(segment.rank_weights.items()),
        "singular_value": tuple(values),
    }
    return SegmentFacts(
        name=segment.name,
        model_name=model_name(segment.name),
        model="" if segment.model is None else str(segment.model),
        params=params,
        metrics=_finite(metrics),
        curves={
            name: tuple((int(step), float(value)) for step, value in points if math.isfinite(value))
            for name, points in curves.items()
            if points
        },
    )


def _theta(theta: Theta, name: str = "theta") -> dict[str, float]:
    return {
        f"{name}.alpha": theta.alpha,
        f"{name}.alpha_low": theta.alpha_interval[0],
        f"{name}.alpha_high": theta.alpha_interval[1],
        f"{name}.anomaly_rate": theta.anomaly_rate,
        f"{name}.anomaly_rate_low": theta.anomaly_rate_interval[0],
        f"{name}.anomaly_rate_high": theta.anomaly_rate_interval[1],
        f"{name}.at_bound": float(theta.at_bound),
        f"{name}.identified": float(theta.identified),
    }


def _over_weeks(result: WeekResult, segment: str) -> dict[str, float]:
    """Theta with the weeks before as a prior, beside the week's own."""
    found = result.over_weeks.get(segment)
    if found is None:
        return {}
    return {**_theta(found.theta, "theta_over_weeks"), "theta_over_weeks.weeks": float(found.weeks)}


def _pricing_params(pricing: Pricing) -> dict[str, str]:
    params = {"priced.form": pricing.form, "priced.why": pricing.words, "priced.labels": pricing.labels}
    if pricing.calibration is not None:
        params["calibration.version"] = pricing.calibration.version
        params["calibration.accepted"] = str(pricing.calibration.accepted)
    return params


def _pricing_metrics(pricing: Pricing) -> dict[str, float]:
    """What every form cost on the labelled past weeks, as a share of doing nothing."""
    record = pricing.calibration
    if record is None:
        return {}
    return {
        "calibration.weeks": float(len(record.weeks)),
        "calibration.anomalies": float(record.anomalies),
        "calibration.gain": record.gain,
        **{f"calibration.cost.{_key(form)}": cost for form, cost in record.costs.items()},
    }


def _cross_section(alone: CrossSection | None) -> dict[str, float]:
    """The week without its past: what it would flag."""
    if alone is None:
        return {}
    return {
        **_theta(alone.theta, "cross_section"),
        "cross_section.flags": float(alone.flags),
        "cross_section.flags_in_both": float(alone.both),
        "cross_section.flagged_share": alone.flags / max(alone.scored, 1),
        "cross_section.expected_cost": alone.expected_cost,
        "cross_section.expected_saving": alone.expected_saving,
        "cross_section.seconds": alone.seconds,
    }


def _decision(totals: ScoreTotals) -> dict[str, float]:
    return {
        "pairs_scored": float(totals.pairs),
        "flags": float(totals.flagged),
        "flagged_share": totals.flagged_share,
        "expected_cost": totals.expected_cost,
        "expected_cost_ignoring": totals.expected_cost_ignoring,
        "expected_saving": totals.expected_saving,
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``{"detector": {"rank": 3}}`` as ``{"detector.rank": "3"}``."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        flat |= (
            _flat(value, f"{prefix}{name}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{name}": str(value)}
        )
    return flat


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _key(words: str) -> str:
    """Words as part of a name that MLflow takes."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", words).strip("_")
