"""The steps of the large fit one by one, and how much of the machine's memory bandwidth they reach.

Run as ``python -m ew_pipeline.studies.bench.passes FOLDER RANK``; prints one JSON line. CPU seconds are the
least of a few runs, because load only ever adds. Before each run the caches are emptied: run after run on
the same arrays, a hundred thousand entries would be timed in the nearest cache and a hundred million in
memory, and what grows between them would be the distance, not the work. Bytes are what a pass must read and
write at the least: every array once, and of the factors what fits in no cache.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ew_pipeline.core.arrays import Float32, available_threads
from ew_pipeline.core.kernels import njit_fast
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.entry_blocks import in_entry_blocks
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.large.als import Variance, first_guess
from ew_pipeline.method.large.binned import Grid, bin_counts
from ew_pipeline.method.large.factor_state import FactorState
from ew_pipeline.method.large.fit import fit_noise
from ew_pipeline.method.large.rank import large_ranks, sketch, sketch_rows
from ew_pipeline.method.large.scores import healthy_probabilities, variance_of
from ew_pipeline.method.large.some_rows import spread_part
from ew_pipeline.method.large.theta import binned_theta, calibration
from ew_pipeline.method.large.tier import SPENDING
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.bench.stored import load

RUNS = 5  # of a step; the least counts, and of more runs it is less, so there are as many at every size
CACHES = 1 << 27  # bytes: more than the caches of the machines we know
STREAM = 30_000_000  # numbers in each of the three arrays of the bandwidth test: far beyond any cache


@dataclass(frozen=True)
class Pass:
    """CPU and wall seconds of a step; ``bytes`` that it moves, 0 where memory is not what bounds it."""

    cpu_s: float
    wall_s: float
    bytes: int = 0


def main(folder: str, rank: str) -> None:
    """The child's part."""
    sales = load(Path(folder)).sales
    for mode in ("fast", "large"):  # compiles, and loads what the choice of the rank takes
        EntrywiseDetector(mode).fit(_first_rows(sales))
    document = {
        "observed": sales.n_observed,
        "threads": available_threads(),
        "stream_gb_per_cpu_s": stream_bandwidth(),
        "passes": {name: asdict(found) for name, found in passes(sales, int(rank)).items()},
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }
    print(json.dumps(document))


class Stopwatch:
    """Figures by name. ``per_entry``: bytes that a pass moves for each."""

    def __init__(self, n_entries: int) -> None:
        self.n_entries = n_entries
        self.found: dict[str, Pass] = {}

    def __call__(self, name: str, work: Callable[[], Any], per_entry: int = 0, runs: int = RUNS) -> Any:
        cpu, wall, result = _least(work, runs)
        self.found[name] = Pass(cpu, wall, per_entry * self.n_entries)
        return result


def passes(sales: SalesMatrix, rank: int) -> dict[str, Pass]:
    """Every step on these sales, then the two whole fits."""
    timed = Stopwatch(sales.n_observed)
    timed("choice of the rank", partial(_chosen_rank, sales), runs=2)
    _steps(sales, rank, timed)
    for name, mode in (("whole fit, fast", "fast"), ("whole fit, default", "large")):
        timed(name, partial(_whole_fit, mode, sales), runs=1)
    return timed.found


def _chosen_rank(sales: SalesMatrix) -> int:
    """As `large` chooses it, on a part of the rows where there are many."""
    ranks = large_ranks(sales.shape, sales.n_observed, EntrywiseDetector().max_rank)
    n_rows = sketch_rows(sales.shape, sales.n_observed, ranks, SPENDING["large"].rank_entries)
    rng, family = np.random.default_rng(0), exposure_family("exponential")
    return sketch(*spread_part(sales, None, n_rows), family, ranks, rng, available_threads()).rank


def _whole_fit(mode: str, sales: SalesMatrix) -> int:
    return EntrywiseDetector(mode).fit(sales).rank_  # the rest is let go at once


def _steps(sales: SalesMatrix, rank: int, timed: Stopwatch) -> None:
    n, threads = sales.n_observed, available_threads()
    family = exposure_family("exponential")

    # Bytes per entry: cols and counts 8, f 4, means, cavity and cv2 4 each.
    both = timed("entries by column", lambda: BothWays.of(sales, threads=threads), 8 + 8)
    squares = Variance(constant=both.mean)
    state = FactorState.start(both, *first_guess(both, rank, np.random.default_rng(0)))
    state.first_sweep(both, squares, threads)
    timed("least-squares sweep", lambda: state.sweep(both, squares, threads), 2 * 8)
    timed("Poisson-weighted sweep", lambda: state.sweep(both, Variance(), threads), 2 * 8)
    means, cavity, cv2 = (np.empty(n, dtype=np.float32) for _ in range(3))
    timed(
        "leave-one-out prediction",
        lambda: state.predict(both, Variance(), threads, means, cavity, cv2),
        8 + 12,
    )
    grid = Grid.over(cavity, cv2)
    bins = timed("bins", lambda: bin_counts(sales.counts, cavity, cv2, grid, threads), 12)
    ratio = calibration(bins)
    fitted = timed("theta and noise", lambda: fit_noise(bins, ratio, family, "auto", None))
    theta = fitted.parameters
    timed("intervals of theta", lambda: binned_theta(bins, ratio, family, fitted, 0.0))
    space, healthy = np.empty_like(cavity), np.empty_like(cavity)
    timed("calibration", lambda: grid.scaled(ratio, cavity, cv2, threads, space), 12)
    timed(
        "posterior",
        lambda: healthy_probabilities(sales.counts, cavity, cv2, family, theta, threads, healthy),
        16,
    )
    weighed = timed("f by column", lambda: both.with_healthy(healthy, threads, space), 4 + 4 + 4)
    timed(
        "mixture-weighted sweep",
        lambda: state.sweep(weighed, variance_of(family, theta), threads),
        2 * 12,
    )


def stream_bandwidth() -> float:
    """GB per CPU second of a = b + c: the most that any pass can reach, right now."""
    a, b, c = (np.ones(STREAM, dtype=np.float32) for _ in range(3))

    def work() -> None:
        in_entry_blocks(lambda first, end: _add(first, end, a, b, c), STREAM, available_threads())

    work()
    return 3 * a.nbytes / _least(work)[0] / 1e9


@njit_fast
def _add(first: int, end: int, a: Float32, b: Float32, c: Float32) -> None:
    for e in range(first, end):
        a[e] = b[e] + c[e]


def _least(work: Callable[[], Any], runs: int = RUNS) -> tuple[float, float, Any]:
    """The least CPU and wall seconds: in the first of several runs the machine finds the memory."""
    cpus, walls, result = [], [], None
    other = np.zeros(CACHES, dtype=np.uint8)
    for _ in range(runs):
        other += 1
        cpu, wall = time.process_time(), time.perf_counter()
        result = work()
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
    return min(cpus), min(walls), result


def _first_rows(sales: SalesMatrix) -> SalesMatrix:
    keep = np.zeros(sales.n_observed, dtype=bool)
    keep[: min(sales.n_observed, 300_000)] = True
    return sales.select(keep)


if __name__ == "__main__":
    main(*sys.argv[1:])
