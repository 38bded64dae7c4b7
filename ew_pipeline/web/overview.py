"""What the first page shows: every week, what is live, what was held, what it was worth."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ew_pipeline.backtest.page import PAGE
from ew_pipeline.backtest.run import page_folder
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, Publication, Run
from ew_pipeline.ledger.records import BASIS, PUBLISHED

NOT_LIVE = ("held", "shadow", "failed", "rejected", "computed")


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
