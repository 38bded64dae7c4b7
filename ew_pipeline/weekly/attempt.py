"""One try at a week: nobody else at it, and how it ended is on record. And the live files of a week.

The ledger says what is live; ``reports/<week>`` is a copy, where people look. It is made after the ledger's
transaction, and made again by anything that finds it missing or old, so a crash in between heals itself.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from ew_pipeline.core.errors import DataError, EwError
from ew_pipeline.core.files import make_private
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.intake.contract import ContractRejected
from ew_pipeline.ledger import Ledger, Publication, RunInfo
from ew_pipeline.outputs.check_list import ARCHIVE, FOLDER
from ew_pipeline.results import WeekRequest

Result = TypeVar("Result")
WAIT_SECONDS = 600.0  # for another run of the same week to end
LISTS = ("check_list.csv", "check_list.json", "check_list.parquet", FOLDER, ARCHIVE)
SHOWN = ("report.html", *LISTS, "data_docs")  # copied from the run into the live folder
MARK = "publication.txt"  # which publication and run the copy is of


@dataclass(frozen=True)
class Attempt:
    """One try at a week: its name, its folder, when it began."""

    run_id: str
    folder: Path
    started_at: dt.datetime


def attempted(
    request: WeekRequest, settings: Settings, steps: Steps, compute: Callable[[Ledger, Attempt], Result]
) -> Result:
    """Do the week with nobody else at it, and record how it ended if it fails."""
    attempt = begin(request, settings)
    opened = steps(
        "open the ledger", lambda: Ledger.open(settings.ledger_url, home=settings.root), retry=True
    )
    with opened as ledger:
        try:
            with ledger.week_lock(
                request.week, who=attempt.run_id, wait_seconds=WAIT_SECONDS, on_wait=steps.say
            ):
                return compute(ledger, attempt)
        except BaseException as error:  # also Ctrl-C: the ledger says how every run ended
            _record_failure(request, attempt, steps, ledger, settings.actor, error)
            raise


def begin(request: WeekRequest, settings: Settings) -> Attempt:
    """Name the attempt and make its folder."""
    now = dt.datetime.now(dt.UTC)
    run_id = f"{request.week}-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    folder = settings.runs / run_id
    try:
        make_private(settings.root)
        folder.mkdir(parents=True)
    except OSError as error:
        raise EwError(
            f"cannot write to {settings.root}: {error.strerror}.",
            "give the folder to this user, or choose another: EW_HOME=/path/to/folder ew run …",
        ) from error
    return Attempt(run_id, folder, now)


def _record_failure(
    request: WeekRequest, attempt: Attempt, steps: Steps, ledger: Ledger, actor: str, error: BaseException
) -> None:
    info = RunInfo(
        run_id=attempt.run_id,
        week=request.week,
        started_at=attempt.started_at,
        config=request.config,
        folder=attempt.folder,
        shadow=request.shadow,
        contract=error.contract if isinstance(error, ContractRejected) else None,
        timings=steps.timings,
        flow_run_id=steps.flow_run_id,
    )
    status: Literal["rejected", "failed"] = "rejected" if isinstance(error, DataError) else "failed"
    try:
        ledger.record_run(info, status, by=actor, error=str(error) or type(error).__name__)
    except EwError as second:  # the first error is the one that matters
        steps.say(f"The failure could not be recorded: {second.message}")


def show_live(publication: Publication, settings: Settings) -> Path:
    """Make ``reports/<week>`` show this publication; returns the folder."""
    folder = settings.reports / str(publication.week)
    mark = f"{publication.id} {publication.run_id}\n"
    if (
        (folder / MARK).is_file()
        and (folder / MARK).read_text() == mark
        and (folder / "report.html").is_file()
    ):
        return folder
    source = settings.runs / publication.run_id
    if not (source / "report.html").is_file():
        raise EwError(
            f"the files of run {publication.run_id} are not in {source}.",
            f"restore that folder from a backup, or run the week again: ew run --week {publication.week} …",
        )
    settings.reports.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{publication.week}-", dir=settings.reports))
    fresh.chmod(0o755)
    for name in SHOWN:
        if (source / name).is_dir():
            _copy_folder(source / name, fresh / name)
        elif (source / name).is_file():
            shutil.copy2(source / name, fresh / name)
    (fresh / MARK).write_text(mark)
    _swap(fresh, folder)
    return folder


def _copy_folder(source: Path, target: Path) -> None:
    """The files in it, without their times: ``shutil.copytree`` takes thrice as long for 70,000 lists."""
    for place, _, names in os.walk(source):
        beside = f"{target}{place.removeprefix(str(source))}"
        os.mkdir(beside)
        for name in names:
            with open(f"{place}/{name}", "rb", 0) as old, open(f"{beside}/{name}", "wb", 0) as new:
                new.write(old.read())


def _swap(fresh: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}-old-{fresh.name.rpartition('-')[2]}")
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
