"""`ew bench small`: CPU time of the tiers for small weeks, and of the sampler per pair and sweep.

CPU time, because it says the same on a busy machine and an idle one, nearly; compilation is apart.
"""

from __future__ import annotations

import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.console import emit_json, results, step
from ew_pipeline.intake.history import trailing_level
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.families import SampledFamily, exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.sampler.chain import SamplerBudget, run_chain
from ew_pipeline.method.sampler.state import CountTable
from ew_pipeline.method.variational.fit import fit_variational, start_factors
from ew_pipeline.simulate import ChainSettings, simulate_chain
from ew_pipeline.simulate.settings import iso_weeks
from ew_pipeline.studies.bench.page import Requirement, at_most, required_table
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

TIERS = ("variational", "thorough")
WEEKS = 12
BUDGET = SamplerBudget(warm_up=3, draws=3, leapfrog=7, kept=1)


@dataclass(frozen=True)
class Small:
    """What small matrices take, and the sampler."""

    tiers: dict[str, Fits]
    sampler: dict[int, dict[str, float]]
    requirements: list[Requirement]


@dataclass(frozen=True)
class Fits:
    """CPU seconds of some fits."""

    cpu_mean_s: float
    cpu_median_s: float
    cpu_most_s: float
    instances: int


def small(
    instances: Annotated[int, typer.Option(min=1, help="Instances of the paper's ensemble.")] = 20,
    pairs: Annotated[float, typer.Option(min=1000, help="Observed pairs the sampler is timed on.")] = 1e6,
    stores: Annotated[int, typer.Option(min=2, help="Stores of the simulated week.")] = 100,
    skus: Annotated[int, typer.Option(min=2, help="SKUs of the simulated week.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the simulated data.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """CPU seconds of a fit of 100 x 100 by tier, of a week of a chain, and of a sweep of the sampler."""
    found = time_small(instances, int(pairs), seed)
    weeks = time_week(stores, skus, seed)
    table = [*found.requirements, *of_weeks(weeks)]
    if json:
        emit_json({"tiers": found.tiers, "weeks": weeks, "sampler": found.sampler, "requirements": table})
        return
    results().print(required_table(table))


def time_small(instances: int, pairs: int, seed: int) -> Small:
    """The tiers for small matrices and the sampler, with what is required of them."""
    tiers = {tier: time_tier(tier, instances, seed) for tier in TIERS}
    sampler = {threads: time_sampler(pairs, threads, seed) for threads in (1, 2)}
    return Small(tiers, sampler, requirements(tiers, sampler))


def time_tier(tier: str, instances: int, seed: int) -> Fits:
    """Fits of the paper's ensemble, everything automatic."""
    detector = EntrywiseDetector(tier)
    drawn = [
        draw_instance(EnsembleSettings(), np.random.default_rng([seed, k])).sales for k in range(instances)
    ]
    detector.fit(draw_instance(EnsembleSettings(n=14, m=14, rank=2), np.random.default_rng(0)).sales)
    with step(f"{instances} fits of 100 x 100, {tier}") as line:
        took = [_timed(detector, sales, None)[0] for sales in drawn]
        line.detail = f"{statistics.fmean(took):.2f} CPU s each"
    return Fits(statistics.fmean(took), statistics.median(took), max(took), instances)


def time_week(stores: int, skus: int, seed: int) -> dict[str, dict[str, Any]]:
    """The last week of a simulated chain, with the level from its past and alone."""
    with step(f"simulate {WEEKS} weeks of {stores} x {skus}"):
        chain = simulate_chain(ChainSettings(stores=stores, skus=skus, weeks=WEEKS), seed)
        week = iso_weeks(chain.settings.start_week, WEEKS)[-1]
        sales, level = SalesMatrix.from_long(chain.sales, week), trailing_level(chain.sales, week)
    found = {}
    for name, given in (("with a level from history", level), ("alone", None)):
        with step(f"fit the week {name}") as line:
            seconds, fit = _timed(EntrywiseDetector(), sales, given)
            line.detail = f"{seconds:.1f} CPU s, {fit.mode_}"
        found[name] = {"cpu_s": seconds, "tier": fit.mode_, "reason": fit.mode_reason_, "rank": fit.rank_}
    return found


def time_sampler(pairs: int, threads: int, seed: int) -> dict[str, float]:
    """Two chains, side by side on ``threads``: CPU and wall nanoseconds per pair and sweep of one.

    A sweep is a trajectory: as in a sweep of a Gibbs sampler, every factor and theta get a new value once. It
    takes several gradient passes. Everything that a chain does is in it: densities, metric, momenta.
    """
    rows = 2 * math.isqrt(pairs)  # half of the pairs observed, twice as many stores as SKUs
    settings = EnsembleSettings(
        n=rows, m=rows // 2, rank=5, mean=5.0, observed_share=pairs / (rows * (rows // 2))
    )
    data = Observations.of(draw_instance(settings, np.random.default_rng(seed)).sales)
    family = exposure_family("exponential")
    if not isinstance(family, SampledFamily):
        raise TypeError("the sampler needs a compiled family")
    start = fit_variational(
        data,
        family,
        start_factors(data, 5, np.random.default_rng(seed)),
        negative_binomial=False,
        max_sweeps=30,
    )
    table = CountTable.of(data)

    def chain(stream: int) -> int:
        return run_chain(data, table, family, start, np.random.default_rng([seed, stream]), BUDGET).passes

    with step(f"two chains on {data.counts.size:,} pairs, threads: {threads}") as line:
        cpu, wall = time.process_time(), time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            passes = sum(pool.map(chain, range(2)))
        sweeps = 2 * (BUDGET.warm_up + BUDGET.draws)
        per = 1e9 / (sweeps * data.counts.size)
        found = {
            "cpu_ns": (time.process_time() - cpu) * per,
            "wall_ns": (time.perf_counter() - wall) * per,
            "sweeps": float(sweeps),
            "passes": float(passes),
        }
        line.detail = f"{found['cpu_ns']:.0f} CPU ns"
    return found


def requirements(tiers: dict[str, Fits], sampler: dict[int, dict[str, float]]) -> list[Requirement]:
    """What is required of small matrices and of the sampler, beside what was seen."""
    return [
        at_most("100 x 100, variational, mean", tiers["variational"].cpu_mean_s, 0.3, " CPU s"),
        at_most("100 x 100, thorough, mean", tiers["thorough"].cpu_mean_s, 1.5, " CPU s"),
        *(
            at_most(f"sampler, per pair and sweep, threads: {threads}", figures["cpu_ns"], 100.0, " CPU ns")
            for threads, figures in sampler.items()
        ),
    ]


def of_weeks(weeks: dict[str, dict[str, Any]]) -> list[Requirement]:
    """The same of a week of a chain."""
    return [at_most(f"a week {name}, auto", week["cpu_s"], 5.0, " CPU s") for name, week in weeks.items()]


def _timed(detector: EntrywiseDetector, sales: SalesMatrix, level: Float | None) -> tuple[float, DetectorFit]:
    started = time.process_time()
    fit = detector.fit(sales, level=level)
    return time.process_time() - started, fit
