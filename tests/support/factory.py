"""A computed week, made in a millisecond: for tests of what happens after the fit.

Import it as ``from support.factory import make_result`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.intake.assemble import Coverage
from ew_pipeline.intake.contract import Contract, Fault
from ew_pipeline.method.theta import Theta
from ew_pipeline.results import GateCheck, Provenance, WeekResult

COST_FALSE_ALARM, COST_MISSED = 1.0, 3.0
THRESHOLD = COST_MISSED / (COST_FALSE_ALARM + COST_MISSED)
PROVENANCE_FIELDS = {item.name for item in fields(Provenance)}


def make_result(
    week: str | Week = "2026-W34",
    stores: int = 3,
    skus: int = 4,
    seed: int = 0,
    *,
    home: Path | None = None,
    segments: Sequence[str] = ("all",),
    attempt: int = 0,
    **overrides: Any,
) -> WeekResult:
    """A filled ``WeekResult``: the first pair of every store sold nothing and is flagged.

    The same arguments give the same result; another ``seed`` is other data with another data hash, another
    ``attempt`` only another run id. ``overrides`` are fields of ``WeekResult`` or of its ``Provenance``
    (``make_result(data_hash="a" * 64)``). With a ``home`` the run's folder is made, with Data Docs, scores,
    report and a model folder per segment as small files; without, paths point at nothing.
    """
    week = Week.parse(week)
    generator = np.random.default_rng([seed, week.index])
    config = overrides.pop("config", RunConfig())
    data_hash = canonical_hash(["data", str(week), stores, skus, seed])
    tag = canonical_hash([data_hash, config.hash, attempt])
    started = dt.datetime(2026, 11, 16, 6, 1, 2, tzinfo=dt.UTC) + dt.timedelta(minutes=attempt)
    run_id = overrides.pop("run_id", f"{week}-{started:%Y%m%dT%H%M%S}-{tag[:6]}")
    folder = overrides.pop("folder", (home or Path("/nonexistent")) / "runs" / run_id)

    scores = overrides.pop("scores", None)
    if scores is None:
        scores = make_scores(generator, stores, skus, segments)
    provenance = Provenance(
        data_hash=data_hash,
        config_hash=config.hash,
        code_version="0.1.0+0123456789ab",
        seed=config.detector.random_state,
        environment={"python": "3.11.9", "machine": "x86_64", "numpy": "2.4.0"},
        flow_run_id="6a0f6e0c-8a55-4a6e-9d53-0d6d1c3c8b11",
        mlflow_run_id=canonical_hash(["mlflow", run_id])[:32],
    )
    provenance = replace(
        overrides.pop("provenance", provenance),
        **{name: overrides.pop(name) for name in list(overrides) if name in PROVENANCE_FIELDS},
    )
    result = WeekResult(
        run_id=run_id,
        week=week,
        started_at=started,
        shadow=False,
        config=config,
        contract=_contract(folder, len(scores)),
        coverage=_coverage(scores),
        segments=tuple(_segment(name, scores, generator, folder) for name in segments),
        pooled=_theta(generator),
        scores=scores,
        gate=(
            GateCheck("converged", True, "all segments converged"),
            GateCheck("flagged share", True, f"{scores['flagged'].mean():.1%} of the pairs, limit 15%"),
        ),
        provenance=provenance,
        folder=folder,
        timings={"ingest": 0.4, "prepare": 0.2, "fit": 3.1, "decide": 0.05},
    )
    result = replace(result, **overrides)
    if home is not None:
        _write_folder(result)
    return result


def held_result(**arguments: Any) -> WeekResult:
    """A result that the gate holds back."""
    checks = (
        GateCheck("converged", False, "segment all did not converge in 200 steps"),
        GateCheck("flagged share", True, "8.3% of the pairs, limit 15%"),
    )
    return make_result(gate=checks, **arguments)


def make_scores(
    generator: np.random.Generator, stores: int, skus: int, segments: Sequence[str] = ("all",)
) -> pd.DataFrame:
    """Every pair of a small chain, sorted by store and SKU; segments are split by SKU in turn."""
    store, sku = np.divmod(np.arange(stores * skus), skus)
    expected = generator.gamma(4.0, 2.0, stores * skus) + 1.0
    wrong = sku == store % skus
    units = np.where(wrong, 0, generator.poisson(expected)).astype(np.int64)
    probability = np.where(
        wrong, generator.uniform(0.7, 0.999, len(sku)), generator.uniform(0.001, 0.2, len(sku))
    )
    saving = probability * COST_MISSED - (1.0 - probability) * COST_FALSE_ALARM
    width = max(3, len(str(max(stores, skus))))
    scores = pd.DataFrame(
        {
            "store_id": [f"S{number:0{width}d}" for number in store],
            "sku_id": [f"K{number:0{width}d}" for number in sku],
            "segment": [segments[number % len(segments)] for number in sku],
            "units": units,
            "expected_units": expected,
            "anomaly_probability": probability,
            "cost_false_alarm": COST_FALSE_ALARM,
            "cost_missed": COST_MISSED,
            "threshold": THRESHOLD,
            "expected_saving": saving,
            "store_rank": 0,
            "reasons": np.where(wrong, "zero_sales;below_20_percent", ""),
            "level": expected * generator.uniform(0.9, 1.1, len(sku)),
            "posterior": probability,
            "flagged": 1.0 - probability <= THRESHOLD,
        }
    )
    by_store = scores.groupby("store_id")["expected_saving"]
    scores["store_rank"] = by_store.rank(method="first", ascending=False).astype(np.int64)
    return scores


def _theta(generator: np.random.Generator) -> Theta:
    alpha, rate = generator.uniform(0.1, 0.3), generator.uniform(0.03, 0.08)
    return Theta(
        alpha=float(alpha),
        anomaly_rate=float(rate),
        alpha_interval=(float(alpha * 0.8), float(alpha * 1.25)),
        anomaly_rate_interval=(float(rate * 0.7), float(rate * 1.4)),
        at_bound=False,
        identified=True,
    )


def _segment(name: str, scores: pd.DataFrame, generator: np.random.Generator, folder: Path) -> SegmentResult:
    part = scores[scores["segment"] == name]
    return SegmentResult(
        name=name,
        stores=part["store_id"].nunique(),
        skus=part["sku_id"].nunique(),
        pairs=len(part),
        theta=_theta(generator),
        rank=2,
        noise="poisson",
        anomaly="exponential",
        dispersion_size=math.inf,
        mode="variational",
        mode_reason="a small matrix",
        converged=True,
        null_gain=float(generator.uniform(5.0, 40.0)),
        rank_curve=((1, -2.31), (2, -2.02), (3, -2.03)),
        held_out_curve=((1, -2.40), (2, -2.11), (3, -2.15)),
        rank_weights={1: 0.01, 2: 0.8, 3: 0.19},
        singular_values=(12.5, 3.25, 0.5),
        warnings=(),
        seconds=1.5,
        model=folder / "model" / name,
    )


def _contract(folder: Path, rows: int) -> Contract:
    return Contract(
        faults=(Fault("sales", "units below zero", 2, ("S001 K002", "S002 K000"), rejects=False),),
        rows_read={"sales": rows + 2, "listing": rows},
        rows_quarantined=2,
        quarantine=folder.parent.parent / "quarantine" / f"{folder.name}.parquet",
        data_docs=folder / "data_docs" / "index.html",
        ignored_columns={"sales": ("colour",)},
    )


def _coverage(scores: pd.DataFrame) -> Coverage:
    stores = scores["store_id"].nunique()
    return Coverage(
        zero_rule="listing",
        stores_expected=stores + 1,
        stores_reporting=stores,
        stores_missing=("S999",),
        pairs_observed=len(scores),
        pairs_zero=int((scores["units"] == 0).sum()),
        pairs_zero_filled=1,
        pairs_promoted=1,
        pairs_unlisted=0,
        pairs_not_scored=2,
        history_weeks=8,
    )


def _write_folder(result: WeekResult) -> None:
    for path in (result.contract.data_docs.parent, *(segment.model for segment in result.segments)):
        path.mkdir(parents=True, exist_ok=True)
    result.contract.data_docs.write_text("<!doctype html><title>Data Docs</title>", encoding="utf-8")
    for segment in result.segments:
        (segment.model / "model.json").write_text('{"rank": 2}', encoding="utf-8")
    result.scores.to_parquet(result.folder / "scores.parquet", index=False)
    (result.folder / "report.html").write_text("<!doctype html><title>Report</title>", encoding="utf-8")
