"""What the charts made of fitted weeks: power, attribution, false alarms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ew_pipeline.drift.verdicts import (
    ANOMALY_DRIFT,
    COMPOSITION,
    OVERDISPERSION,
    STABLE,
    Event,
    assess,
)
from ew_pipeline.studies.drift.fitted import FIRST_WEEK, as_rows

EXPECTED = {
    "anomaly rate": ANOMALY_DRIFT,
    "severity": ANOMALY_DRIFT,
    "observed share": COMPOSITION,
    "rank": COMPOSITION,
    "assortment": COMPOSITION,
    "mean demand": COMPOSITION,
    "overdispersion": OVERDISPERSION,
}
WEEK = Mapping[str, Any]
# Series that vary from week to week, and the scale on which their deviations add.
LOGIT = ("alpha", "alpha_low", "alpha_high", "anomaly_rate", "anomaly_rate_low", "anomaly_rate_high")
LOG = ("expected_units", "pairs")


@dataclass(frozen=True)
class ScenarioFigures:
    """How a change was seen within the weeks after it, over all simulations."""

    expected: str
    simulations: int
    as_expected: float
    verdicts: dict[str, int]
    mean_weeks: float | None  # until the alarm, where there was one
    early: int  # simulations with an alarm before the change


@dataclass(frozen=True)
class StableFigures:
    """Alarms over stable weeks. ``allowed``: by the asked rate."""

    weeks: int
    repeats: int
    alarms: float  # mean over the repeats
    most: int
    allowed: float
    within: float  # share of the repeats with no more than allowed
    fitted: bool  # True: every week was fitted; False: drawn from the errors of fitted weeks


def of_scenario(
    name: str, before: Sequence[Sequence[WEEK]], after: Sequence[Sequence[WEEK]], rate: float
) -> ScenarioFigures:
    """``before[k]`` and ``after[k]``: the fitted weeks of simulation k, in order."""
    verdicts: Counter[str] = Counter()
    weeks, early = [], 0
    for stable, changed in zip(before, after, strict=True):
        events = assess(as_rows([*stable, *changed]), rate).events
        late = [event for event in events if _place(event) >= len(stable)]
        early += len(late) < len(events)
        verdicts[late[0].verdict if late else STABLE] += 1
        if late:
            weeks.append(_place(late[0]) - len(stable) + 1)
    return ScenarioFigures(
        expected=EXPECTED[name],
        simulations=len(before),
        as_expected=verdicts[EXPECTED[name]] / len(before),
        verdicts=dict(verdicts.most_common()),
        mean_weeks=float(np.mean(weeks)) if weeks else None,
        early=early,
    )


def of_stable(
    chains: Sequence[Sequence[WEEK]], weeks: int, rate: float, rng: np.random.Generator, repeats: int
) -> StableFigures:
    """False alarms: on the fitted weeks where a chain has that many, else on weeks drawn like them."""
    long = [chain[:weeks] for chain in chains if len(chain) >= weeks]
    sequences = long or [draw_like(chains, weeks, rng) for _ in range(repeats)]
    alarms = np.array([len(assess(as_rows(one), rate).events) for one in sequences])
    allowed = weeks / rate
    return StableFigures(
        weeks=weeks,
        repeats=len(sequences),
        alarms=float(alarms.mean()),
        most=int(alarms.max()),
        allowed=allowed,
        within=float(np.mean(alarms <= allowed)),
        fitted=bool(long),
    )


def of_drawn(
    name: str,
    before: Sequence[Sequence[WEEK]],
    after: Sequence[Sequence[WEEK]],
    rate: float,
    rng: np.random.Generator,
    simulations: int,
) -> ScenarioFigures:
    """``of_scenario`` on many simulations whose weeks are drawn like the fitted ones, before and after."""
    homes = [int(home) for home in rng.integers(len(before), size=simulations)]
    stable = [_draw(before, home, len(before[home]), rng) for home in homes]
    changed = [_draw(after, home, len(after[home]), rng) for home in homes]
    return of_scenario(name, stable, changed, rate)


def draw_like(chains: Sequence[Sequence[WEEK]], weeks: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Stable weeks of one of the chains, each with an estimate of theta: a week without one cannot alarm."""
    drawn = _draw(chains, int(rng.integers(len(chains))), weeks, rng)
    return [{**week, "identified": True, "at_bound": False} for week in drawn]


def _draw(
    chains: Sequence[Sequence[WEEK]], home: int, weeks: int, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Weeks of chain ``home``: its mean, and the deviations that a fitted week of any chain had from its own
    mean, all series of the week together."""
    own = chains[home]
    centre = _means(own)
    inflate = np.sqrt(len(own) / max(len(own) - 1, 1))
    deviations = [_deviation(week, _means(chain)) for chain in chains for week in chain]
    picked = rng.integers(len(deviations), size=weeks)
    pattern = rng.integers(len(own), size=weeks)
    return [
        _moved(own[int(p)], centre, deviations[int(k)], inflate) for p, k in zip(pattern, picked, strict=True)
    ]


def _means(chain: Sequence[WEEK]) -> dict[str, float]:
    known = [week for week in chain if week["identified"]] or list(chain)
    return {name: float(np.mean([_to(name, week[name]) for week in known])) for name in (*LOGIT, *LOG)}


def _deviation(week: WEEK, means: Mapping[str, float]) -> dict[str, float]:
    return {name: _to(name, week[name]) - means[name] for name in (*LOGIT, *LOG)}


def _moved(
    week: WEEK, centre: Mapping[str, float], deviation: Mapping[str, float], inflate: float
) -> dict[str, Any]:
    values = {name: _back(name, centre[name] + inflate * deviation[name]) for name in centre}
    return {**week, **values}


def _to(name: str, value: float) -> float:
    if name in LOG:
        return float(np.log(value))
    share = min(max(value, 1e-6), 1.0 - 1e-6)
    return float(np.log(share / (1.0 - share)))


def _back(name: str, value: float) -> float:
    return float(np.exp(value)) if name in LOG else float(1.0 / (1.0 + np.exp(-value)))


def _place(event: Event) -> int:
    return event.week.index - FIRST_WEEK.index
