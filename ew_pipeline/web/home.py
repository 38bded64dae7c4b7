"""The home and its ledger as the pages read them: opened for each question, never made, never upgraded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, LedgerError, Publication
from ew_pipeline.ledger.connect import parse_url
from ew_pipeline.ledger.failures import is_sqlite
from ew_pipeline.web import addresses
from ew_pipeline.web.errors import NotThere

BUSY_SECONDS = 3.0  # for a person who waits for a page
NAMED_WEEKS = 12


class NoLedgerYet(NotThere):
    """Nothing has been run in this home."""


@contextmanager
def opened(settings: Settings) -> Iterator[Ledger]:
    """The ledger, for one question."""
    _refuse_absent(settings)
    with Ledger.open(
        settings.ledger_url, home=settings.root, migrate=False, busy_seconds=BUSY_SECONDS
    ) as ledger:
        yield ledger


def _refuse_absent(settings: Settings) -> None:
    """SQLite would make the file that it does not find."""
    url = parse_url(settings.ledger_url)
    file = Path(url.database or "")
    if not is_sqlite(url) or file.is_file():
        return
    if settings.runs.is_dir():
        raise LedgerError(
            f"the ledger {file} is gone, and there are runs in {settings.runs}.",
            "put the last backup in its place; the runs' folders hold no flags that can be shown without it.",
        )
    raise NoLedgerYet(f"no week was run in {settings.root} yet.", "ew run --week W --sales FILE, or ew demo")


def parse_week(text: str) -> Week:
    """The week of an address."""
    try:
        return Week.parse(text)
    except UsageError as error:
        raise NotThere(error.message, error.next_step) from None


def live_publication(ledger: Ledger, week: Week) -> Publication:
    """What is live for the week; otherwise what there is."""
    found = ledger.current(week)
    if found is not None:
        return found
    published = [one.week for one in ledger.live()]
    runs = ledger.runs(week)
    there = [(f"week {one}", addresses.of_week(one)) for one in reversed(published[-NAMED_WEEKS:])]
    words = f"{week} is not published"
    if runs:
        there = [
            (f"run {run.run_id} ({run.status})", addresses.of_run(run.run_id)) for run in runs[:3]
        ] + there
        raise NotThere(f"{words}: its last run was {runs[0].status}.", "see the run, or another week.", there)
    known = f"{published[0]} to {published[-1]} are" if published else "no week is"
    raise NotThere(f"{words}; {known}.", f"run it: ew run --week {week} --sales FILE", there)


def folder_in_home(settings: Settings, folder: Path) -> Path:
    """A run's folder, if it is one of this home: the ledger may name any path, and only the home is shown."""
    if not folder.resolve().is_relative_to(settings.root) or not folder.is_dir():
        raise NotThere(
            f"the folder {folder.name} is not in {settings.runs}.",
            "restore it from a backup, or run the week again.",
        )
    return folder
