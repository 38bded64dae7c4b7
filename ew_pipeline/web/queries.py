"""What the pages show, asked of the home and the ledger: weeks, lists, files, drift.

Both are opened for each question, never made, never upgraded.
"""

from __future__ import annotations

import json
import mimetypes
import re
import threading
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import Response
from fastapi.responses import FileResponse

from ew_pipeline.audit.explain import all_scores, run_chance
from ew_pipeline.backtest.page import PAGE
from ew_pipeline.backtest.run import page_folder
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import DriftSettings, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.drift.page import render_page
from ew_pipeline.drift.run import DriftReport, judge_drift
from ew_pipeline.infer.pricing import Chance
from ew_pipeline.ledger import Head, Ledger, LedgerError, Publication, Run
from ew_pipeline.ledger.connect import parse_url
from ew_pipeline.ledger.failures import is_sqlite
from ew_pipeline.ledger.records import BASIS, PUBLISHED
from ew_pipeline.outputs.check_list import ARCHIVE, FOLDER, RANDOM, check_list
from ew_pipeline.web import addresses
from ew_pipeline.web.render import POLICY, NotThere, policy_with_script

BUSY_SECONDS = 3.0  # for a person who waits for a page
NAMED_WEEKS = 12
LISTED = (
    "store_id",
    "sku_id",
    "units",
    "expected_units",
    "anomaly_probability",
    "expected_saving",
    "store_rank",
    "reasons",
)
NAMED_STORES = 40
SHOWN_STORES = 1000
NOT_LIVE = ("held", "shadow", "failed", "rejected", "computed")
INDEX = "index.html"
HEAD_BYTES = 4096
OWN_SCRIPT = re.compile(rb"script-src '(sha256-[A-Za-z0-9+/=]{43,44})'")
TYPES = {".parquet": "application/vnd.apache.parquet", ".log": "text/plain", ".jsonl": "application/jsonl"}
DATA_DOCS = "data_docs"
# Great Expectations' pages bring scripts and styles of their own; what they ask of the network is not loaded.
DATA_DOCS_POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


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


@dataclass(frozen=True)
class StoreList:
    """``table``: as in ``check_list.SCHEMA``; ``chance``: what its probabilities are of."""

    publication: Publication
    store: str
    table: pa.Table
    chance: Chance

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{**row, "random": row["codes"] == RANDOM} for row in self.table.to_pylist()]


def store_list(ledger: Ledger, publication: Publication, store: str) -> StoreList:
    """What the store has to check; an empty list if that is nothing. A store nobody knows is ``NotThere``."""
    flags = ledger.flags(publication.id, store)[list(LISTED)]
    drawn = ledger.random_checks(publication.id, store)
    table = check_list(flags, publication.week, _as_flags(drawn))
    run = ledger.run(publication.run_id)
    if not len(table) and not _reported(run, store):
        raise _unknown(ledger, publication, store)
    return StoreList(publication, store, table, run_chance(run))


def _as_flags(drawn: pd.DataFrame) -> pd.DataFrame:
    """Pairs drawn at random in the columns of flags. What a check saves is not why they are checked."""
    p = drawn["anomaly_probability"]
    saving = p * drawn["cost_missed"] - (1.0 - p) * drawn["cost_false_alarm"]
    return drawn.assign(expected_saving=saving, store_rank=0, reasons="")[list(LISTED)]


def _reported(run: Run, store: str) -> bool:
    """Whether the store was looked at. Where scores were pruned nobody can say, and it counts as unknown."""
    place = all_scores(run)
    if place is None:
        return False
    return bool(len(pq.read_table(place, columns=["store_id"], filters=[("store_id", "==", store)])))


def _unknown(ledger: Ledger, publication: Publication, store: str) -> NotThere:
    week = publication.week
    stores = ledger.flagged_stores(publication.id)["store_id"].tolist()
    near = [name for name in stores if store.casefold() in name.casefold()] or stores
    there = [(f"store {name}", addresses.of_store(week, name)) for name in near[:NAMED_STORES]]
    return NotThere(
        f"store {store!r} is not in the published scores of {week}.",
        f"{len(stores)} stores have something to check that week.",
        [*there, (f"all stores of {week}", addresses.of_stores(week))],
    )


def flagged_stores(ledger: Ledger, publication: Publication, find: str) -> tuple[pd.DataFrame, int]:
    """The stores whose name holds ``find``, the first of them, and how many there are."""
    stores = ledger.flagged_stores(publication.id)
    if find:
        stores = stores[stores["store_id"].str.contains(find, case=False, regex=False)]
    return stores.head(SHOWN_STORES), len(stores)


@dataclass(frozen=True)
class Evaluated:
    """A publication whose labels have matured. ``page``: below the folder of evaluations, "" if not there."""

    week: str
    publication_id: int
    label: str
    flagged: int
    found: int
    saving: float
    evaluated_at: str
    page: str


@dataclass(frozen=True)
class WeekLine:
    """A week. ``live`` is None when all its runs were held back, tried in shadow, or failed."""

    week: Week
    live: Publication | None
    run: Run | None  # of what is live
    others: tuple[Run, ...]
    evaluated: tuple[Evaluated, ...]

    @property
    def stores(self) -> int | None:
        """That reported."""
        reporting = ((self.run.coverage if self.run else None) or {}).get("stores_reporting")
        return None if reporting is None else int(reporting)

    def plain(self) -> dict[str, Any]:
        """For programs."""
        live = self.live
        return {
            "week": str(self.week),
            "live": None
            if live is None
            else {
                "publication_id": live.id,
                "version": live.version,
                "kind": live.kind,
                "run_id": live.run_id,
                "flags": live.flags_count,
                "stores": self.stores,
                "pairs_scored": live.pairs_scored,
                "expected_saving": live.expected_saving,
                "published_at": live.published_at.isoformat(),
                "published_by": live.published_by,
                "override": None if live.override is None else vars(live.override),
            },
            "not_live": [{"run_id": run.run_id, "status": run.status} for run in self.others],
            "evaluations": list(self.evaluated),
        }


def week_lines(ledger: Ledger, settings: Settings) -> list[WeekLine]:
    """Newest first. Runs that were published once and superseded are in `/runs`."""
    live = {one.week: one for one in ledger.live()}
    by_week: dict[Week, list[Run]] = defaultdict(list)
    for run in ledger.runs():
        by_week[run.week].append(run)
    evaluated = defaultdict(list)
    for one in evaluations(ledger, settings):
        evaluated[one.week].append(one)
    lines = []
    for week in sorted({*live, *by_week}, reverse=True):
        shown, runs = live.get(week), by_week[week]
        own = next((run for run in runs if shown is not None and run.run_id == shown.run_id), None)
        others = tuple(run for run in runs if run.status in NOT_LIVE)
        lines.append(WeekLine(week, shown, own, others, tuple(evaluated[str(week)])))
    return lines


def evaluations(ledger: Ledger, settings: Settings) -> list[Evaluated]:
    """Every evaluation by labels, newest week first."""
    publications = {one.id: one for one in ledger.publications()}
    found = []
    for row in ledger.table("evaluations", basis=BASIS).to_dict("records"):
        own = json.loads(row["metrics"])["policies"][PUBLISHED]["decisions"]
        publication = publications[int(row["publication_id"])]
        page = page_folder(settings, publication, str(row["label_rule"])) / PAGE
        found.append(
            Evaluated(
                week=str(row["week"]),
                publication_id=publication.id,
                label=str(row["label_rule"]),
                flagged=int(own["flagged"]),
                found=int(own["found"]),
                saving=float(own["saving"]["value"]),
                evaluated_at=str(row["evaluated_at"]),
                page=_below(settings.evaluations, page),
            )
        )
    return sorted(found, key=lambda one: (one.week, one.publication_id), reverse=True)


def backtests(settings: Settings) -> list[str]:
    """Pages of backtests, below the folder of evaluations."""
    pages = settings.evaluations.glob(f"backtest-*/{PAGE}") if settings.evaluations.is_dir() else ()
    return sorted(_below(settings.evaluations, page) for page in pages)


def _below(folder: Path, page: Path) -> str:
    return page.relative_to(folder).as_posix() if page.is_file() else ""


def find_file(folder: Path, path: str) -> Path | None:
    """The file at ``path`` in ``folder``; a folder's is its index. Nothing hidden, nothing outside.

    Links are followed before it is looked where they lead, so a link out of the folder leads nowhere.
    """
    parts = [part for part in path.split("/") if part]
    if "\0" in path or "\\" in path or any(part.startswith(".") for part in parts):
        return None
    root = folder.resolve()
    try:
        found = root.joinpath(*parts).resolve()
        if found.is_dir():
            found = (found / INDEX).resolve()
        return found if found.is_relative_to(root) and found.is_file() else None
    except OSError:  # a name that is too long, a loop of links
        return None


def answer_file(folder: Path, path: str) -> Response:
    """The file, or a store's list out of the archive of lists; otherwise ``NotThere``."""
    found = find_file(folder, path)
    if found is None:
        member = _in_archive(folder, path)
        if member is not None:
            return Response(
                member, media_type="text/csv; charset=utf-8", headers={"Content-Security-Policy": POLICY}
            )
        raise NotThere(f"there is no file {path!r} here.")
    return page_file(found, in_data_docs=path.startswith(f"{DATA_DOCS}/"))


def page_file(file: Path, *, in_data_docs: bool = False) -> Response:
    """A file as it lies there, with a policy that lets it run its own script and nothing else."""
    kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    policy = POLICY
    if in_data_docs:
        policy = DATA_DOCS_POLICY
    elif kind == "text/html" and (digest := _own_script(file)):
        policy = policy_with_script(digest)
    return FileResponse(file, media_type=kind, headers={"Content-Security-Policy": policy})


def _own_script(file: Path) -> str | None:
    """The hash of the page's script, as the page itself declares it."""
    with file.open("rb") as opened:
        found = OWN_SCRIPT.search(opened.read(HEAD_BYTES))
    return None if found is None else found[1].decode()


def _in_archive(folder: Path, path: str) -> bytes | None:
    archive = find_file(folder, ARCHIVE)
    if archive is None or not path.startswith(f"{FOLDER}/"):
        return None
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.read(path)
    except (KeyError, zipfile.BadZipFile):
        return None


@dataclass
class DriftState:
    """Drift as the ledger has it now, judged again when the ledger has changed.

    One at a time: matplotlib's settings are the process's, and the second to ask finds it done.
    """

    settings: Settings
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _head: Head | None = None
    _report: DriftReport | None = None
    _page: str | None = None

    def report(self, ledger: Ledger) -> DriftReport | None:
        """None before the first published week."""
        with self._lock:
            return self._fresh(ledger)

    def page(self, ledger: Ledger) -> str | None:
        with self._lock:
            report = self._fresh(ledger)
            if report is not None and self._page is None:
                self._page = render_page(report.assessment, report.verdicts, report.alerts)
            return self._page

    def _fresh(self, ledger: Ledger) -> DriftReport | None:
        head = ledger.head()
        if head != self._head:
            self._report, self._page = judge_drift(ledger, self.settings, DriftSettings()), None
            self._head = head
        return self._report


def in_one_line(report: DriftReport | None) -> str:
    """For the first page."""
    if report is None:
        return "nothing to follow yet"
    waiting = len(report.open_alerts)
    if waiting:
        return f"{report.verdict}, {waiting} open alert{'' if waiting == 1 else 's'}"
    return f"{report.verdict}: {report.verdicts[0].words}" if report.verdicts else report.verdict
