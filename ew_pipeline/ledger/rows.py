"""A computed week as rows of the ledger."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ew_pipeline.core.provenance import canonical_json, code_version, environment
from ew_pipeline.core.texts import text_column
from ew_pipeline.decide.flags import ScoreTotals
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.infer.theta import POOLED, OverWeeks
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.chain import plain
from ew_pipeline.ledger.records import Places, RunInfo, Status, moment, now
from ew_pipeline.method.theta import Theta
from ew_pipeline.results import WeekResult

DictRow = dict[str, Any]


def run_row(
    run: WeekResult | RunInfo, status: Status, *, by: str, error: str | None, places: Places
) -> DictRow:
    """A row of ``runs`` but for its revision."""
    at = moment(now())
    return {
        "run_id": run.run_id,
        "week": str(run.week),
        "status": status,
        "recorded_at": at,
        "recorded_by": by,
        "started_at": moment(run.started_at),
        "finished_at": at,
        "shadow": run.shadow,
        "config_hash": run.config.hash,
        "config": canonical_json(run.config.model_dump(mode="json")),
        "contract": _nested(run.contract, places),
        "coverage": _nested(run.coverage, places),
        "timings": _nested(run.timings, places),
        "folder": places.keep(run.folder),
        "error": error,
        "warnings": "[]",
        "gate": None,
        "pricing": None,
        "pairs_scored": None,
        "pairs_flagged": None,
        "expected_saving": None,
        "expected_cost": None,
        "expected_cost_ignoring": None,
        **(_of_info(run) if isinstance(run, RunInfo) else {}),
        **(_of_result(run, places) if isinstance(run, WeekResult) else {}),
    }


def _of_info(run: RunInfo) -> DictRow:
    return {
        "data_hash": run.data_hash,
        "code_version": code_version(),
        "seed": run.config.detector.random_state,
        "environment": canonical_json(dict(environment())),
        "flow_run_id": run.flow_run_id,
        "mlflow_run_id": None,
    }


def _of_result(result: WeekResult, places: Places) -> DictRow:
    origin = result.provenance
    warnings = [f"{part.name}: {words}" for part in result.segments for words in part.warnings]
    return {
        "data_hash": origin.data_hash,
        "config_hash": origin.config_hash,
        "code_version": origin.code_version,
        "seed": origin.seed,
        "environment": canonical_json(dict(origin.environment)),
        "flow_run_id": origin.flow_run_id,
        "mlflow_run_id": origin.mlflow_run_id,
        "warnings": canonical_json(warnings),
        "gate": _nested(result.gate, places),
        "pricing": _nested(pricing_facts(result), places),
        "pairs_scored": result.totals.pairs,
        "pairs_flagged": result.totals.flagged,
        "expected_saving": plain(result.expected_saving),
        "expected_cost": plain(result.expected_cost),
        "expected_cost_ignoring": plain(result.expected_cost_ignoring),
    }


def pricing_facts(result: WeekResult) -> DictRow:
    """Which probability was priced, what it was learnt from, and what the cross-section alone would do."""
    pricing = result.pricing
    facts: DictRow = {"asked": pricing.asked, "form": pricing.form, "words": pricing.words}
    if (record := pricing.calibration) is not None:
        facts["calibration"] = {
            "version": record.version,
            "labels": pricing.labels,
            "accepted": record.accepted,
            "chosen": record.chosen,
            "reason": record.reason,
            "weeks": list(record.weeks),
            "pairs": record.pairs,
            "anomalies": record.anomalies,
            "costs": dict(record.costs),
            "gain": record.gain,
        }
    if result.cross_section is not None:
        facts["cross_section"] = result.cross_section
    return facts


def segment_rows(result: WeekResult, places: Places) -> list[DictRow]:
    """A row per fitted matrix, and one for theta over all of them."""
    rows = [
        {
            **_segment_base(result, part.name, part.theta, result.totals_of(part.name)),
            **_segment_fit(part, places),
        }
        for part in result.segments
    ]
    return [*rows, _segment_base(result, POOLED, result.pooled, result.totals)]


def _sums(totals: ScoreTotals) -> DictRow:
    return {
        "stores": totals.stores,
        "skus": totals.skus,
        "pairs": totals.pairs,
        "pairs_flagged": totals.flagged,
        "units": plain(totals.units),
        "expected_units": plain(totals.expected_units),
        "expected_saving": plain(totals.expected_saving),
        "expected_cost_ignoring": plain(totals.expected_cost_ignoring),
    }


def _segment_base(result: WeekResult, name: str, theta: Theta, totals: ScoreTotals) -> DictRow:
    return {
        "run_id": result.run_id,
        "segment": name,
        "week": str(result.week),
        **theta_columns(theta),
        "at_bound": bool(theta.at_bound),
        "identified": bool(theta.identified),
        "reason": theta.reason,
        **_sums(totals),
        **dict.fromkeys(_FIT_COLUMNS),
        "calibration": result.pricing.version,
        **_over_weeks(result.over_weeks.get(name)),
    }


def _over_weeks(pooled: OverWeeks | None) -> DictRow:
    if pooled is None:
        return {}
    named = theta_columns(pooled.theta)
    moved = {re.sub(r"^(alpha|anomaly_rate)", r"\1_over_weeks", name): value for name, value in named.items()}
    return {**moved, "weeks_pooled": pooled.weeks}


_FIT_COLUMNS = (
    "rank",
    "noise",
    "anomaly",
    "dispersion_size",
    "mode",
    "mode_reason",
    "converged",
    "null_gain",
    "rank_curve",
    "held_out_curve",
    "rank_weights",
    "singular_values",
    "warnings",
    "seconds",
    "model",
)


def _segment_fit(part: SegmentResult, places: Places) -> DictRow:
    return {
        "stores": int(part.stores),
        "skus": int(part.skus),
        "pairs": int(part.pairs),
        "rank": int(part.rank),
        "noise": part.noise,
        "anomaly": part.anomaly,
        "dispersion_size": finite(part.dispersion_size),
        "mode": part.mode,
        "mode_reason": part.mode_reason,
        "converged": bool(part.converged),
        "null_gain": finite(part.null_gain),
        "rank_curve": canonical_json([[int(rank), finite(value)] for rank, value in part.rank_curve]),
        "held_out_curve": canonical_json([[int(rank), finite(value)] for rank, value in part.held_out_curve]),
        "rank_weights": canonical_json({str(int(k)): finite(v) for k, v in part.rank_weights.items()}),
        "singular_values": canonical_json([finite(value) for value in part.singular_values]),
        "warnings": canonical_json(list(part.warnings)),
        "seconds": plain(float(part.seconds)),
        "model": None if part.model is None else places.keep(part.model),
    }


def theta_columns(theta: Theta) -> DictRow:
    columns = {
        "alpha": theta.alpha,
        "alpha_low": theta.alpha_interval[0],
        "alpha_high": theta.alpha_interval[1],
        "anomaly_rate": theta.anomaly_rate,
        "anomaly_rate_low": theta.anomaly_rate_interval[0],
        "anomaly_rate_high": theta.anomaly_rate_interval[1],
    }
    return {name: finite(value) for name, value in columns.items()}


def random_rows(result: WeekResult, publication_id: int, first_id: int) -> Iterator[DictRow]:
    """A row per pair that was drawn to be checked although it is not flagged."""
    drawn = result.random_checks
    names = [column.name for column in tables.random_checks.columns]
    names = [name for name in names if name not in ("id", "publication_id", "week")]
    columns = [plain_column(drawn[name]).to_pylist() for name in names]
    for number, values in enumerate(zip(*columns, strict=True), start=first_id):
        yield {
            "id": number,
            "publication_id": publication_id,
            "week": str(result.week),
            **dict(zip(names, values, strict=True)),
        }


def plain_column(column: pd.Series[Any]) -> pa.Array:
    """A column as values that both databases take."""
    if column.name in ("units", "store_rank"):
        return pa.array(column.to_numpy(np.int64))
    if pd.api.types.is_numeric_dtype(column):
        return pa.array(column.to_numpy(np.float64) + 0.0)
    return text_column(column)


def _nested(value: Any, places: Places) -> str | None:
    """A record of the run as JSON; paths as they are kept."""
    return None if value is None else canonical_json(_plain_tree(value, places))


def _plain_tree(value: Any, places: Places) -> Any:
    if is_dataclass(value):
        return {item.name: _plain_tree(getattr(value, item.name), places) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain_tree(one, places) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_tree(one, places) for one in value]
    if isinstance(value, Path):
        return places.keep(value)
    if isinstance(value, np.generic):
        value = value.item()
    return finite(value) if isinstance(value, float) else value


def finite(value: float) -> float | None:
    """NULL for a value that is infinite or not there."""
    return float(value) + 0.0 if math.isfinite(value) else None
