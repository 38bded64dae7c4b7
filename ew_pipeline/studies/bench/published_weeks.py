"""Weeks as the weekly run hands them to the ledger, drawn instead of fitted: the ledger is what is timed."""

from __future__ import annotations

import datetime as dt
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.provenance import canonical_hash, code_version, environment
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import worded
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.intake.assemble import Coverage
from ew_pipeline.intake.contract import Contract
from ew_pipeline.ledger.writing import SCORES
from ew_pipeline.method.theta import Theta
from ew_pipeline.results import GateCheck, Provenance, WeekResult

FIRST_WEEK = Week(2024, 1)
COST_FALSE_ALARM, COST_MISSED = 1.0, 3.0
REPORT = "report.html"
SKUS = 5_000  # at most; more pairs than that are spread over more stores


def draw_scores(pairs: int, flags: int, rng: np.random.Generator) -> pd.DataFrame:
    """Scores of ``pairs`` pairs of which ``flags`` are flagged, with the columns and types of ``decide``."""
    if not 0 < flags <= pairs:
        raise UsageError(
            f"{flags:,} flags of {pairs:,} pairs.", "ask for at least one flag and at most all pairs."
        )
    skus = min(SKUS, pairs)
    store, sku = np.divmod(np.arange(pairs), skus)
    flagged = np.zeros(pairs, dtype=bool)
    flagged[rng.choice(pairs, flags, replace=False)] = True
    expected = rng.gamma(4.0, 2.0, pairs) + 1.0
    units = np.where(flagged, 0, rng.poisson(expected)).astype(np.int64)
    probability = np.where(flagged, rng.uniform(0.7, 0.999, pairs), rng.uniform(0.001, 0.2, pairs))
    level = expected * rng.uniform(0.9, 1.1, pairs)
    scores = pd.DataFrame(
        {
            "store_id": _ids("S", store),
            "sku_id": _ids("K", sku),
            "segment": pd.Categorical.from_codes(np.zeros(pairs, np.int16), pd.Index(["all"])),
            "units": units,
            "expected_units": expected,
            "level": level,
            "posterior": probability,
            "anomaly_probability": probability,
            "cost_false_alarm": COST_FALSE_ALARM,
            "cost_missed": COST_MISSED,
            "threshold": COST_MISSED / (COST_FALSE_ALARM + COST_MISSED),
            "expected_saving": probability * COST_MISSED - (1.0 - probability) * COST_FALSE_ALARM,
            "flagged": flagged,
            "store_rank": np.where(flagged, 1, 0),
        }
    )
    return scores.assign(reasons=worded(scores, flagged))


def draw_week(place: int, scores: pd.DataFrame, home: Path, rng: np.random.Generator) -> WeekResult:
    """Week number ``place`` with these scores, and its folder with a page and the scores.

    Scores that were written for an earlier week are linked, so that they are read and hashed every week but
    lie on the disk once.
    """
    week = FIRST_WEEK.shift(place)
    started = dt.datetime.combine(week.shift(1).start, dt.time(6), dt.UTC)
    config = RunConfig()
    data_hash = canonical_hash(["bench", str(week)])
    run_id = f"{week}-{started:%Y%m%dT%H%M%S}-{data_hash[:6]}"
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / REPORT).write_text("<!doctype html><title>A week</title>", encoding="utf-8")
    kept = home / SCORES
    if not kept.exists():
        scores.to_parquet(kept, index=False)
    os.link(kept, folder / SCORES)
    theta = _theta(rng)
    stores, skus = scores["store_id"].nunique(), scores["sku_id"].nunique()
    return WeekResult(
        run_id=run_id,
        week=week,
        started_at=started,
        shadow=False,
        config=config,
        contract=Contract((), {"sales": len(scores)}, 0, None, folder / "data_docs" / "index.html", {}),
        coverage=Coverage(
            "explicit", stores, stores, (), len(scores), int((scores["units"] == 0).sum()), 0, 0, 0, 0, 8
        ),
        segments=(
            SegmentResult(
                name="all",
                stores=stores,
                skus=skus,
                pairs=len(scores),
                theta=theta,
                rank=3,
                noise="poisson",
                anomaly="exponential",
                dispersion_size=math.inf,
                mode="large",
                mode_reason="drawn, not fitted",
                converged=True,
                null_gain=20.0,
                rank_curve=((2, -2.3), (3, -2.0)),
                held_out_curve=(),
                rank_weights={3: 1.0},
                singular_values=(12.5, 3.25, 0.5),
                warnings=(),
                seconds=0.0,
                model=folder / "model" / "all",
            ),
        ),
        pooled=theta,
        scores=scores,
        gate=(GateCheck("converged", True, "drawn, not fitted"),),
        provenance=Provenance(data_hash, config.hash, code_version(), 0, dict(environment())),
        folder=folder,
        timings={},
    )


def _ids(letter: str, codes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pd.Categorical[str]:
    names = pd.Index([f"{letter}{number:05d}" for number in range(int(codes.max()) + 1)])
    return pd.Categorical.from_codes(codes, names, ordered=True)


def _theta(rng: np.random.Generator) -> Theta:
    alpha, rate = float(rng.uniform(0.1, 0.3)), float(rng.uniform(0.03, 0.05))
    return Theta(alpha, rate, (0.8 * alpha, 1.25 * alpha), (0.9 * rate, 1.1 * rate), False, True)
