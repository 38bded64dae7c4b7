"""One contender in a process of its own: CPU time, wall time and memory that nobody else can blur.

Run as ``python -m ew_pipeline.bench.measure NAME N M OBSERVED RANK SEED``; prints one JSON line. The data are
drawn anew from the seed, and a small instance is worked on first, so that compilation is reported apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ew_pipeline.bench.contenders import CONTENDERS, Contender
from ew_pipeline.data.synthetic_sparse import SparseSettings, draw_sparse
from ew_pipeline.errors import FitError

SMALL = SparseSettings(n=900, m=800, observed=250_000, rank=3)
EVERY = 0.01  # seconds between two looks at the memory


@dataclass(frozen=True)
class Size:
    """The data of a comparison."""

    rows: int
    cols: int
    observed: int
    rank: int
    seed: int

    @property
    def settings(self) -> SparseSettings:
        return SparseSettings(n=self.rows, m=self.cols, observed=self.observed, rank=self.rank)


def measure(contender: Contender, size: Size) -> dict[str, Any]:
    """The figures of one run in a child process."""
    arguments = [contender.name, *map(str, (size.rows, size.cols, size.observed, size.rank, size.seed))]
    child = subprocess.run(
        [sys.executable, "-m", "ew_pipeline.bench.measure", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        raise FitError(
            f"{contender.name} failed at {size.observed:,} pairs: {child.stderr.strip().splitlines()[-1:]}",
            "leave the peers out with --no-peers, or take a smaller --observed.",
        )
    figures: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return figures


def main(name: str, rows: str, cols: str, observed: str, rank: str, seed: str) -> None:
    """The child's part."""
    contender = next(c for c in CONTENDERS if c.name == name)
    started = time.process_time()
    contender.work(draw_sparse(SMALL, np.random.default_rng(0)), 3)
    warm_up = time.process_time() - started
    size = Size(int(rows), int(cols), int(observed), int(rank), int(seed))
    instance = draw_sparse(size.settings, np.random.default_rng(size.seed))
    with _PeakMemory() as memory:
        cpu, wall = time.process_time(), time.perf_counter()
        look = contender.work(instance, size.rank)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    times = {"cpu_s": cpu, "wall_s": wall, "extra_gb": memory.extra / 1e9, "warm_up_cpu_s": warm_up}
    print(json.dumps({**times, **asdict(look())}))


class _PeakMemory:
    """The largest resident memory while it is open, above what it was at first."""

    def __enter__(self) -> _PeakMemory:
        self.before = self.highest = _resident()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._closed.wait(EVERY):
            self.highest = max(self.highest, _resident())

    @property
    def extra(self) -> int:
        return self.highest - self.before


def _resident() -> int:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0  # not Linux: the table then shows no memory
    return int(statm.read_text().split()[1]) * 4096


if __name__ == "__main__":
    main(*sys.argv[1:])
