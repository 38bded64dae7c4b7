"""The segments of one week on the workers of a cluster, side by side."""

from __future__ import annotations

from pathlib import Path

from ew_pipeline.cluster.connection import (
    ClusterError,
    check_workers,
    connected,
    end_of_worker,
    forgotten,
    gathered,
)
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.expect.fit import FittedSegment, SegmentResult, fit_segment, folder_name
from ew_pipeline.intake.assemble import Prepared, SegmentInput
from ew_pipeline.tracking.model import load_model, save_model


def fit_segments_on(
    address: str, prepared: Prepared, config: RunConfig, folder: Path, settings: Settings
) -> tuple[FittedSegment, ...]:
    """Fit each segment on a worker of the cluster at ``address``.

    A segment's input travels with its task, so that the scheduler can give it to another worker when the
    first is lost. Models come back through ``folder``, which lies in the shared home: a worker saves what it
    has fitted, and we read it, number by number the same.
    """
    with connected(address) as client:
        from distributed import KilledWorker

        check_workers(client, settings, {}, publishing=False)
        # As many threads as there are for each: a worker with several takes as many segments at a time.
        threads = max(1, sum(client.nthreads().values()) // max(1, len(prepared.segments)))
        futures = {
            segment.name: client.submit(
                fit_on_worker, segment, config, folder / folder_name(segment.name), threads, pure=False
            )
            for segment in prepared.segments
        }
        records: dict[str, SegmentResult] = {}
        try:
            for name, future in futures.items():
                records[name] = gathered(client, future)
        except KilledWorker as error:
            raise ClusterError(
                f"segment {name} was not fitted: {end_of_worker(error)}.",
                "give the workers more memory, or run without --dask.",
            ) from error
        finally:
            forgotten(client, futures.values())
    return tuple(_read_back(segment, records[segment.name]) for segment in prepared.segments)


def fit_on_worker(segment: SegmentInput, config: RunConfig, folder: Path, threads: int) -> SegmentResult:
    """On a worker: fit, save for the client to read, and say what came out."""
    from distributed import get_worker

    fitted = fit_segment(segment, config, folder, threads=min(threads, get_worker().state.nthreads))
    save_model(fitted.fit, folder, level=segment.level)
    return fitted.record


def _read_back(segment: SegmentInput, record: SegmentResult) -> FittedSegment:
    assert record.model is not None  # only row blocks have none
    return FittedSegment(segment, load_model(record.model).fit, record)
