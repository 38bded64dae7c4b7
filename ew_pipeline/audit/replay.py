"""Make a run again from the ledger and its snapshot alone, and hold it against what was stored."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from ew_pipeline.audit.compare import Comparison, compare_fits, compare_pairs
from ew_pipeline.audit.files import vouched
from ew_pipeline.audit.versions import VersionDifference, checkout_command, uncertain, version_differences
from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.decide.flags import decide
from ew_pipeline.expect.fit import FittedSegment, fit_segments
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.infer.theta import pool_theta
from ew_pipeline.intake.assemble import prepare
from ew_pipeline.intake.snapshot import load_snapshot
from ew_pipeline.ledger import Ledger, Run
from ew_pipeline.ledger.rows import theta_columns
from ew_pipeline.ledger.writing import SCORES
from ew_pipeline.weekly.price import price

Say = Callable[[str], None]


@dataclass(frozen=True)
class Replay:
    """``notes``: what could not be compared, and why. ``checkout``: the way to the recorded version."""

    run_id: str
    week: str
    versions: tuple[VersionDifference, ...]
    checkout: str
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return all(one.equal for one in self.comparisons)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def replay(ledger: Ledger, settings: Settings, run_id: str, say: Say | None = None) -> Replay:
    """Prepare, fit and decide once more, with the recorded configuration; nothing stored is changed."""
    say = say or (lambda text: None)
    run = ledger.run(run_id)
    if run.pairs_scored is None or run.data_hash is None:
        raise UsageError(f"run {run_id} has no result to compare with ({run.status}).")
    versions, checkout = version_differences(run), checkout_command(run, str(settings.root))
    for line in version_words(run, versions, checkout):
        say(line)
    snapshot = load_snapshot(run.data_hash, settings)
    config = _config(run, checkout)
    prepared = prepare(snapshot, run.week, config)
    with tempfile.TemporaryDirectory(prefix="ew-replay-") as folder:
        fitted = fit_segments(prepared, config, Path(folder), settings.threads)
    # No cache of past weeks here: a replay takes nothing from earlier runs but what the ledger vouches for.
    priced = price(prepared, fitted, config)
    scores = decide(fitted, priced.probability, run.week, config)
    own = next(
        (one for one in ledger.publications(run.week) if one.run_id == run_id and one.kind == "publish"), None
    )
    comparisons = [*compare_fits(ledger.segments(run_id), fits_frame(fitted, priced.pricing))]
    notes = []
    place = run.folder / SCORES
    if place.is_file():
        comparisons += compare_pairs("scores", _read_scores(place), scores)
        if own is not None and vouched(own.files).get(SCORES) != file_hash(place):
            notes.append(f"{place} is not the file that was published: ew audit verify")
    else:
        notes.append("the scores of all pairs are not stored any more; theta and flags are compared")
    if own is None:
        notes.append(f"the run was never published ({run.status}), so there are no flags to compare")
    else:
        comparisons += compare_pairs("flags", ledger.flags(own.id), scores[scores["flagged"]])
    return Replay(run_id, str(run.week), versions, checkout, tuple(comparisons), tuple(notes))


def version_words(run: Run, versions: tuple[VersionDifference, ...], checkout: str) -> Iterator[str]:
    """Said before anything is computed: what a difference may come from."""
    if versions:
        yield f"This is not what {run.run_id} was made with:"
        yield from (f"  {one}" for one in versions)
    if uncertain(run):
        yield f"  {run.code_version}: made with changes that were not committed; the commit lacks them."
    if versions:
        yield f"To replay with the recorded version: {checkout}"


def words(found: Replay) -> Iterator[str]:
    """The result for a person."""
    for where in ("theta", "scores", "flags"):
        these = [one for one in found.comparisons if one.where == where]
        wrong = [one for one in these if not one.equal]
        if not these:
            continue
        largest = max((one.largest for one in these), default=0.0)
        names = ", ".join(one.what for one in these)
        if not wrong:
            yield f"equal      {where} of {these[0].compared:,} (largest difference {largest:.1e}): {names}"
        for one in wrong:
            yield (
                f"DIFFERENT  {where} {one.what}: {one.different:,} of {one.compared:,}, "
                f"largest {one.largest:.3g}; {one.example}"
            )
    for note in found.notes:
        yield f"note       {note}"
    if found.equal:
        yield f"{found.run_id} was made again, number by number."
    else:
        yield f"{found.run_id} came out differently." + (
            f" Replay with the recorded version: {found.checkout}" if found.versions else ""
        )


def fits_frame(fitted: tuple[FittedSegment, ...], pricing: Pricing) -> pd.DataFrame:
    """What was fitted, in the columns of the ledger's segments."""
    rows: list[dict[str, Any]] = [
        {
            "segment": one.record.name,
            **theta_columns(one.record.theta),
            "rank": one.record.rank,
            "dispersion_size": one.record.dispersion_size,
            "null_gain": one.record.null_gain,
            "noise": one.record.noise,
            "anomaly": one.record.anomaly,
            "mode": one.record.mode,
            "converged": one.record.converged,
        }
        for one in fitted
    ]
    pooled = {"segment": "pooled", **theta_columns(pool_theta([one.record.theta for one in fitted]))}
    frame = pd.DataFrame([*rows, pooled]).assign(calibration=pricing.version)
    # The ledger has no infinity: Poisson is an empty dispersion.
    finite = frame["dispersion_size"].astype("float64")
    frame["dispersion_size"] = finite.where(finite.abs() != float("inf"))
    return frame


def _config(run: Run, checkout: str) -> RunConfig:
    try:
        return RunConfig.model_validate(run.config)
    except ValidationError as error:
        raise UsageError(
            f"the configuration of {run.run_id} has settings that this version does not know "
            f"({error.error_count()} of them).",
            f"replay with the recorded version: {checkout}",
        ) from None


def _read_scores(place: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(place)
    except (OSError, ValueError) as error:
        raise EwError(
            f"{place} cannot be read: {error}.", "ew audit verify names what was changed."
        ) from error
