"""`ew run`: one week, from its sales to published flags."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer

from ew_pipeline.cli.options import (
    ConfigFile,
    CostTable,
    Dask,
    Listing,
    Mode,
    Sales,
    SegmentBy,
    Skus,
    Stores,
)
from ew_pipeline.cluster.segments import fit_segments_on
from ew_pipeline.core.console import emit_json, messages
from ew_pipeline.core.kernels import load_numba
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.intake.expectations import load_great_expectations
from ew_pipeline.intake.source_passwords import passwords_in_environment
from ew_pipeline.outputs.drawing import load_matplotlib
from ew_pipeline.outputs.summary import summary_lines
from ew_pipeline.servers.prefect import prefect_api
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.request import asked_changes, make_request
from ew_pipeline.weekly.run import Outcome, run_week
from flows.follow import follow_drift


def run(
    sales: Sales,
    week: Annotated[
        str | None, typer.Option(help="ISO week or its first day; default: the last complete one.")
    ] = None,
    listing: Listing = None,
    costs: CostTable = None,
    stores: Stores = None,
    skus: Skus = None,
    segment_by: SegmentBy = None,
    max_checks_per_store: Annotated[
        int | None, typer.Option(min=0, help="At most so many checks in a store.")
    ] = None,
    zero_rule: Annotated[
        str | None, typer.Option(help="auto, explicit, listing or inferred: what a missing row means.")
    ] = None,
    history: Annotated[
        bool | None, typer.Option("--history/--no-history", help="Use the pairs' own past.")
    ] = None,
    probability: Annotated[
        str | None,
        typer.Option(help="What is priced: auto, posterior, drop, history or calibrated (by past labels)."),
    ] = None,
    random_check_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of the pairs not flagged, drawn to be checked too.")
    ] = None,
    mode: Mode = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the detector.")] = None,
    config: ConfigFile = None,
    dask: Dask = None,
    blocks: Annotated[
        bool,
        typer.Option(
            "--blocks", help="By row blocks on the cluster, from a folder of parquet files by store."
        ),
    ] = False,
    shadow: Annotated[bool, typer.Option("--shadow", help="Compute and track, never publish.")] = False,
    override: Annotated[
        str | None, typer.Option(help="Publish even if the gate holds the result back, and why.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Check the data, fit the detector, decide what to check, and publish it.

    Exit codes: 0 published, or nothing new; 1 data rejected; 2 wrong call; 3 failed; 4 held back.
    """
    settings = Settings()
    changes = asked_changes(
        config,
        segment_by=segment_by,
        max_checks_per_store=max_checks_per_store,
        zero_rule=zero_rule,
        history=history,
        probability=probability,
        random_check_share=random_check_share,
        detector_mode=mode,
        detector_random_state=seed,
    )
    settings = settings.on_cluster(dask)
    asked: dict[str, Any] = {
        "week": week,
        "sales": sales,
        "listing": listing,
        "costs": costs,
        "stores": stores,
        "skus": skus,
        "shadow": shadow,
        "override_why": override,
    }
    outcome = (run_by_blocks if blocks else run_one)(settings, changes=changes, **asked)
    show(outcome, settings, json)
    raise typer.Exit(outcome.exit_code)


def run_one(settings: Settings, *, changes: dict[str, Any], **asked: Any) -> Outcome:
    """The same steps through Prefect, or called directly when the settings say so."""
    if not settings.orchestrate:
        request = make_request(settings, changes=changes, **asked)
        steps = Steps()
        with _imports_set_aside(), Tracking(settings) as tracking:
            outcome = run_week(request, settings, steps, tracking, fit_segments_on)
        follow_drift(outcome, settings, steps)
        return outcome
    with prefect_api(settings) as api:
        make_request(settings, changes=changes, **asked)  # a wrong call is said before anything is started
        from flows.weekly import weekly  # imports Prefect, while its server boots

        # needed soon, and the server may still boot
        for load in (load_great_expectations, load_numba, load_matplotlib):
            if not api.answers():
                load()
        api.wait()
        given = {name: asked.get(name) for name in ("sales", "listing", "costs", "stores", "skus")}
        with _imports_set_aside(), passwords_in_environment(given) as shown:
            return cast(Outcome, weekly(config=changes, dask=settings.dask_address, **{**asked, **shown}))


def run_by_blocks(settings: Settings, *, changes: dict[str, Any], **asked: Any) -> Outcome:
    """The week by row blocks on a cluster, whose own scheduler keeps track of it: without Prefect."""
    from ew_pipeline.cluster.run_blocks import run_blocks

    request, steps = make_request(settings, changes=changes, **asked), Steps()
    with Tracking(settings, early=False) as tracking:
        outcome = run_blocks(request, settings, steps, tracking)
    follow_drift(outcome, settings, steps)
    return outcome


@contextmanager
def _imports_set_aside() -> Iterator[None]:
    """What the libraries have made by now stays: the garbage collector need not look through it, again and
    again, while a week makes hundreds of thousands of objects of its own. At the end they are given back, or
    libraries that count what is left of theirs would report leaks when the process ends."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def show(outcome: Outcome, settings: Settings, json: bool) -> None:
    """The closing tally on stderr; with ``json`` the outcome on stdout."""
    if json:
        emit_json(describe(outcome))
    if outcome.result is None:
        messages().print(f"Nothing new: {outcome.run_id} was published from the same inputs.", markup=False)
    else:
        said = summary_lines(
            outcome.result, override=outcome.result.override, publish_anyway=outcome.publish_anyway
        )
        for line in said:
            messages().print(line, markup=False, soft_wrap=True)
    messages().print(f"Report: {outcome.report}", markup=False, soft_wrap=True)


def describe(outcome: Outcome) -> dict[str, Any]:
    """The outcome for a program."""
    result, publication = outcome.result, outcome.publication
    described: dict[str, Any] = {
        "status": outcome.status,
        "exit_code": int(outcome.exit_code),
        "run_id": outcome.run_id,
        "publication": publication.id if publication else None,
        "report": str(outcome.report),
        "folder": str(outcome.folder),
    }
    if result is not None:
        described |= {
            "week": str(result.week),
            "flags": result.totals.flagged,
            "scored": result.totals.pairs,
            "expected_saving": result.expected_saving,
            "random_checks": len(result.random_checks),
            "theta": result.pooled,
            "theta_over_weeks": result.over_weeks.get("pooled"),
            "priced": {
                "asked": result.pricing.asked,
                "form": result.pricing.form,
                "words": result.pricing.words,
                "calibration": result.pricing.version,
            },
            "cross_section": result.cross_section,
            "segments": {one.name: {"rank": one.rank, "theta": one.theta} for one in result.segments},
            "gate": result.gate,
            "coverage": result.coverage,
            "data_hash": result.provenance.data_hash,
            "config_hash": result.provenance.config_hash,
            "code_version": result.provenance.code_version,
            "mlflow_run_id": result.provenance.mlflow_run_id,
            "flow_run_id": result.provenance.flow_run_id,
            "started_at": result.started_at.isoformat(),
            "timings": dict(result.timings),
        }
    elif publication is not None:
        described["week"] = publication.week
    return described
