"""The weeks of a backfill on the workers of a cluster, one at a time on each."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ew_pipeline.distribute.cluster import (
    ClusterError,
    check_workers,
    connected,
    end_of_worker,
    fingerprint,
    losses_said,
    refuse_other_worker,
    some_workers,
)
from ew_pipeline.distribute.waiting import ended, forgotten, gathered
from ew_pipeline.orchestrate.steps import Steps
from ew_pipeline.settings import Settings
from ew_pipeline.track.weekly import Tracking
from ew_pipeline.week import Week
from ew_pipeline.weekly.backfill_journal import SOURCES
from ew_pipeline.weekly.outcome import WeekDone, run_one_week
from ew_pipeline.weekly.records import WeekRequest

if TYPE_CHECKING:
    from distributed import Client, Future

TRIES = 2  # of a week that failed for a reason that may be the worker's


def run_weeks(
    address: str,
    request: WeekRequest,
    weeks: Sequence[Week],
    settings: Settings,
    note: Callable[[WeekDone], None],
) -> None:
    """Run every week on the cluster at ``address``; ``note`` is told of each as it ends.

    A week whose worker is lost is begun again on another, as Dask does it; so is, once, a week that failed
    for a reason that may be its worker's (a full disk, no memory). The ledger's lock of the week keeps two
    workers from publishing it twice, should a lost worker be alive after all.
    """
    own = settings.model_copy(update={"home": settings.root, "dask_address": None})
    wanted = with_absolute_paths(request)
    given = {name: spec for name in SOURCES if (spec := getattr(wanted, name)) is not None}
    with connected(address) as client:
        check_workers(client, own, given)
        queue = _Queue(client, wanted, own, deque(weeks))
        try:
            while queue.waiting or queue.running:
                with losses_said(client, address, left=queue.left):
                    for done in queue.step():
                        note(done)
        finally:
            if forgotten(client, queue.running):
                with suppress(OSError):
                    client.run(end_tracking, on_error="return")


def with_absolute_paths(request: WeekRequest) -> WeekRequest:
    """The same request for a process that has another current folder."""
    files: dict[str, Any] = {
        name: str(Path(spec).expanduser().resolve())
        for name in SOURCES
        if (spec := getattr(request, name)) is not None and "://" not in spec
    }
    return replace(request, **files)


@dataclass(frozen=True)
class _Task:
    week: Week
    tried: tuple[str, ...] = ()  # workers on which it failed before
    only: frozenset[str] = frozenset()  # the others, then; empty: anywhere


@dataclass
class _Queue:
    """Weeks that wait, and weeks that run: no more than there are workers, so that each has one of its own.

    Which worker takes a week is left to the scheduler. (A task that is bound to a worker, even loosely, was
    seen to wait for ever when that worker was lost.)
    """

    client: Client
    request: WeekRequest
    settings: Settings
    waiting: deque[Week]
    running: dict[Future, _Task] = field(default_factory=dict)

    def step(self) -> Iterator[WeekDone]:
        """Give every worker something to do, and say what has ended."""
        self.hand_out()
        for future in ended(self.client, list(self.running)):
            if (done := self._outcome(future)) is not None:
                yield done

    def left(self) -> str:
        return f", with {len(self.waiting) + len(self.running)} weeks to do"

    def hand_out(self) -> None:
        workers = some_workers(self.client)
        for _ in range(min(len(workers) - len(self.running), len(self.waiting))):
            self._send(_Task(self.waiting.popleft()))
        for future, task in list(self.running.items()):
            if task.only and not task.only.intersection(workers):
                del self.running[future]
                future.cancel()
                self._send(_Task(task.week, task.tried))

    def _outcome(self, future: Future) -> WeekDone | None:
        """How the week ended; None when it goes to another worker."""
        task = self.running[future]
        try:
            answer: tuple[str, WeekDone] = gathered(self.client, future)
        except Exception as error:
            if future.status != "error":  # it is not the week that failed
                raise
            del self.running[future]
            return WeekDone(task.week, "failed", None, _failure(error), 0.0)
        del self.running[future]
        worker, done = answer
        if not done.maybe_the_machine:
            return done
        tried = (*task.tried, worker)
        others = frozenset(some_workers(self.client)).difference(tried)
        if len(tried) < TRIES and others:
            self._send(_Task(task.week, tried, others))
            return None
        return replace(done, words=f"{done.words} (on {' and on '.join(tried)})")

    def _send(self, task: _Task) -> None:
        future = self.client.submit(
            run_on_worker,
            replace(self.request, week=task.week),
            self.settings,
            fingerprint(),
            key=f"{task.week}-{secrets.token_hex(4)}",
            workers=sorted(task.only) or None,
        )
        self.running[future] = task


def _failure(error: Exception) -> str:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return end_of_worker(error)
    return f"{type(error).__name__}: {error}"


_one_at_a_time = threading.Lock()
_tracking: Tracking | None = None


def run_on_worker(request: WeekRequest, settings: Settings, wanted: str) -> tuple[str, WeekDone]:
    """On a worker, which may have several threads: one week at a time, with all of them."""
    from distributed import get_worker

    worker = get_worker()
    try:
        refuse_other_worker(wanted)
    except ClusterError as error:  # the others would do it
        words = error.message
        return worker.address, WeekDone(request.week, "failed", None, words, 0.0, maybe_the_machine=True)
    own = settings.model_copy(update={"threads": worker.state.nthreads})
    with _one_at_a_time:
        return worker.address, run_one_week(request, own, Steps(quiet=True), _tracking_for(settings))


def _tracking_for(settings: Settings) -> Tracking:
    """MLflow's process beside this worker, kept from week to week."""
    global _tracking
    if _tracking is None or _tracking.settings != settings:
        end_tracking()
        _tracking = Tracking(settings)
    return _tracking


def end_tracking() -> None:
    """The worker lives on; what it started for us does not."""
    global _tracking
    if _tracking is not None:
        _tracking.close()
        _tracking = None
