"""`ew run --blocks`: one week that is too large for a machine, from its partitions to published flags.

The steps are those of ``weekly.run``. Rows, predictions and scores stay with the workers; theta, factors,
sums and the rows to check come to this machine.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ew_pipeline.cluster.blocks import ClusterBlocks
from ew_pipeline.cluster.connection import check_workers, connected
from ew_pipeline.cluster.decide import (
    SEGMENT,
    Decided,
    decide_by_blocks,
    pairs_without_sales,
    rows_to_check,
)
from ew_pipeline.cluster.file_rows import Reading
from ew_pipeline.cluster.fit import FittedBlocks, fit_by_blocks
from ew_pipeline.cluster.inputs import published_stores, write_inputs
from ew_pipeline.cluster.partitions import BLOCK_ENTRIES, Partitions, load_blocks, take_census
from ew_pipeline.cluster.weeks import with_absolute_paths
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.expect.fit import SegmentResult, curve_points
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.infer.theta import MOST_WEEKS as THETA_WEEKS
from ew_pipeline.infer.theta import over_weeks
from ew_pipeline.intake.assemble import Coverage
from ew_pipeline.intake.contract import Contract
from ew_pipeline.ledger import Ledger
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.large.row_blocks import Parts
from ew_pipeline.method.large.tier import large_warnings
from ew_pipeline.results import GateCheck, WeekRequest, WeekResult
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.attempt import Attempt, attempted
from ew_pipeline.weekly.gate import FLAGGED_SHARE, gate
from ew_pipeline.weekly.run import Outcome, conclude, last_ranks, provenance_of, unchanged

BLOCKS = "blocks.json"  # in the run's folder: work done, bytes of arrays moved, rows beside them
FEW_ROWS = 100_000  # to check: brought whatever the gate says
SHOWN_ROWS = 5_000  # of a week that is held back for having too many flags
MOST_ROWS = 50_000_000  # to publish: some 9 GB on this machine, and more than any chain can walk to in a week
THREADS = 1  # of a block: a worker has as many blocks at a time as it has threads


@dataclass(frozen=True, eq=False)
class Computed:
    """A week that the workers have fitted and decided."""

    fitted: FittedBlocks
    decided: Decided
    decisions: Parts  # rows to check, where their blocks are
    shape: tuple[int, int]
    pairs: int
    zero: int
    seconds: float


def run_blocks(
    request: WeekRequest,
    settings: Settings,
    steps: Steps,
    tracking: Tracking,
    block_entries: int = BLOCK_ENTRIES,
) -> Outcome:
    """Run one week. What it made is in ``runs/<run_id>``, the scores of all pairs in ``scores`` there."""
    address = _refuse_what_blocks_cannot(request, settings)
    request = replace(with_absolute_paths(request), blocks_on=address)

    def compute(ledger: Ledger, attempt: Attempt) -> Outcome:
        return _run(request, settings, steps, tracking, ledger, attempt, block_entries)

    return attempted(request, settings, steps, compute)


def _run(
    request: WeekRequest,
    settings: Settings,
    steps: Steps,
    tracking: Tracking,
    ledger: Ledger,
    attempt: Attempt,
    block_entries: int,
) -> Outcome:
    week, config = request.week, request.config
    with connected(str(request.blocks_on)) as client:
        check_workers(client, settings, {"sales": request.sales}, publishing=False)
        known = published_stores(ledger, settings.runs, week, config.recent_weeks)
        files = steps(
            "agree on ids",
            lambda: take_census(client, Path(request.sales), Reading.of(week, config), known),
            detail=lambda found: f"{found.rows:,} rows in {len(found.files)} files",
        )
        provenance = provenance_of(files.data_hash, config, steps)
        if (same := unchanged(request, provenance, settings, tracking, ledger, attempt)) is not None:
            return same
        write_inputs(attempt.folder, files)
        blocks = load_blocks(client, files, block_entries)
        computed = _compute(blocks, request, attempt.folder, steps)
        segments = (_segment(computed),)
        coverage = _coverage(files, computed)
        totals = computed.decided.totals
        pricing = _pricing(config)
        checks = gate(segments, totals, coverage, config, last_ranks(ledger, week), pricing)
        most = most_rows(computed.decided, checks, request)
        scores: pd.DataFrame = steps(
            "bring what to check",
            lambda: rows_to_check(blocks, computed.decisions, most),
            detail=lambda found: f"{len(found):,} rows",
        )
        _write(attempt.folder / BLOCKS, _work(blocks, computed, len(scores)))
    theta = computed.fitted.theta
    result = WeekResult(
        run_id=attempt.run_id,
        week=week,
        started_at=attempt.started_at,
        shadow=request.shadow,
        config=config,
        contract=_contract(files, attempt.folder),
        coverage=coverage,
        segments=segments,
        pooled=theta,
        scores=scores,
        given_totals=totals,
        score_files=computed.decided.files,
        gate=checks if most is None else _some_shown(checks, most, totals.flagged),
        provenance=provenance,
        folder=attempt.folder,
        timings=steps.timings,
        override=request.override,
        pricing=pricing,
        over_weeks=over_weeks(segments, theta, ledger.segments_series(week.shift(-1), THETA_WEEKS)),
    )
    return conclude(request, result, settings, steps, tracking, ledger)


def _compute(blocks: ClusterBlocks, request: WeekRequest, folder: Path, steps: Steps) -> Computed:
    zero: int = steps(
        "read the partitions",
        lambda: blocks.total(pairs_without_sales, []),
        detail=lambda _: _size(blocks),
    )
    if zero == 0 and request.config.zero_rule == "auto":
        raise DataError(
            f"no row of {request.week} has zero units: pairs that sold nothing seem to be missing.",
            "add them, or say that none is missing: --zero-rule explicit",
        )
    started = time.perf_counter()
    fitted = steps(
        "fit by row blocks",
        lambda: fit_by_blocks(blocks, request.config, THREADS),
        detail=lambda found: f"rank {found.rank}, {found.fit.sweeps} sweeps",
    )
    seconds = time.perf_counter() - started
    decided, decisions = steps(
        "decide what to check",
        lambda: decide_by_blocks(
            blocks, fitted.fit.predictions, fitted.fit.column_entries, request.week, request.config, folder
        ),
        detail=lambda found: f"{found[0].totals.flagged:,} of {found[0].totals.pairs:,} pairs",
    )
    return Computed(fitted, decided, decisions, blocks.shape, blocks.n_observed, zero, seconds)


def most_rows(decided: Decided, checks: Sequence[GateCheck], request: WeekRequest) -> int | None:
    """How many of the rows to check to bring here; None: all of them.

    All are needed to publish the week. One that has too many flags will not be, unless somebody has said so.
    """
    usual = all(check.passed for check in checks if check.name == FLAGGED_SHARE)
    needed = usual or (request.override is not None and not request.shadow)
    if needed and decided.to_check > MOST_ROWS:
        raise DataError(
            f"{decided.to_check:,} pairs of {request.week} are to be checked: more than {MOST_ROWS:,} are "
            "neither brought together nor published.",
            "set max_checks_per_store: it keeps the best of them.",
        )
    return None if needed or decided.to_check <= FEW_ROWS else SHOWN_ROWS


def _some_shown(checks: Sequence[GateCheck], shown: int, flagged: int) -> tuple[GateCheck, ...]:
    words = f"; of {flagged:,} only the best {shown:,} are shown, the scores of all are in the run's folder"
    return tuple(
        replace(check, words=check.words + words) if check.name == FLAGGED_SHARE else check
        for check in checks
    )


def _refuse_what_blocks_cannot(request: WeekRequest, settings: Settings) -> str:
    if settings.dask_address is None:
        raise UsageError(
            "row blocks are held by the workers of a cluster, and none is named.",
            "add --dask ADDRESS, or set EW_DASK_ADDRESS.",
        )
    given = [name for name in ("listing", "costs", "stores", "skus") if getattr(request, name) is not None]
    if request.config.segment_by is not None:
        given.append("segment-by")
    if request.config.zero_rule not in ("auto", "explicit"):
        given.append(f"zero-rule {request.config.zero_rule}")
    if given:
        raise UsageError(
            f"row blocks do not take --{', --'.join(given)}.",
            "give rows with zero units for pairs that sold nothing, and default costs in --config.",
        )
    return settings.dask_address


def _segment(computed: Computed) -> SegmentResult:
    fitted, fit = computed.fitted, computed.fitted.fit
    inverse_size = fit.parameters.inverse_size
    factors = LowRankFactors(fit.left.astype(float), fit.right.astype(float))
    return SegmentResult(
        name=SEGMENT,
        stores=computed.shape[0],
        skus=computed.shape[1],
        pairs=computed.pairs,
        theta=fitted.theta,
        rank=fitted.rank,
        noise="negative_binomial" if inverse_size > 0.0 else "poisson",
        anomaly=fitted.family.name,
        dispersion_size=1.0 / inverse_size if inverse_size > 0.0 else math.inf,
        mode=fitted.mode,
        mode_reason="by row blocks",
        converged=fit.converged,
        null_gain=fit.null_gain,
        rank_curve=(),
        held_out_curve=curve_points(fitted.curve),
        rank_weights={fitted.rank: 1.0},
        singular_values=tuple(float(value) for value in factors.singular_values()),
        warnings=large_warnings(fit, fitted.theta),
        seconds=computed.seconds,
        model=None,
    )


def _coverage(files: Partitions, computed: Computed) -> Coverage:
    return Coverage(
        zero_rule="explicit",
        stores_expected=files.stores + len(files.missing),
        stores_reporting=files.stores,
        stores_missing=files.missing,
        pairs_observed=computed.pairs,
        pairs_zero=computed.zero,
        pairs_zero_filled=0,
        pairs_promoted=files.promoted,
        pairs_unlisted=0,
        pairs_not_scored=computed.pairs - computed.decided.totals.pairs,
        history_weeks=0,
    )


def _contract(files: Partitions, folder: Path) -> Contract:
    """Rows are checked as they become a matrix, and a faulty one rejects the week: none is set aside."""
    return Contract(
        faults=(),
        rows_read={"sales": files.rows + files.promoted},
        rows_quarantined=0,
        quarantine=None,
        data_docs=folder / "data_docs" / "index.html",
        ignored_columns={},
    )


def _pricing(config: RunConfig) -> Pricing:
    words = "the posterior of the week's fit is priced"
    words += "" if config.probability == "posterior" else ": by row blocks the week is looked at alone"
    return Pricing(config.probability, "posterior", words)


def _work(blocks: ClusterBlocks, computed: Computed, rows_here: int) -> dict[str, Any]:
    fit = computed.fitted.fit
    return {
        "blocks": len(blocks.blocks),
        "rounds": fit.rounds,
        "sweeps": fit.sweeps,
        "traffic": asdict(blocks.traffic),
        "rows_to_check": rows_here,
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _size(blocks: ClusterBlocks) -> str:
    stores, skus = blocks.shape
    return (
        f"{blocks.n_observed:,} pairs of {stores:,} stores and {skus:,} SKUs in {len(blocks.blocks)} blocks"
    )
