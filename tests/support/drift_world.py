"""Weeks whose theta is what a test wants it to be: as drawn estimates, or published in a ledger.

Import it as ``from support.drift_world import …`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit
from support.factory import make_result

from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.method.theta import Theta
from ew_pipeline.results import WeekResult

FIRST = Week(2026, 1)
HALF_WIDTH = 1.6448536269514722


@dataclass(frozen=True)
class TestWeek:
    """What a week's estimates are around."""

    __test__ = False

    anomaly_rate: float = 0.04
    alpha: float = 0.2
    size: float = 5.0
    rank: int = 2
    expected: float = 1.0  # factor on the expected sales
    observed_share: float = 0.8
    carried_over: float = 1.0
    effective: float = 1.5  # number of factors that the spectrum shows


def theta_near(rate: float, alpha: float, rng: np.random.Generator, error: float = 0.06) -> Theta:
    """An estimate with an honest interval."""
    rate_at, alpha_at = logit(rate) + rng.normal(0, error), logit(alpha) + rng.normal(0, 2 * error)

    def around(centre: float, se: float) -> tuple[float, float]:
        return float(expit(centre - HALF_WIDTH * se)), float(expit(centre + HALF_WIDTH * se))

    return Theta(
        alpha=float(expit(alpha_at)),
        anomaly_rate=float(expit(rate_at)),
        alpha_interval=around(alpha_at, 2 * error),
        anomaly_rate_interval=around(rate_at, error),
        at_bound=False,
        identified=True,
    )


def estimates(weeks: Sequence[TestWeek], rng: np.random.Generator) -> pd.DataFrame:
    """Rows for ``assess`` with the errors that fits of 200 x 1000 Poisson sales have (0.06 on the log odds of
    p_A, twice that for alpha), and a little of the week's own in everything else."""
    rows = []
    for place, week in enumerate(weeks):
        theta = theta_near(week.anomaly_rate, week.alpha, rng)
        pairs = round(200_000 * week.observed_share * np.exp(rng.normal(0, 0.002)))
        rows.append(
            {
                "week": str(FIRST.shift(place)),
                "segment": "all",
                "publication_id": place + 1,
                "alpha": theta.alpha,
                "alpha_low": theta.alpha_interval[0],
                "alpha_high": theta.alpha_interval[1],
                "anomaly_rate": theta.anomaly_rate,
                "anomaly_rate_low": theta.anomaly_rate_interval[0],
                "anomaly_rate_high": theta.anomaly_rate_interval[1],
                "identified": True,
                "at_bound": False,
                "stores": 200,
                "skus": 1000,
                "pairs": pairs,
                "pairs_flagged": round(pairs * theta.anomaly_rate * 0.7),
                "expected_units": pairs * 5.0 * week.expected * np.exp(rng.normal(0, 0.01)),
                "expected_saving": 1.0,
                "expected_cost_ignoring": 3.0 * pairs * theta.anomaly_rate,
                "rank": week.rank,
                "dispersion_size": week.size * np.exp(rng.normal(0, 0.02)),
                "singular_values": spectrum(week.effective * float(np.exp(rng.normal(0, 0.005)))),
                "carried_over": week.carried_over,
                "stores_reporting": 1.0 - rng.binomial(200, 0.01) / 200,
            }
        )
    return pd.DataFrame(rows)


def spectrum(effective: float) -> list[float]:
    """Two singular values with (sum s)^2 / sum s^2 = ``effective``, between 1 and 2; more: equal ones."""
    if effective >= 2.0:
        return [1.0] * round(effective)
    second = (1.0 - math.sqrt(max(0.0, 1.0 - (effective - 1.0) ** 2))) / (effective - 1.0)
    return [1.0, second]


def result_of(
    place: int, wanted: TestWeek, home: Path, segments: Sequence[str] = ("all",), seed: int = 0, **more: Any
) -> WeekResult:
    """Week number ``place`` with that theta in every segment."""
    rng = np.random.default_rng([seed, place])
    result = make_result(
        FIRST.shift(place), stores=6, skus=10, home=home, segments=segments, seed=seed, **more
    )
    scores = result.scores.assign(expected_units=4.0 * wanted.expected * np.exp(rng.normal(0, 0.01)))
    scores.to_parquet(result.folder / "scores.parquet", index=False)
    fitted = tuple(
        replace(
            part,
            theta=theta_near(wanted.anomaly_rate, wanted.alpha, rng),
            dispersion_size=float(wanted.size * np.exp(rng.normal(0, 0.02))),
            noise="negative_binomial",
            rank=wanted.rank,
            singular_values=(10.0, 3.0 * float(np.exp(rng.normal(0, 0.01)))),
        )
        for part in result.segments
    )
    return replace(result, segments=fitted, pooled=fitted[0].theta, scores=scores)


def publish(ledger: Ledger, result: WeekResult) -> None:
    ledger.publish(result, by="ana", report=result.folder / "report.html")


def publish_weeks(
    settings: Settings, weeks: Sequence[TestWeek], segments: Sequence[str] = ("all",), seed: int = 0
) -> None:
    """Publish the weeks one after the other, from 2026-W01."""
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        for place, wanted in enumerate(weeks):
            publish(ledger, result_of(place, wanted, settings.root, segments, seed))
