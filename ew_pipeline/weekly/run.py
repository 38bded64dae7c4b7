"""A week from its sales file to published flags: the order of the steps, written once."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from ew_pipeline.console import ExitCode
from ew_pipeline.data.contract import ContractRejected
from ew_pipeline.errors import EwError
from ew_pipeline.orchestrate.steps import Steps
from ew_pipeline.provenance import code_version, environment
from ew_pipeline.publish.check_list import write_check_lists
from ew_pipeline.publish.ledger import Ledger, Publication
from ew_pipeline.publish.live import show_live
from ew_pipeline.publish.report import write_report
from ew_pipeline.settings import Settings
from ew_pipeline.track.weekly import Tracking
from ew_pipeline.weekly.decide import decide
from ew_pipeline.weekly.fit import FittedSegment, fit_segments
from ew_pipeline.weekly.gate import gate
from ew_pipeline.weekly.ingest import ingest
from ew_pipeline.weekly.pooled_theta import pool_theta
from ew_pipeline.weekly.prepare import Prepared, prepare
from ew_pipeline.weekly.records import Contract, Provenance, Snapshot, WeekRequest, WeekResult

SERIES_WEEKS = 26  # of theta, in the report
WAIT_SECONDS = 600.0  # for another run of the same week to end


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a run ended. ``result`` is None when nothing had to be computed."""

    status: str  # "published", "unchanged", "held" or "shadow"
    run_id: str
    result: WeekResult | None
    publication: Publication | None
    folder: Path
    report: Path

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.HELD_BACK if self.status == "held" else ExitCode.DONE


@dataclass(frozen=True)
class Attempt:
    """One try at a week: its name, its folder, when it began."""

    run_id: str
    folder: Path
    started_at: dt.datetime


def run_week(request: WeekRequest, settings: Settings, steps: Steps, tracking: Tracking) -> Outcome:
    """Run one week. What it made is in ``runs/<run_id>``, whatever the outcome."""
    ledger = steps("open the ledger", lambda: Ledger.open(settings.ledger_url), retry=True)
    attempt = begin(request, settings)
    try:
        with ledger.week_lock(str(request.week), WAIT_SECONDS, steps.say):
            return _run(request, settings, steps, tracking, ledger, attempt)
    except EwError as error:
        status = "rejected" if isinstance(error, ContractRejected) else "failed"
        ledger.record_failure(request, attempt, status, error)
        raise


def _run(
    request: WeekRequest,
    settings: Settings,
    steps: Steps,
    tracking: Tracking,
    ledger: Ledger,
    attempt: Attempt,
) -> Outcome:
    week, config = request.week, request.config
    contract, snapshot = steps(
        "check the data", lambda: ingest(request, settings, attempt.folder), detail=_checked, retry=True
    )
    provenance = Provenance(
        data_hash=snapshot.data_hash,
        config_hash=config.hash,
        code_version=code_version(),
        seed=config.detector.random_state,
        environment=environment(),
        flow_run_id=steps.flow_run_id,
    )
    if not request.shadow and (known := ledger.find_unchanged(str(week), provenance.input_key)):
        live = show_live(known, settings)
        return Outcome("unchanged", known.run_id, None, known, live, live / "report.html")

    prepared = steps("assemble the matrix", lambda: prepare(snapshot, week, config), detail=_assembled)
    fitted = steps(
        "fit the detector",
        lambda: fit_segments(prepared, config, attempt.folder / "model", settings.threads),
        detail=_fitted,
    )
    scores = steps(
        "decide what to check",
        lambda: decide(fitted, config),
        detail=lambda s: f"{int(s['flagged'].sum())} of {len(s):,} pairs",
    )
    segments = tuple(one.record for one in fitted)
    coverage = replace(prepared.coverage, pairs_not_scored=prepared.coverage.pairs_not_scored)
    checks = gate(segments, scores, coverage, config, ledger.last_ranks(week))
    result = WeekResult(
        run_id=attempt.run_id,
        week=week,
        started_at=attempt.started_at,
        shadow=request.shadow,
        config=config,
        contract=contract,
        coverage=coverage,
        segments=segments,
        pooled=pool_theta([one.theta for one in segments]),
        scores=scores,
        gate=checks,
        provenance=provenance,
        folder=attempt.folder,
        timings=steps.timings,
    )
    return _publish(request, result, settings, steps, tracking, ledger)


def _publish(
    request: WeekRequest,
    result: WeekResult,
    settings: Settings,
    steps: Steps,
    tracking: Tracking,
    ledger: Ledger,
) -> Outcome:
    """Keep the result, show it, and make it live if it may be."""
    tracked = steps("track in MLflow", lambda: tracking.track(result), detail=lambda t: t.words)
    result = replace(result, provenance=replace(result.provenance, mlflow_run_id=tracked.run_id))

    def write() -> Path:
        result.scores.to_parquet(result.folder / "scores.parquet", index=False)
        write_check_lists(result, result.folder)
        return write_report(
            result,
            series=ledger.segments_series(str(result.week.shift(-1)), SERIES_WEEKS),
            previous=ledger.flags_before(str(result.week)),
            links=tracked.links,
            folder=result.folder,
        )

    report = steps("write the report", write)
    may_publish = not result.held or request.override is not None
    if result.shadow or not may_publish:
        status = "shadow" if result.shadow else "held"
        steps("record the run", lambda: ledger.record_run(result, status), retry=True)
        tracking.finish(tracked, status, report)
        return Outcome(status, result.run_id, result, None, result.folder, report)

    publication = steps(
        "publish",
        lambda: ledger.publish(result, by=settings.actor, report=report, override=request.override),
        detail=lambda p: f"{p.flags} flags, version {p.version} of {p.week}",
        retry=True,
    )
    live = show_live(publication, settings)
    tracking.finish(tracked, "published", report)
    return Outcome("published", result.run_id, result, publication, live, live / "report.html")


def begin(request: WeekRequest, settings: Settings) -> Attempt:
    """Name the attempt and make its folder."""
    now = dt.datetime.now(dt.UTC)
    run_id = f"{request.week}-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    folder = settings.runs / run_id
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise EwError(
            f"cannot write to {settings.root}: {error.strerror}.",
            "give the folder to this user, or choose another: EW_HOME=/path/to/folder ew run …",
        ) from error
    return Attempt(run_id, folder, now)


def _checked(found: tuple[Contract, Snapshot]) -> str:
    contract, snapshot = found
    rows = f"{contract.rows_read.get('sales', 0):,} rows"
    kept = f", {contract.rows_quarantined} quarantined" if contract.rows_quarantined else ""
    return f"{rows}{kept}, data {snapshot.data_hash[:12]}"


def _assembled(prepared: Prepared) -> str:
    coverage = prepared.coverage
    history = f"{coverage.history_weeks} weeks of history" if coverage.history_weeks else "cross-section only"
    return f"{coverage.pairs_observed:,} pairs, zeros {coverage.zero_rule}, {history}"


def _fitted(fitted: tuple[FittedSegment, ...]) -> str:
    if len(fitted) > 1:
        return f"{len(fitted)} segments"
    one = fitted[0].record
    return f"{one.mode}, rank {one.rank}, {one.noise.replace('_', ' ')}"
