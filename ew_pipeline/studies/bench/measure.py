"""One contender in a process of its own: CPU time, wall time and memory that nobody else can blur.

Run as ``python -m ew_pipeline.studies.bench.measure NAME FOLDER RANK``; prints one JSON line. A small
instance is worked on first, so that compilation is reported apart; the contender's own copy of the data is
made before the clock starts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ew_pipeline.core.errors import FitError
from ew_pipeline.studies.bench.contenders import CONTENDERS, Contender
from ew_pipeline.studies.bench.processes import PeakMemory, cpu_seconds
from ew_pipeline.studies.bench.stored import load
from ew_pipeline.studies.ensemble import SparseSettings, draw_sparse

SMALL = SparseSettings(n=900, m=800, observed=250_000, rank=3)
# Every contender brings threads of its own; BLAS adding some under each of them only slows all down.
ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def child(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON document that a module of ours prints as its last line, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ONE_BLAS_THREAD},
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise FitError(
            f"{arguments[0]} failed: {said[-1] if said else f'exit code {done.returncode}'}",
            "leave the peers out with --no-peers, or take a smaller --observed.",
        )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(contender: Contender, folder: Path, rank: int) -> dict[str, Any]:
    """The figures of one run in a child process."""
    return child("ew_pipeline.studies.bench.measure", contender.name, str(folder), str(rank))


def medians(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The middle of each time and size, and those of all turns; the rest is the same in each."""
    middle = {
        key: statistics.median(turn[key] for turn in turns) for key in turns[0] if key.endswith(("_s", "_gb"))
    }
    return {**turns[-1], **middle, "turns": [{key: turn[key] for key in middle} for turn in turns]}


def main(name: str, folder: str, rank: str) -> None:
    """The child's part."""
    contender = next(c for c in CONTENDERS if c.name == name)
    started = time.process_time()
    contender.prepare(draw_sparse(SMALL, np.random.default_rng(0)), 3)()
    warm_up = time.process_time() - started
    work = contender.prepare(load(Path(folder)), int(rank))
    with PeakMemory(os.getpid() if contender.program else None) as memory:
        cpu, wall = cpu_seconds(), time.perf_counter()
        look = work()
        cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    times = {"cpu_s": cpu, "wall_s": wall, "extra_gb": memory.extra / 1e9, "warm_up_cpu_s": warm_up}
    print(json.dumps({**times, **asdict(look())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
