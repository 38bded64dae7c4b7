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

from ew_pipeline.cluster.connection import (
    ClusterError,
    check_workers,
    connected,
    end_of_worker,
    ended,
    fingerprint,
    forgotten,
    gathered,
    losses_said,
    refuse_other_worker,
    some_workers,
)
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.results import WeekRequest
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.journal import SOURCES
from ew_pipeline.weekly.outcome import WeekDone, run_one_week

if TYPE_CHECKING:
    from distributed import Client, Future

TRIES = 2  # of a week that failed for a reason that may be the worker's
LEAVE_SECONDS = 10.0  # for the workers to end what they keep for us: they do so unwatched too


def run_weeks(
    address: str,
    request: WeekRequest,
    weeks: Sequence[Week],
    settings: Settings,
    note: Callable[[WeekDone], None],
) -> None:
    """Run every week on the cluster at ``address``; ``note`` is told of each as it ends.

    A week whose worker is lost is begun again on another, as Dask does it; so is, once, a week that failed
    for a reason that may be its worker's (a full disk, no memory). A worker that joined with other code
    refuses its first week, which is as if it had not been sent, and gets no other. The ledger's lock of the
    week keeps two workers from publishing it twice, should a lost worker be alive after all.
    """
    own = settings.model_copy(update={"home": settings.root, "dask_address": None})
    wanted = with_absolute_paths(request)
    given = {name: spec for name in SOURCES if (spec := getattr(wanted, name)) is not None}
    with connected(address) as client:
        check_workers(client, own, given)
        queue = _Queue(client, wanted, own, deque(map(_Task, weeks)))
        try:
            while queue.waiting or queue.running:
                with losses_said(client, address, left=queue.left):
                    for done in queue.step():
                        note(done)
        finally:
            if forgotten(client, queue.running):
                with suppress(OSError):
                    client.run(end_tracking, on_error="return", callback_timeout=LEAVE_SECONDS)


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
    only: frozenset[str] = frozenset()  # where it may run; empty: anywhere


@dataclass(frozen=True)
class Refused:
    """A week that a worker has not begun, and why."""

    week: Week
    words: str


@dataclass
class _Queue:
    """Weeks that wait, and weeks that run: no more than there are workers, so that each has one of its own.

    Which worker takes a week is left to the scheduler. (A task that is bound to a worker, even loosely, was
    seen to wait for ever when that worker was lost.)
    """

    client: Client
    request: WeekRequest
    settings: Settings
    waiting: deque[_Task]
    running: dict[Future, _Task] = field(default_factory=dict)
    refusing: dict[str, str] = field(default_factory=dict)  # workers that are sent nothing more, and why

    def step(self) -> Iterator[WeekDone]:
        """Give every worker something to do, and say what has ended."""
        self.hand_out()
        for future in ended(self.client, list(self.running)):
            if (done := self._outcome(future)) is not None:
                yield done

    def left(self) -> str:
        return f", with {len(self.waiting) + len(self.running)} weeks to do"

    def hand_out(self) -> None:
        workers = self._workers()
        for future, task in list(self.running.items()):
            if task.only and not task.only.intersection(workers):
                del self.running[future]
                future.cancel()
                self.waiting.appendleft(task)
        for _ in range(min(len(workers) - len(self.running), len(self.waiting))):
            task = self.waiting.popleft()
            others = workers.difference(task.tried) or workers
            self._send(replace(task, only=others if task.tried or self.refusing else frozenset()))

    def _workers(self) -> frozenset[str]:
        """Those that are there and have not refused. One that comes back may have been put right."""
        there = frozenset(some_workers(self.client, self.refusing))
        self.refusing = {worker: words for worker, words in self.refusing.items() if worker in there}
        return there.difference(self.refusing)

    def _outcome(self, future: Future) -> WeekDone | None:
        """How the week ended; None when it is to be done by another worker."""
        task = self.running[future]
        try:
            answer: tuple[str, WeekDone | Refused] = gathered(self.client, future)
        except Exception as error:
            if future.status != "error":  # it is not the week that failed
                raise
            del self.running[future]
            return WeekDone(task.week, "failed", None, _failure(error), 0.0)
        del self.running[future]
        worker, done = answer
        if isinstance(done, Refused):
            self.refusing = {**self.refusing, worker: done.words}
            self.waiting.appendleft(task)
            return None
        if not done.maybe_the_machine:
            return done
        tried = (*task.tried, worker)
        if len(tried) < TRIES and self._workers().difference(tried):
            self.waiting.appendleft(_Task(task.week, tried))
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


def run_on_worker(request: WeekRequest, settings: Settings, wanted: str) -> tuple[str, WeekDone | Refused]:
    """On a worker, which may have several threads: one week at a time, with all of them."""
    from distributed import get_worker

    worker = get_worker()
    try:
        refuse_other_worker(wanted)
    except ClusterError as error:  # the others would do it
        return worker.address, Refused(request.week, error.message)
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
