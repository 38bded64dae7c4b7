"""Compiled passes over blocks of lines or entries, side by side on threads.

Each block writes its own part of the output, so the result does not depend on how many threads there
are. Threads are Python's: the kernels release the interpreter's lock, several fits may run at once (which
numba's own thread pools do not all allow), and the kernels stay plain functions of a range that a worker
on another machine can call for its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np

from ew_pipeline.core.arrays import Int64

BLOCKS_PER_THREAD = 4  # so that a slow block does not leave the other threads waiting
WORTH_A_THREAD = 100_000  # entries below which waking a thread costs more than it saves
LINES_WORTH_A_THREAD = 5_000  # lines whose small systems are to be solved

Block = Callable[[int, int], object]
R = TypeVar("R")


def in_line_blocks(work: Block, indptr: Int64, threads: int) -> None:
    """``work(first, end)`` for blocks of lines that hold about equally many entries."""
    n_entries = int(indptr[-1])
    threads = min(threads, max(1, n_entries // WORTH_A_THREAD))
    shares = np.linspace(0, n_entries, threads * BLOCKS_PER_THREAD + 1)
    cuts = np.searchsorted(indptr, shares)
    cuts[0], cuts[-1] = 0, len(indptr) - 1
    run_blocks(work, cuts, threads)


def in_entry_blocks(work: Block, n_entries: int, threads: int) -> None:
    """``work(first, end)`` for equal blocks of entries."""
    threads = min(threads, max(1, n_entries // WORTH_A_THREAD))
    run_blocks(work, np.linspace(0, n_entries, threads * BLOCKS_PER_THREAD + 1).astype(np.int64), threads)


def entry_shares(work: Block, n_entries: int, threads: int) -> None:
    """``work(first, end)`` once per thread, for work that needs a table of its own."""
    threads = min(threads, max(1, n_entries // WORTH_A_THREAD))
    run_blocks(work, np.linspace(0, n_entries, threads + 1).astype(np.int64), threads)


def run_blocks(work: Block, cuts: Int64, threads: int) -> None:
    """``work(first, end)`` between neighbouring cuts."""
    if threads == 1:
        for first, end in pairwise(cuts.tolist()):
            work(first, end)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, cuts[:-1].tolist(), cuts[1:].tolist()))


def in_lines(work: Block, n_lines: int, threads: int) -> None:
    """``work(first, end)`` for equal blocks of lines that each take some time."""
    threads = min(threads, max(1, n_lines // LINES_WORTH_A_THREAD))
    run_blocks(work, np.linspace(0, n_lines, threads + 1).astype(np.int64), threads)


def side_by_side(works: Sequence[Callable[[], R]], threads: int) -> list[R]:
    """What each of ``works`` returns, in their order."""
    with ThreadPoolExecutor(max(1, min(threads, len(works)))) as pool:
        return [one.result() for one in [pool.submit(work) for work in works]]
