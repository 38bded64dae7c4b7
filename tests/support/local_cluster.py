"""A real scheduler and real worker processes on loopback, which tests may kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

import dask
from distributed import Client, LocalCluster, Scheduler, Worker
from support.clean_processes import clean


@contextmanager
def local_cluster(workers: int) -> Iterator[LocalCluster]:
    """Each worker, also one that is started again, is a fork of the clean server."""
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": clean.get_start_method()}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
    ):
        yield cluster


def whole(cluster: LocalCluster, workers: int) -> str:
    """The address, once so many workers are there. Those that were killed are started again by their nannies,
    most of the time; on a machine that is slow enough a nanny gives up."""
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        try:
            client.wait_for_workers(workers, timeout=30)
        except TimeoutError:
            cluster.scale(0)
            cluster.scale(workers)
            client.wait_for_workers(workers, timeout=180)
    return str(cluster.scheduler_address)


@contextmanager
def one_killed(address: str, when: Callable[[Client], str | None]) -> Iterator[list[str]]:
    """Beside the block: as soon as ``when`` names a worker, kill -9 it. Yields whom it was."""
    killed: list[str] = []
    over = threading.Event()

    def watch() -> None:
        with Client(address, set_as_default=False) as client:
            pids = client.run(os.getpid)
            while not over.is_set():
                victim = when(client)
                if victim in pids:
                    os.kill(pids[victim], signal.SIGKILL)
                    killed.append(victim)
                    return
                time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Bare:
    """Processes of a cluster without nannies: who is killed stays away."""

    address: str
    scheduler: BaseProcess
    workers: tuple[BaseProcess, ...]

    def kill(self, what: str) -> None:
        """The "workers", or the "scheduler"; "answers" stops the scheduler, whose connections stay."""
        if what == "answers":
            assert self.scheduler.pid
            os.kill(self.scheduler.pid, signal.SIGSTOP)
            return
        for process in self.workers if what == "workers" else (self.scheduler,):
            process.kill()


@contextmanager
def bare_cluster(workers: int, before: Callable[[], None] | None = None) -> Iterator[Bare]:
    """``before``: what the last worker does before it begins."""
    ours, theirs = clean.Pipe()
    scheduler = clean.Process(target=_schedule, args=(theirs,), daemon=True)
    scheduler.start()
    assert ours.poll(60)
    address = ours.recv()
    firsts = [None] * (workers - 1) + [before]
    pool = tuple(clean.Process(target=_work, args=(address, first), daemon=True) for first in firsts)
    for process in pool:
        process.start()
    try:
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
        yield Bare(address, scheduler, pool)
    finally:
        for process in (*pool, scheduler):
            process.kill()
            process.join()


@contextmanager
def joining(address: str, before: Callable[[], None]) -> Iterator[Callable[[], BaseProcess]]:
    """Starts a worker more, and is back once it is there; ``before``: what that does before it begins."""
    pool: list[BaseProcess] = []

    def join() -> BaseProcess:
        with Client(address, set_as_default=False) as client:
            there = len(client.nthreads())
            process = clean.Process(target=_work, args=(address, before), daemon=True)
            process.start()
            pool.append(process)
            client.wait_for_workers(there + 1, timeout=60)
        return process

    try:
        yield join
    finally:
        for process in pool:
            process.kill()
            process.join()


def _schedule(answer: Any) -> None:
    async def run() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            answer.send(scheduler.address)
            await scheduler.finished()

    asyncio.run(run())


def _work(address: str, before: Callable[[], None] | None) -> None:
    if before is not None:
        before()

    async def run() -> None:
        async with Worker(address, nthreads=1, host="127.0.0.1", dashboard=False) as worker:
            await worker.finished()

    asyncio.run(run())


@contextmanager
def lost(cluster: Bare, what: str, prefix: str) -> Iterator[None]:
    """Beside the block: all workers, or the scheduler, killed once a task is at work whose key begins so."""
    over = threading.Event()

    def watch() -> None:
        with Client(cluster.address, set_as_default=False) as client:
            while not over.is_set() and working_on(client, prefix) is None:
                time.sleep(0.005)
        cluster.kill(what)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ends(work: Callable[[], object], seconds: float = 60.0) -> BaseException | None:
    """What the work raises, if anything. That it has not ended after a time many times too long fails."""
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            found.append(error)
        else:
            found.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"still waiting after {seconds:.0f} s"
    return found[0]


def working_on(client: Client, prefix: str) -> str | None:
    """The worker that has a task whose key begins so."""
    for worker, keys in client.processing().items():
        if any(str(key).startswith(prefix) for key in keys):
            return str(worker)
    return None


def without_package() -> None:
    sys.modules["ew_pipeline.cluster.connection"] = None  # type: ignore[assignment]


def for_another_processor() -> None:
    from numba import config

    config.CPU_NAME = "generic"


def with_quick_weeks() -> None:
    """On a worker: weeks are taken or refused as they are, but a week that is taken only takes its time."""
    from ew_pipeline.cluster import weeks
    from ew_pipeline.weekly.outcome import WeekDone

    def run_one_week(request: Any, *_: object) -> WeekDone:
        time.sleep(0.2)
        return WeekDone(request.week, "published", None, "", 0.2)

    weeks.run_one_week = run_one_week  # type: ignore[assignment]
    weeks._tracking_for = lambda _: None  # type: ignore[assignment, return-value]


def dies(*_: object) -> None:
    """A task that takes its worker with it."""
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps(*_: object) -> None:
    """A task that is at work when the cluster is lost."""
    time.sleep(600.0)


def not_here(request: Any, *_: object) -> tuple[str, Any]:
    """A week that fails on every machine for the machine's sake."""
    from distributed import get_worker

    from ew_pipeline.weekly.outcome import WeekDone

    done = WeekDone(request.week, "failed", None, "no space left", 0.1, maybe_the_machine=True)
    return str(get_worker().address), done
