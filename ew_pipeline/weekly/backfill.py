"""Many weeks, one after the other or side by side: resumable, and one bad week does not stop the rest.

Everything that takes time to start (MLflow's process, Great Expectations, compiled kernels) is started once
for all weeks, or once per process with ``parallel``, or once per worker of a cluster.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ew_pipeline.core.child import end_with_parent
from ew_pipeline.core.console import ExitCode, messages
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.results import WeekRequest
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.journal import Journal
from ew_pipeline.weekly.outcome import WeekDone, run_one_week

MakeSteps = Callable[[Week], Steps]
OnWeek = Callable[[WeekDone], None]
ClusterWeeks = Callable[[str, WeekRequest, Sequence[Week], Settings, OnWeek], None]


@dataclass(frozen=True)
class Backfill:
    """All weeks, in order."""

    weeks: tuple[WeekDone, ...]

    @property
    def bad(self) -> tuple[WeekDone, ...]:
        return tuple(done for done in self.weeks if not done.good)

    @property
    def exit_code(self) -> ExitCode:
        """Of the worst week: failed, then rejected, then held back."""
        ended = {done.status for done in self.weeks}
        if "failed" in ended:
            return ExitCode.FAILED
        if "rejected" in ended:
            return ExitCode.DATA_REJECTED
        return ExitCode.HELD_BACK if "held" in ended else ExitCode.DONE

    @property
    def timings(self) -> dict[str, float]:
        """Seconds by step, over all weeks."""
        total: dict[str, float] = {}
        for done in self.weeks:
            for name, seconds in done.timings.items():
                total[name] = total.get(name, 0.0) + seconds
        return total


def weeks_between(first: Week, last: Week) -> list[Week]:
    weeks = first.through(last)
    if not weeks:
        raise UsageError(f"{first} is after {last}.", "give the earlier week first: --from W --to W.")
    return weeks


def backfill_weeks(
    request: WeekRequest,
    weeks: Sequence[Week],
    settings: Settings,
    *,
    parallel: int = 1,
    recheck: bool = False,
    tracking: Tracking | None = None,
    make_steps: MakeSteps = lambda week: Steps(quiet=True),
    on_done: Callable[[WeekDone], None] = lambda done: None,
    cluster_weeks: ClusterWeeks | None = None,
) -> Backfill:
    """Run every week with the sources and the configuration of ``request``.

    In order by default: the gate then compares each week with the one before it, as it would have then. With
    ``parallel`` processes it compares with what is published at that moment. ``recheck`` reads also the weeks
    that the journal knows to be done. ``tracking``: one that is running already; not used with ``parallel``.
    Where the settings name a Dask scheduler, ``cluster_weeks`` runs the weeks side by side on its workers
    (``cluster.weeks``).
    """
    if parallel > 1 and settings.dask_address is not None:
        raise UsageError(
            f"weeks are to run in {parallel} processes here and on the cluster at {settings.dask_address}.",
            "choose one: --parallel, or --dask (EW_DASK_ADDRESS).",
        )
    journal = Journal(settings)
    done: dict[Week, WeekDone] = {}

    def note(one: WeekDone) -> None:
        done[one.week] = one
        if one.run_id is not None and one.status in ("published", "unchanged", "held") and not one.skipped:
            journal.add(replace(request, week=one.week), one.status, one.run_id)
        on_done(one)

    todo = list(weeks)
    if not recheck:
        with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
            for known in _known(request, weeks, journal, ledger):
                note(known)
        todo = [week for week in weeks if week not in done]
    if settings.dask_address is not None and todo:
        if cluster_weeks is None:
            raise UsageError(
                f"a cluster is named ({settings.dask_address}), and nothing that runs weeks on it was given.",
                "use `ew backfill --dask`, or pass ew_pipeline.cluster.weeks.run_weeks.",
            )
        cluster_weeks(settings.dask_address, request, todo, settings, note)
    elif parallel > 1 and len(todo) > 1:
        _run_parallel(request, todo, settings, parallel, note)
    elif todo:
        with nullcontext(tracking) if tracking is not None else Tracking(settings) as running:
            for week in todo:
                note(run_one_week(replace(request, week=week), settings, make_steps(week), running))
    return Backfill(tuple(done[week] for week in weeks))


def _known(
    request: WeekRequest, weeks: Iterable[Week], journal: Journal, ledger: Ledger
) -> Iterator[WeekDone]:
    for week in weeks:
        before = journal.find(replace(request, week=week), ledger)
        if before is not None:
            status = "held" if before.status == "held" else "unchanged"
            words = "held back before, and nothing has changed" if status == "held" else "nothing has changed"
            yield WeekDone(week, status, before.run_id, words, 0.0, skipped=True)


def _run_parallel(
    request: WeekRequest,
    todo: Sequence[Week],
    settings: Settings,
    processes: int,
    note: Callable[[WeekDone], None],
) -> None:
    own = settings.model_copy(update={"threads": max(1, settings.threads // processes)})
    spawn = multiprocessing.get_context("spawn")  # threads of this process must not be copied half-way
    with ProcessPoolExecutor(min(processes, len(todo)), spawn, _begin_worker, (own,)) as pool:
        # The first one alone: fresh databases are made by one process.
        note(_result(pool.submit(_in_worker, replace(request, week=todo[0]), own), todo[0]))
        waiting = {pool.submit(_in_worker, replace(request, week=week), own): week for week in todo[1:]}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    note(_result(future, waiting.pop(future)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _result(future: Future[WeekDone], week: Week) -> WeekDone:
    try:
        return future.result()
    except Exception as error:  # the process itself was ended
        return WeekDone(week, "failed", None, f"{type(error).__name__}: {error}", 0.0)


_tracking: Tracking | None = None


def _begin_worker(settings: Settings) -> None:
    global _tracking
    end_with_parent()  # a pool's workers would wait for work for ever
    _tracking = Tracking(settings)


def _in_worker(request: WeekRequest, settings: Settings) -> WeekDone:
    tracking = _tracking if _tracking is not None else Tracking(settings)
    return run_one_week(request, settings, Steps(quiet=True), tracking)


OnDone = Callable[[WeekDone], None]


@contextmanager
def progress(total: int) -> Iterator[OnDone]:
    """A bar with the time left on a terminal, and a line per week anywhere."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages(), transient=True) as bar:
        task = bar.add_task("weeks", total=total)

        def on_done(done: WeekDone) -> None:
            bar.console.print(line(done), markup=False, soft_wrap=True)
            bar.advance(task)

        yield on_done


def line(done: WeekDone) -> str:
    return f"{done.status:<10}{done.week}  {done.seconds:6.1f} s  {done.words}"
