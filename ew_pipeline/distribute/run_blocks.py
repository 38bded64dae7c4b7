"""`ew run --blocks`: one week that is too large for a machine, from its partitions to scores."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ew_pipeline.console import emit_json, messages
from ew_pipeline.distribute.blocks import ClusterBlocks, Traffic
from ew_pipeline.distribute.cluster import check_workers, connected
from ew_pipeline.distribute.fit import BlockWeek, fit_by_blocks
from ew_pipeline.distribute.partitions import BLOCK_ENTRIES, load_blocks
from ew_pipeline.errors import EwError, UsageError
from ew_pipeline.orchestrate.steps import Steps
from ew_pipeline.publish.ledger import Ledger, RunInfo
from ew_pipeline.settings import Settings
from ew_pipeline.weekly.records import WeekRequest
from ew_pipeline.weekly.run import begin

SUMMARY = "week.json"
THREADS = 1  # of a block: a worker has as many blocks at a time as it has threads


@dataclass(frozen=True, eq=False)
class BlocksOutcome:
    """A week computed by row blocks."""

    run_id: str
    folder: Path
    blocks: int
    week: BlockWeek
    traffic: Traffic


def run_blocks(
    request: WeekRequest, settings: Settings, steps: Steps, block_entries: int = BLOCK_ENTRIES
) -> BlocksOutcome:
    """Compute the week and record it as a shadow run; nothing of it is brought to this machine but theta,
    factors and counts. Scores are in ``runs/<run>/scores``, one file for each block."""
    address = _refuse_what_blocks_cannot(request, settings)
    attempt = begin(request, settings)
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        try:
            with connected(address) as client:
                check_workers(client, settings, {"sales": request.sales})
                blocks = steps(
                    "agree on ids and read the partitions",
                    lambda: load_blocks(client, Path(request.sales), request.week, block_entries),
                    detail=_loaded,
                )
                week = steps(
                    "fit by row blocks",
                    lambda: fit_by_blocks(blocks, request.config, attempt.folder / "scores", THREADS),
                    detail=lambda found: f"rank {found.rank}, {found.sweeps} sweeps, {found.flagged:,} flags",
                )
            outcome = BlocksOutcome(attempt.run_id, attempt.folder, len(blocks.blocks), week, blocks.traffic)
            _write(outcome)
            failure = None
        except EwError as error:
            failure = error
        info = RunInfo(
            run_id=attempt.run_id,
            week=request.week,
            started_at=attempt.started_at,
            config=request.config,
            folder=attempt.folder,
            shadow=True,
            contract=None,
            timings=steps.timings,
            flow_run_id=steps.flow_run_id,
        )
        if failure is not None:
            ledger.record_run(info, "failed", by=settings.actor, error=str(failure))
            raise failure
        ledger.record_run(info, "shadow", by=settings.actor)
    return outcome


def _refuse_what_blocks_cannot(request: WeekRequest, settings: Settings) -> str:
    if settings.dask_address is None:
        raise UsageError(
            "row blocks are held by the workers of a cluster, and none is named.",
            "add --dask ADDRESS, or set EW_DASK_ADDRESS.",
        )
    if not request.shadow:
        raise UsageError(
            "a week computed by row blocks is not published yet: contract, check lists and ledger rows are "
            "made on one machine.",
            "add --shadow; the scores of all pairs are written to the run's folder.",
        )
    given = [name for name in ("listing", "costs", "stores", "skus") if getattr(request, name) is not None]
    if request.config.segment_by is not None:
        given.append("segment-by")
    if given:
        raise UsageError(
            f"row blocks do not take --{', --'.join(given)}.",
            "give rows with zero units for pairs that sold nothing, and default costs in --config.",
        )
    return settings.dask_address


def _loaded(blocks: ClusterBlocks) -> str:
    return (
        f"{blocks.n_observed:,} pairs of {blocks.shape[0]:,} stores and {blocks.shape[1]:,} SKUs in "
        f"{len(blocks.blocks)} blocks"
    )


def show_blocks(outcome: BlocksOutcome, as_json: bool) -> None:
    """The closing lines on stderr; with ``as_json`` the outcome on stdout."""
    week = outcome.week
    if as_json:
        emit_json({"run_id": outcome.run_id, "folder": str(outcome.folder), **described(outcome)})
    out = messages().print
    low, high = week.theta.anomaly_rate_interval
    out(
        f"{week.flagged:,} of {week.pairs:,} pairs to check; p_A {week.theta.anomaly_rate:.2%} "
        f"({low:.2%} to {high:.2%}), alpha {week.theta.alpha:.2f}, rank {week.rank}.",
        markup=False,
        soft_wrap=True,
    )
    if not week.converged:
        out("The fit did not converge: do not act on it.", markup=False)
    out(f"Not published (shadow). Scores: {week.scores}", markup=False, soft_wrap=True)


def described(outcome: BlocksOutcome) -> dict[str, Any]:
    """For a program, and for ``week.json``."""
    week = outcome.week
    plain = {
        name: value for name, value in vars(week).items() if name not in ("theta", "rank_curve", "scores")
    }
    return {
        **plain,
        "dispersion_size": week.dispersion_size if week.noise == "negative_binomial" else None,
        "theta": asdict(week.theta),
        "blocks": outcome.blocks,
        "traffic": asdict(outcome.traffic),
    }


def _write(outcome: BlocksOutcome) -> None:
    (outcome.folder / SUMMARY).write_text(json.dumps(described(outcome), indent=1), encoding="utf-8")
