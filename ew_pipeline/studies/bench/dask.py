"""`ew bench-dask`: what a cluster adds to a sweep by row blocks, on worker processes of this machine.

Wall time on a busy machine says little, so work is CPU time, of all processes together; the wall time of an
empty step is what Dask alone takes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.table import Table as RichTable

from ew_pipeline.cluster.blocks import ClusterBlocks
from ew_pipeline.cluster.connection import connected, need_dask
from ew_pipeline.cluster.file_rows import Reading
from ew_pipeline.cluster.partitions import census, load_blocks, read_block, take_census
from ew_pipeline.core.console import emit_json, messages, results, step
from ew_pipeline.method.large.als import Variance
from ew_pipeline.method.large.blocks import BlockSweeps
from ew_pipeline.method.large.row_blocks import Blocks, LocalBlocks, RowBlock, array_bytes, column_totals

if TYPE_CHECKING:
    from distributed import Client

WEEK = "2026-W30"
EMPTY_STEPS = 20


@dataclass(frozen=True)
class Measured:
    """Per sweep, unless said otherwise."""

    stores: int
    skus: int
    observed: int
    rank: int
    workers: int
    blocks: int
    sweeps: int
    local_cpu_seconds: float  # the same blocks in one process
    local_ns_per_entry: float
    cluster_cpu_seconds: float  # client, scheduler and workers together
    cluster_wall_seconds: float
    empty_step_seconds: float  # wall, over all blocks: what Dask alone takes
    sent_bytes: float  # arrays from the client to the cluster, as we count them
    received_bytes: float  # by the client, likewise
    sent_on_wire_bytes: float  # by the client, as the connection counts them: tasks too
    workers_on_wire_bytes: float  # out of the workers, likewise: to each other, and to the client
    resident_bytes_per_entry: float  # of a block: entries by row and by column
    load_ns_per_entry: float  # CPU, once: ids, then entries, imports included


def bench_dask(
    observed: Annotated[int, typer.Option(min=10_000, help="Observed pairs.")] = 1_000_000,
    stores: Annotated[int, typer.Option(min=8)] = 2_000,
    skus: Annotated[int, typer.Option(min=8)] = 2_000,
    rank: Annotated[int, typer.Option(min=1)] = 5,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    sweeps: Annotated[int, typer.Option(min=1)] = 10,
    files: Annotated[int, typer.Option(min=1, help="Parquet files, one block each.")] = 4,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Sweeps of the fit by row blocks on a real scheduler and worker processes on loopback: CPU against the
    same blocks in one process, Dask's own time per step, and bytes moved."""
    need_dask()
    from distributed import LocalCluster

    with tempfile.TemporaryDirectory(prefix="ew-bench-") as folder:
        with step("write partitions"):
            paths = write_partitions(Path(folder), observed, stores, skus, files, seed)
        with (
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            ) as cluster,
            step("sweeps"),
        ):
            found = measure(cluster.scheduler_address, Path(folder), paths, rank, workers, sweeps, seed)
    if json:
        emit_json(found)
        return
    table = RichTable("per sweep", "", title=f"{found.observed:,} pairs, rank {rank}, {found.blocks} blocks")
    for name, value in vars(found).items():
        table.add_row(name.replace("_", " "), f"{value:,.6g}" if isinstance(value, float) else f"{value:,}")
    results().print(table)
    messages().print("CPU of all processes; the machine's other work does not count.", markup=False)


def measure(
    address: str, folder: Path, paths: list[Path], rank: int, workers: int, sweeps: int, seed: int
) -> Measured:
    """One warm-up sweep (compilation), then ``sweeps`` on the cluster and in this process."""
    with connected(address) as client:
        client.wait_for_workers(workers)
        cpu_before = _cpu(client)
        on_cluster = load_blocks(client, take_census(client, folder, Reading(WEEK)), block_entries=1)
        _empty(on_cluster)
        load_cpu = _cpu(client) - cpu_before
        state = _started(on_cluster, rank, seed)
        began = time.perf_counter()
        for _ in range(EMPTY_STEPS):
            _empty(on_cluster)
        empty = (time.perf_counter() - began) / EMPTY_STEPS
        before, told, moved = vars(on_cluster.traffic).copy(), _told(client), _out_of_workers(client)
        cpu, wall = _spent(lambda: _sweeps(state, sweeps), lambda: _cpu(client))
        sent, received = (
            (getattr(on_cluster.traffic, name) - before[name]) / sweeps for name in ("sent", "received")
        )
        told, moved = (_told(client) - told) / sweeps, (_out_of_workers(client) - moved) / sweeps
        resident = client.gather(client.map(_resident, list(on_cluster.blocks)))
        n_observed, shape = on_cluster.n_observed, on_cluster.shape
    here = _local(paths, on_cluster)
    local_state = _started(here, rank, seed)
    local_cpu, _ = _spent(lambda: _sweeps(local_state, sweeps), time.process_time)
    return Measured(
        stores=shape[0],
        skus=shape[1],
        observed=n_observed,
        rank=rank,
        workers=workers,
        blocks=len(on_cluster.blocks),
        sweeps=sweeps,
        local_cpu_seconds=local_cpu / sweeps,
        local_ns_per_entry=local_cpu / sweeps / n_observed * 1e9,
        cluster_cpu_seconds=cpu / sweeps,
        cluster_wall_seconds=wall / sweeps,
        empty_step_seconds=empty,
        sent_bytes=sent,
        received_bytes=received,
        sent_on_wire_bytes=told,
        workers_on_wire_bytes=moved,
        resident_bytes_per_entry=sum(resident) / n_observed,
        load_ns_per_entry=load_cpu / n_observed * 1e9,
    )


def write_partitions(
    folder: Path, observed: int, stores: int, skus: int, files: int, seed: int
) -> list[Path]:
    """A week of Poisson sales of low rank on pairs drawn at random, by store range."""
    rng = np.random.default_rng(seed)
    store_factor, sku_factor = rng.gamma(2.0, 0.5, (stores, 3)), rng.gamma(2.0, 0.5, (skus, 3)) * 3.0
    bounds = np.linspace(0, stores, files + 1).astype(int)
    paths = []
    for first, end in pairwise(bounds.tolist()):
        size = (end - first) * skus
        chosen = np.flatnonzero(rng.random(size) < observed / (stores * skus))
        i, j = first + chosen // skus, chosen % skus
        frame = pd.DataFrame(
            {
                "store_id": np.char.mod("S%06d", i),
                "sku_id": np.char.mod("K%06d", j),
                "week": WEEK,
                "units": rng.poisson((store_factor[i] * sku_factor[j]).sum(axis=1)),
            }
        )
        paths.append(folder / f"stores-{first:06d}.parquet")
        frame.to_parquet(paths[-1], index=False)
    return paths


def _started(blocks: Blocks, rank: int, seed: int) -> BlockSweeps:
    totals = blocks.total(column_totals, [])
    right = np.random.default_rng(seed).gamma(2.0, 0.5, (blocks.shape[1], rank)).astype(np.float32)
    state = BlockSweeps(blocks, totals, right, threads=1)
    _sweeps(state, 1)
    return state


def _sweeps(state: BlockSweeps, sweeps: int) -> None:
    for _ in range(sweeps):
        state.first_sweep(Variance())


def _local(paths: list[Path], like: ClusterBlocks) -> LocalBlocks:
    blocks, first_entry = [], 0
    found = [census(str(path), Reading(WEEK)) for path in paths]
    skus = np.unique(np.concatenate([one.skus.to_numpy(zero_copy_only=False) for one in found]).astype(str))
    for k, one in enumerate(found):
        blocks.append(read_block(one.files, Reading(WEEK), skus, int(like.row_bounds[k]), first_entry))
        first_entry += one.rows
    return LocalBlocks(tuple(blocks), like.shape, like.row_bounds, like.n_observed)


def _spent(work: Callable[[], None], cpu: Callable[[], float]) -> tuple[float, float]:
    cpu_before, wall_before = cpu(), time.perf_counter()
    work()
    return cpu() - cpu_before, time.perf_counter() - wall_before


def _nothing(block: RowBlock) -> int:
    return 0


def _empty(blocks: Blocks) -> None:
    blocks.total(_nothing, [])


def _cpu(client: Client) -> float:
    """Of the client, which here has the scheduler beside it, and of all workers."""
    workers: dict[str, float] = client.run(time.process_time)
    return time.process_time() + sum(workers.values())


def _told(client: Client) -> float:
    """Bytes that the client has written to the scheduler."""
    return float(client.scheduler_comm.byte_count)


def _out_of_workers(client: Client) -> float:
    """Bytes that the workers have written to whoever asked them for results: each other, and the scheduler,
    which hands on to the client. Not Dask's total, which goes by what the objects say of their size."""

    def sent(dask_worker: Any) -> int:
        return sum(int(transfer["compressed"]) for transfer in dask_worker.transfer_outgoing_log)

    return float(sum(client.run(sent).values()))


def _resident(block: RowBlock) -> int:
    return array_bytes(block.both)
