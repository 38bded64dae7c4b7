"""A week from its sales file to published flags: the order of the steps, written once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.console import ExitCode
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.files import LaterFile, writing_to
from ew_pipeline.core.provenance import code_version, environment
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import ScoreTotals, decide
from ew_pipeline.expect.fit import FittedSegment, fit_segments
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.infer.theta import MOST_WEEKS as THETA_WEEKS
from ew_pipeline.infer.theta import over_weeks, pool_theta
from ew_pipeline.intake.assemble import Prepared, assemble, with_levels
from ew_pipeline.intake.contract import Contract
from ew_pipeline.intake.read import ingest
from ew_pipeline.intake.snapshot import Snapshot
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.ledger.writing import SCORES
from ew_pipeline.outputs.check_list import write_check_lists
from ew_pipeline.outputs.page import write_report
from ew_pipeline.outputs.realised import realised_calibration
from ew_pipeline.outputs.scores import write_scores
from ew_pipeline.results import Provenance, WeekRequest, WeekResult
from ew_pipeline.tracking.model import PricedPairs, save_model
from ew_pipeline.tracking.weekly import TrackedRun, Tracking
from ew_pipeline.weekly.attempt import Attempt, attempted, show_live
from ew_pipeline.weekly.cross_section import cross_section
from ew_pipeline.weekly.fit_cache import FitCache
from ew_pipeline.weekly.gate import gate
from ew_pipeline.weekly.labelled_cache import LabelledCache
from ew_pipeline.weekly.price import Priced, fit_past_weeks, price
from ew_pipeline.weekly.request import earlier_checks, publish_command

SERIES_WEEKS = 26  # of theta, in the report
CALIBRATION = "calibration.json"  # in the run's folder: what past weeks have taught, used or refused
CONFIG = "config.json"  # in the run's folder, to run the week again with the same settings
DATA_DOCS, DOCS = "data docs", "data_docs/index.html"


ClusterFits = Callable[[str, Prepared, RunConfig, Path, Settings], tuple[FittedSegment, ...]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a run ended. ``result`` is None when nothing had to be computed."""

    status: str  # "published", "unchanged", "held" or "shadow"
    run_id: str
    result: WeekResult | None
    publication: Publication | None
    folder: Path
    report: Path
    publish_anyway: str | None = None  # what to type when it was held back

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.HELD_BACK if self.status == "held" else ExitCode.DONE


def run_week(
    request: WeekRequest,
    settings: Settings,
    steps: Steps,
    tracking: Tracking,
    cluster_fits: ClusterFits | None = None,
) -> Outcome:
    """Run one week. What it made is in ``runs/<run_id>``, whatever the outcome.

    ``cluster_fits`` fits segments on the cluster that the settings name (``cluster.segments``).
    """
    return attempted(
        request,
        settings,
        steps,
        lambda ledger, attempt: _run(request, settings, steps, tracking, cluster_fits, ledger, attempt),
    )


def _run(
    request: WeekRequest,
    settings: Settings,
    steps: Steps,
    tracking: Tracking,
    cluster_fits: ClusterFits | None,
    ledger: Ledger,
    attempt: Attempt,
) -> Outcome:
    week, config = request.week, request.config
    contract, snapshot = steps(
        "check the data",
        lambda: ingest(request, settings, attempt.folder, earlier_checks(ledger, week, config)),
        detail=_checked,
        retry=True,
    )
    provenance = provenance_of(snapshot.data_hash, config, steps)
    if (same := unchanged(request, provenance, settings, tracking, ledger, attempt)) is not None:
        return same

    prepared = _prepare(snapshot, week, config, steps)
    fitted = steps(
        "fit the detector",
        lambda: _fit(prepared, config, attempt.folder / "model", settings, steps, cluster_fits),
        detail=_fitted,
    )
    priced = _price(prepared, fitted, config, settings, attempt.folder, steps)
    scores = steps(
        "decide what to check",
        lambda: _decide(fitted, priced, week, config),
        detail=lambda s: f"{int(s['flagged'].sum())} of {len(s):,} pairs",
    )
    alone = None
    if config.cross_section:
        alone = steps(
            "fit the week alone",
            lambda: cross_section(prepared, fitted, scores, config),
            detail=lambda c: "not done" if c is None else f"{c.flags} pairs, {c.both} of them in both",
        )
    segments = tuple(one.record for one in fitted)
    pooled = pool_theta([one.theta for one in segments])
    totals = ScoreTotals.of(scores)
    checks = gate(segments, totals, prepared.coverage, config, last_ranks(ledger, week), priced.pricing)
    result = WeekResult(
        run_id=attempt.run_id,
        week=week,
        started_at=attempt.started_at,
        shadow=request.shadow,
        config=config,
        contract=contract,
        coverage=prepared.coverage,
        segments=segments,
        pooled=pooled,
        scores=scores,
        given_totals=totals,
        gate=checks,
        provenance=provenance,
        folder=attempt.folder,
        timings=steps.timings,
        override=request.override,
        pricing=priced.pricing,
        cross_section=alone,
        over_weeks=over_weeks(segments, pooled, ledger.segments_series(week.shift(-1), THETA_WEEKS)),
    )
    return conclude(request, result, settings, steps, tracking, ledger)


def provenance_of(data_hash: str, config: RunConfig, steps: Steps) -> Provenance:
    """What the week is computed from, by what, here and now."""
    return Provenance(
        data_hash=data_hash,
        config_hash=config.hash,
        code_version=code_version(),
        seed=config.detector.random_state,
        environment=environment(),
        flow_run_id=steps.flow_run_id,
    )


def unchanged(
    request: WeekRequest,
    provenance: Provenance,
    settings: Settings,
    tracking: Tracking,
    ledger: Ledger,
    attempt: Attempt,
) -> Outcome | None:
    """What is published already from the same inputs, if it is."""
    known = None if request.shadow else ledger.find_unchanged(request.week, provenance.input_key)
    if known is None:
        return None
    live = show_live(known, settings)
    tracking.confirm_published(settings.runs / known.run_id, str(known.id))
    shutil.rmtree(attempt.folder, ignore_errors=True)  # nothing of it is used
    return Outcome("unchanged", known.run_id, None, known, live, live / "report.html")


def _prepare(snapshot: Snapshot, week: Week, config: RunConfig, steps: Steps) -> Prepared:
    """A function by itself: what only the levels are made from is not held for the rest of the run."""
    assembled = steps(
        "assemble the matrix",
        lambda: assemble(snapshot, week, config),
        detail=lambda a: _assembled(a.prepared),
    )
    if not assembled.has_past:
        return assembled.prepared
    return steps(
        "level from history",
        lambda: with_levels(assembled, config),
        detail=lambda p: f"{p.coverage.history_weeks} weeks",
    )


def _fit(
    prepared: Prepared,
    config: RunConfig,
    folder: Path,
    settings: Settings,
    steps: Steps,
    cluster_fits: ClusterFits | None,
) -> tuple[FittedSegment, ...]:
    """Here, or the segments side by side on a cluster."""
    if settings.dask_address is None or len(prepared.segments) == 1:
        if settings.dask_address is not None:
            steps.say(f"One segment is fitted here: the cluster at {settings.dask_address} is not needed.")
        return fit_segments(prepared, config, folder, settings.threads)
    if cluster_fits is None:
        raise UsageError(
            f"a cluster is named ({settings.dask_address}), and nothing that fits segments on it was given.",
            "use `ew run --dask`, or pass ew_pipeline.cluster.segments.fit_segments_on.",
        )
    return cluster_fits(settings.dask_address, prepared, config, folder, settings)


def _price(
    prepared: Prepared,
    fitted: tuple[FittedSegment, ...],
    config: RunConfig,
    settings: Settings,
    folder: Path,
    steps: Steps,
) -> Priced:
    """Price the pairs, and keep what the price was learnt from: its record, not the evidence."""
    fitted_past = None
    if prepared.past.panel is not None:
        fits, labelled = FitCache(settings.cache / "fits"), LabelledCache(settings.cache / "labelled")
        fitted_past = steps(
            "fit past weeks",
            lambda: fit_past_weeks(prepared.past, prepared.week, config, fits, labelled, settings.threads),
            detail=lambda past: f"{past.weeks} labelled weeks, {fits.made} fits not made before",
        )
    priced = steps(
        "price the evidence",
        lambda: price(prepared, fitted, config, fitted_past),
        detail=lambda p: p.pricing.form,
    )
    if priced.pricing.calibration is not None:
        (folder / CALIBRATION).write_text(priced.pricing.calibration.to_json(), encoding="utf-8")
    return priced


def _decide(fitted: tuple[FittedSegment, ...], priced: Priced, week: Week, config: RunConfig) -> pd.DataFrame:
    """The scores; beside, the models are saved with what is priced, half a gigabyte for a national chain."""
    with ThreadPoolExecutor(1) as beside:
        saved = beside.submit(save_models, fitted, priced.probability, priced.pricing)
        scores = decide(fitted, priced.probability, week, config)
        saved.result()
    return scores


def conclude(
    request: WeekRequest,
    result: WeekResult,
    settings: Settings,
    steps: Steps,
    tracking: Tracking,
    ledger: Ledger,
) -> Outcome:
    """Keep the result, show it, and make it live if it may be."""
    learnt = result.folder / CALIBRATION
    artifacts = {CALIBRATION: learnt} if learnt.is_file() else {}
    tracked = steps("track in MLflow", lambda: tracking.track(result, artifacts), detail=lambda t: t.words)
    result = replace(result, provenance=replace(result.provenance, mlflow_run_id=tracked.run_id))

    before = ledger.last_published_before(result.week)
    command = publish_command(request, result.folder / CONFIG)
    scores: LaterFile | None = None

    def write() -> Path:
        nonlocal scores
        with writing_to(result.folder):
            (result.folder / CONFIG).write_text(result.config.model_dump_json(indent=1), encoding="utf-8")
            write_check_lists(result, result.folder)
        if not result.score_files:  # outside of Python, while the page and the flags are made
            scores = LaterFile(beside, partial(write_scores, result.scores, result.folder / SCORES))
        realised = realised_calibration(ledger, result.week)
        return write_report(
            result,
            calibration=None if realised is None else realised.table,
            calibration_of="" if realised is None else realised.words,
            series=ledger.segments_series(result.week.shift(-1), SERIES_WEEKS),
            previous=ledger.flagged_pairs(before.id) if before is not None else None,
            links={**({DATA_DOCS: DOCS} if (result.folder / DOCS).is_file() else {}), **tracked.links},
            folder=result.folder,
            override=result.override,
            publish_anyway=command,
        )

    with ThreadPoolExecutor(1) as beside:
        report = steps("write the report", write)
        if not result.may_publish:
            status: Literal["shadow", "held"] = "shadow" if result.shadow else "held"
            steps("record the run", lambda: _record(ledger, result, status, settings, scores), retry=True)
            _say_untracked(steps, tracking.finish(tracked, status, report))
            anyway = command if status == "held" else None
            return Outcome(status, result.run_id, result, None, result.folder, report, anyway)
        publication = steps(
            "publish",
            lambda: ledger.publish(
                result,
                by=settings.actor,
                report=report,
                override=request.override,
                last_file=None if scores is None else scores.wait,
            ),
            detail=lambda p: f"{p.flags_count} flags, version {p.version} of {p.week}",
            retry=True,
        )
    live = show_live(publication, settings)
    _say_untracked(steps, tracking.finish(tracked, "published", report, publication_id=str(publication.id)))
    return Outcome("published", result.run_id, result, publication, live, live / "report.html")


def _record(
    ledger: Ledger,
    result: WeekResult,
    status: Literal["shadow", "held"],
    settings: Settings,
    scores: LaterFile | None,
) -> None:
    if scores is not None:
        scores.wait()
    ledger.record_run(result, status, by=settings.actor)


def _say_untracked(steps: Steps, tracked: TrackedRun) -> None:
    if tracked.reason is not None:
        steps.say(f"MLflow does not know all of this run yet ({tracked.reason}); the next run tells it.")


def last_ranks(ledger: Ledger, week: Week) -> dict[str, int]:
    """Rank by segment of the last published week; empty for the first."""
    before = ledger.last_published_before(week)
    if before is None:
        return {}
    known = ledger.segments(before.run_id)
    known = known[known["rank"].notna()]
    return {str(name): int(rank) for name, rank in zip(known["segment"], known["rank"], strict=True)}


def _checked(found: tuple[Contract, Snapshot]) -> str:
    contract, snapshot = found
    rows = f"{contract.rows_read.get('sales', 0):,} rows"
    known = f", {contract.rows_known:,} of them as checked before" if contract.rows_known else ""
    kept = f", {contract.rows_quarantined} quarantined" if contract.rows_quarantined else ""
    return f"{rows}{known}{kept}, data {snapshot.data_hash[:12]}"


def _assembled(prepared: Prepared) -> str:
    coverage = prepared.coverage
    history = f"{coverage.history_weeks} weeks of history" if coverage.history_weeks else "cross-section only"
    return f"{coverage.pairs_observed:,} pairs, zeros {coverage.zero_rule}, {history}"


def _fitted(fitted: tuple[FittedSegment, ...]) -> str:
    if len(fitted) > 1:
        return f"{len(fitted)} segments"
    one = fitted[0].record
    return f"{one.mode}, rank {one.rank}, {one.noise.replace('_', ' ')}"


def save_models(fitted: Sequence[FittedSegment], priced: Sequence[Float], pricing: Pricing) -> None:
    """Save every model in its folder, with the probability that is priced and what it comes from."""
    for one, probability in zip(fitted, priced, strict=True):
        pairs = PricedPairs(probability, pricing.form, pricing.version)
        own = pricing.of_the_detector
        assert one.record.model is not None  # only row blocks have none
        save_model(one.fit, one.record.model, level=one.given.level, priced=None if own else pairs)
