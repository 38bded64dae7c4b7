"""Fit every segment's matrix, and describe each fit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.intake.assemble import Prepared, SegmentInput
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.folds import RankCurve
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.theta import Theta


@dataclass(frozen=True)
class SegmentResult:
    """One fitted matrix."""

    name: str  # "all" when there is one
    stores: int
    skus: int
    pairs: int
    theta: Theta
    rank: int
    noise: str
    anomaly: str
    dispersion_size: float  # infinite: Poisson
    mode: str
    mode_reason: str
    converged: bool
    null_gain: float  # nats by which the model with anomalies beats the one without
    rank_curve: tuple[tuple[int, float], ...]  # (rank, leave-one-out log predictive per pair)
    held_out_curve: tuple[tuple[int, float], ...]
    rank_weights: Mapping[int, float]
    singular_values: tuple[float, ...]
    warnings: tuple[str, ...]
    seconds: float
    model: Path | None  # folder with model.json and arrays.npz; None: by row blocks, nowhere in one place


@dataclass(frozen=True, eq=False)
class FittedSegment:
    """A segment's input, its fit, and the record of it that is kept."""

    given: SegmentInput
    fit: DetectorFit
    record: SegmentResult


def fit_segments(
    prepared: Prepared,
    config: RunConfig,
    folder: Path,
    threads: int = 1,
    on_fitted: Callable[[SegmentResult], None] | None = None,
) -> tuple[FittedSegment, ...]:
    """Fit each segment; ``folder/<segment>`` is for its model. The result does not depend on ``threads``."""
    workers = max(1, min(threads, len(prepared.segments)))
    threads_each = max(1, threads // workers)

    def one(segment: SegmentInput) -> FittedSegment:
        fitted = fit_segment(segment, config, folder / folder_name(segment.name), threads_each)
        if on_fitted is not None:
            on_fitted(fitted.record)
        return fitted

    if workers == 1:
        return tuple(one(segment) for segment in prepared.segments)
    with ThreadPoolExecutor(workers) as pool:  # the kernels release the interpreter's lock
        return tuple(pool.map(one, prepared.segments))


def fit_segment(segment: SegmentInput, config: RunConfig, folder: Path, threads: int) -> FittedSegment:
    """Fit one segment; ``folder`` is where its model will be."""
    started = time.perf_counter()
    try:
        fit = make_detector(config, config.detector.mode, threads).fit(segment.sales, level=segment.level)
    except EwError as error:
        if segment.name != "all":
            error.message = f"segment {segment.name}: {error.message}"
        raise
    return FittedSegment(segment, fit, describe(segment, fit, folder, time.perf_counter() - started))


def make_detector(config: RunConfig, mode: str, threads: int = 1) -> EntrywiseDetector:
    """A detector of this mode with the run's settings."""
    settings = config.detector
    return EntrywiseDetector(
        mode,
        rank=settings.rank,
        noise=settings.noise,
        anomaly=settings.anomaly,
        probability="drop" if config.probability == "drop" else "posterior",
        max_rank=settings.max_rank,
        n_threads=threads,
        random_state=settings.random_state,
    )


def describe(segment: SegmentInput, fit: DetectorFit, folder: Path, seconds: float) -> SegmentResult:
    """The record of a fit."""
    return SegmentResult(
        name=segment.name,
        stores=fit.sales.shape[0],
        skus=fit.sales.shape[1],
        pairs=fit.sales.n_observed,
        theta=fit.theta_,
        rank=fit.rank_,
        noise=fit.noise_,
        anomaly=fit.anomaly_,
        dispersion_size=fit.dispersion_size_,
        mode=fit.mode_,
        mode_reason=fit.mode_reason_,
        converged=fit.converged_,
        null_gain=fit.null_gain_,
        rank_curve=curve_points(fit.rank_curve_),
        held_out_curve=curve_points(fit.held_out_curve_),
        rank_weights=dict(fit.rank_weights_),
        singular_values=tuple(float(value) for value in fit.factors_.singular_values()),
        warnings=fit.warnings_,
        seconds=seconds,
        model=folder,
    )


def folder_name(segment: str) -> str:
    """A name any file system takes; two segments never share one."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", segment).strip("-")[:40]
    return safe if safe == segment else f"{safe or 'segment'}-{canonical_hash(segment)[:8]}"


def curve_points(curve: RankCurve | None) -> tuple[tuple[int, float], ...]:
    """Rank and score, as they are recorded."""
    if curve is None:
        return ()
    return tuple((int(rank), float(score)) for rank, score in zip(curve.ranks, curve.scores, strict=True))
