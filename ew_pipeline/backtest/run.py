"""Evaluate what was published: find, read, measure, write down, draw, track; for the command and the flow."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ew_pipeline.backtest.due import (
    Known,
    chosen_publication,
    due_publications,
    known_evaluations,
    published_scores,
    refuse_immature,
)
from ew_pipeline.backtest.history import SalesHistory, last_kept_week, read_history, read_kept, read_truth
from ew_pipeline.backtest.page import PAGE, week_content, write_evaluation
from ew_pipeline.backtest.policies import Policy
from ew_pipeline.backtest.priced import COSTS
from ew_pipeline.backtest.published import PublishedMeasures, evaluate_published
from ew_pipeline.backtest.registry import chosen_policies, default_policy
from ew_pipeline.backtest.view import LabelSource, Memory, RuleLabels
from ew_pipeline.core.console import plain
from ew_pipeline.core.errors import DataError, EwError, UsageError
from ew_pipeline.core.provenance import code_version
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import RULES, Week
from ew_pipeline.intake.source_passwords import without_password
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.ledger.records import BASIS
from ew_pipeline.tracking.evaluation import EvaluationFacts, send_evaluations

DEFAULT = default_policy(history=True, calibrate=True)
WAIT_SECONDS = 600.0  # for a run of the same week to end


@dataclass(frozen=True)
class EvaluationRequest:
    """Which publications to evaluate, by which labels, on which sales; see the options of `ew evaluate`.

    Without a week: every publication whose labels have matured since. Without sales: what the runs have kept.
    """

    week: str | None = None
    publication: int | None = None
    sales: str | None = None
    listing: str | None = None
    zero_rule: str = "auto"
    label: str = "text"
    truth: str | None = None
    truth_column: str | None = None
    truth_threshold: float = 0.5
    costs: str = "text"
    policies: Sequence[str] = ()
    out: Path | None = None


@dataclass(frozen=True, eq=False)
class WeekReport:
    """One evaluated publication. ``new``: it was not in the ledger before."""

    publication: Publication
    measures: PublishedMeasures
    evaluation_id: int
    new: bool
    page: Path


@dataclass(frozen=True, eq=False)
class EvaluationReport:
    """What was evaluated. ``left``: why other weeks were not; ``untracked``: why MLflow does not know all."""

    weeks: tuple[WeekReport, ...]
    left: Mapping[str, str]
    costs: str
    untracked: str | None = None


@dataclass(frozen=True, eq=False)
class _Sales:
    history: SalesHistory
    source: Mapping[str, str] | str  # snapshots by week, or the file


@dataclass(frozen=True, eq=False)
class _Work:
    """What the evaluation of every week shares."""

    request: EvaluationRequest
    settings: Settings
    ledger: Ledger
    sales: _Sales
    labels: LabelSource
    policies: Sequence[Policy]
    memory: Memory

    def measure(self, publication: Publication) -> PublishedMeasures:
        return evaluate_published(
            published_scores(publication),
            self.sales.history.panel,
            str(publication.week),
            self.labels,
            self.policies,
            costs=COSTS[self.request.costs],
            memory=self.memory,
        )

    def record(self, publication: Publication, measures: PublishedMeasures) -> tuple[int, bool]:
        """Append the evaluation unless it is there; its id, and whether it is new."""
        key = Known(publication.id, measures.label_rule, measures.label_version, measures.data_hash)
        # One writer at a time: two schedules that overlap must not both find it missing.
        with self.ledger.week_lock(publication.week, who="ew evaluate", wait_seconds=WAIT_SECONDS):
            known = known_evaluations(self.ledger)
            if key in known:
                return known[key], False
            origin = {"sales": plain(self.sales.source), "zero_rule": self.sales.history.zero_rule}
            row = {
                "week": publication.week,
                "publication_id": publication.id,
                "basis": BASIS,
                "label_rule": measures.label_rule,
                "label_version": measures.label_version,
                "data_hash": measures.data_hash,
                "metrics": document(publication, measures, self.request.costs) | origin,
                "evaluated_at": dt.datetime.now(dt.UTC),
                "evaluated_by": self.settings.actor,
            }
            (number,) = self.ledger.append("evaluations", [row])
            return number, True

    def draw(self, publication: Publication, measures: PublishedMeasures) -> Path:
        rows = self.ledger.table("evaluations", basis=BASIS, label_rule=measures.label_rule)
        rows = rows[(rows["label_version"] == measures.label_version) & (rows["week"] <= measures.week)]
        costs = self.request.costs
        content = week_content(publication, measures, costs, [json.loads(text) for text in rows["metrics"]])
        folder = page_folder(self.settings, publication, measures.label_rule)
        return write_evaluation(content, folder if self.request.out is None else self.request.out)


def run_evaluation(
    request: EvaluationRequest, settings: Settings, steps: Steps, more: Sequence[Policy] = ()
) -> EvaluationReport:
    """Evaluate, and record each publication once per label rule, version and data. No flag is touched.

    ``more``: policies of other authors to compare with.
    """
    _refuse_wrong(request, more)
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        asked = _asked(ledger, request)
        labels: LabelSource = RuleLabels(request.label)
        if (
            asked is None
            and request.sales is None
            and not due_publications(ledger, labels, last_kept_week(ledger))
        ):
            return EvaluationReport((), {}, request.costs)
        sales = steps("read the sales", lambda: _read(request, ledger, settings), detail=_words, retry=True)
        panel = sales.history.panel
        if request.truth is not None:
            labels = read_truth(request.truth, sales.history, request.truth_column, request.truth_threshold)
        if asked is None:
            chosen = due_publications(ledger, labels, Week.parse(panel.weeks[-1]))
        else:
            refuse_immature(panel, asked.week, labels, from_file=request.sales is not None)
            chosen = (asked,)
        if request.out is not None and len(chosen) > 1:
            raise UsageError(
                f"--out is for one page, and {len(chosen)} publications are due.", "name one with --week."
            )
        policies = chosen_policies(request.policies, DEFAULT, len(chosen) * panel.n_pairs, more)
        work = _Work(request, settings, ledger, sales, labels, policies, Memory())
        done: list[WeekReport] = []
        left: dict[str, str] = {}
        for one in chosen:
            try:
                done.append(_week(work, one, steps))
            except DataError as error:
                if asked is not None:
                    raise
                left[str(one.week)] = error.message
        untracked = steps("track in MLflow", lambda: _track(ledger, settings), detail=_tracked)
    return EvaluationReport(tuple(done), left, request.costs, untracked)


def page_folder(settings: Settings, publication: Publication, rule: str) -> Path:
    """Where the page of an evaluated publication is."""
    return settings.evaluations / str(publication.week) / f"publication-{publication.id}-{rule}"


def _week(work: _Work, publication: Publication, steps: Steps) -> WeekReport:
    week = publication.week
    measures = steps(f"evaluate {week}", lambda: work.measure(publication), detail=_found)
    number, new = steps(f"record {week}", lambda: work.record(publication, measures), retry=True)
    page = steps(f"draw {week}", lambda: work.draw(publication, measures))
    return WeekReport(publication, measures, number, new, page)


def _track(ledger: Ledger, settings: Settings) -> str | None:
    """Tell MLflow of every evaluation it does not know; None, or why it could not be told."""
    facts = []
    for row in ledger.table("evaluations", basis=BASIS).to_dict("records"):
        found = json.loads(row["metrics"])
        publication = ledger.publication(int(row["publication_id"]))
        page = page_folder(settings, publication, found["label"]) / PAGE
        at = dt.datetime.fromisoformat(str(row["evaluated_at"]))
        facts.append(
            EvaluationFacts(int(row["id"]), int(at.timestamp() * 1000), found, {"evaluation.html": page})
        )
    try:
        send_evaluations(facts, settings)
    except EwError as error:  # MLflow is a view: the evaluation is in the ledger, and is sent next time
        return error.message.rstrip(".")
    return None


def _tracked(untracked: str | None) -> str:
    return "" if untracked is None else f"not tracked: {untracked}"


def _refuse_wrong(request: EvaluationRequest, more: Sequence[Policy]) -> None:
    if request.truth is None and request.label not in RULES:
        raise UsageError(f"there is no label {request.label!r}.", f"choose one of {', '.join(RULES)}.")
    if request.costs not in COSTS:
        raise UsageError(f"there are no costs {request.costs!r}.", f"choose one of {', '.join(COSTS)}.")
    chosen_policies(request.policies, DEFAULT, more=more)


def _asked(ledger: Ledger, request: EvaluationRequest) -> Publication | None:
    if request.week is None and request.publication is None:
        return None
    number = request.publication
    week = Week.parse(request.week) if request.week is not None else ledger.publication(number or 0).week
    return chosen_publication(ledger, week, number)


def _read(request: EvaluationRequest, ledger: Ledger, settings: Settings) -> _Sales:
    if request.sales is None:
        kept = read_kept(ledger, settings)
        return _Sales(kept.history, kept.snapshots)
    shown = without_password(request.sales)
    history = read_history(request.sales, request.listing, request.zero_rule)
    if history.numbered:
        raise UsageError(
            f"the weeks of {shown} are whole numbers, those of publications are ISO weeks.",
            "write its weeks as 2026-W34, or as the date they start.",
        )
    return _Sales(history, shown)


def document(publication: Publication, measures: PublishedMeasures, costs: str) -> dict[str, Any]:
    """An evaluation for a program: what the ledger keeps and `--json` prints."""
    found: dict[str, Any] = plain(
        {
            "week": measures.week,
            "publication": publication.id,
            "version": publication.version,
            "run_id": publication.run_id,
            "label": measures.label_rule,
            "label_version": measures.label_version,
            "costs": costs,
            "data_hash": measures.data_hash,
            "code_version": code_version(),
            "pairs_published": measures.pairs_published,
            "pairs": measures.pairs,
            "anomalies": measures.anomalies,
            "policies": {
                name: {**one.measures.to_dict(), "decisions": one.decisions}
                for name, one in measures.policies.items()
            },
        }
    )
    return found


def _words(sales: _Sales) -> str:
    panel = sales.history.panel
    return f"{panel.n_pairs:,} pairs, {panel.weeks[0]} to {panel.weeks[-1]}, zeros {sales.history.zero_rule}"


def _found(measures: PublishedMeasures) -> str:
    own = measures.published.decisions
    return f"{measures.pairs:,} pairs with a label, {own.found} of {own.flagged} flags right"
