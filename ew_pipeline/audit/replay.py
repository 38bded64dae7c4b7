"""Make a run again from the ledger and its snapshot alone, and hold it against what was stored."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from ew_pipeline.audit.verify import vouched
from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.provenance import code_version, environment, file_hash
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

# Orchestration and tracking libraries change no number.
NUMERIC = ("python", "machine", "numpy", "scipy", "numba", "pandas", "pyarrow", "duckdb")
DIRTY = ".dirty"
TOLERANCE = 1e-9
Name = Callable[[int], str]  # of the k-th pair or segment; asked for the one that is shown
KEY = ["store_id", "sku_id"]
NUMBERS = (
    "units",
    "expected_units",
    "level",
    "posterior",
    "anomaly_probability",
    "cost_false_alarm",
    "cost_missed",
    "threshold",
    "expected_saving",
    "store_rank",
)
TEXTS = ("segment", "reasons")
THETA = (
    "alpha",
    "alpha_low",
    "alpha_high",
    "anomaly_rate",
    "anomaly_rate_low",
    "anomaly_rate_high",
    "rank",
    "dispersion_size",
    "null_gain",
)
FIT_TEXTS = ("noise", "anomaly", "mode", "converged", "calibration")
Say = Callable[[str], None]


@dataclass(frozen=True)
class VersionDifference:
    """Something that is not what the run was made with."""

    name: str
    recorded: str
    here: str

    def __str__(self) -> str:
        return f"{self.name} {self.recorded} was recorded, this is {self.here}"


@dataclass(frozen=True)
class Comparison:
    """One quantity. ``largest``: the largest difference, over those that both have a number for."""

    where: str  # theta, scores or flags
    what: str
    compared: int
    different: int
    largest: float
    example: str  # the worst one, with both values; empty when all are equal

    @property
    def equal(self) -> bool:
        return self.different == 0


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


def version_differences(run: Run) -> tuple[VersionDifference, ...]:
    """The code first, then the libraries that do arithmetic."""
    here = environment()
    found = [VersionDifference("ew-pipeline", run.code_version, code_version())]
    found += [
        VersionDifference(name, run.environment.get(name, "none"), here.get(name, "none")) for name in NUMERIC
    ]
    return tuple(one for one in found if one.recorded != one.here)


def uncertain(run: Run) -> bool:
    """The run was made from a checkout with changes that were never committed."""
    return run.code_version.endswith(DIRTY)


def checkout_command(run: Run, home: str) -> str:
    """What to type to replay with the recorded version."""
    version, _, commit = run.code_version.removesuffix(DIRTY).partition("+")
    again = f"EW_HOME={home} .venv/bin/ew audit replay {run.run_id}"
    if commit:
        return f"git worktree add ../ew-{commit} {commit} && cd ../ew-{commit} && make setup && {again}"
    return f"python3 -m venv .venv && .venv/bin/pip install ew-pipeline=={version} && {again}"


def compare_pairs(where: str, stored: pd.DataFrame, made: pd.DataFrame) -> Iterator[Comparison]:
    """Frames with a row per pair: which pairs are in them, then every column that both have."""
    stored, made = _keyed(stored), _keyed(made)
    both = stored.index.intersection(made.index)
    only = [*stored.index.difference(made.index), *made.index.difference(stored.index)]
    example = ""
    if only:
        side = "stored only" if only[0] in stored.index else "replayed only"
        example = f"{' '.join(only[0])}: {side}"
    yield Comparison(where, "pairs", len(stored), len(only), float(len(only)), example)
    stored, made = stored.loc[both], made.loc[both]

    def names(k: int) -> str:
        return " ".join(both[k])

    for column in NUMBERS:
        if column in stored and column in made:
            yield compare_numbers(where, column, stored[column], made[column], names)
    for column in (*TEXTS, "flagged", "random_check"):
        if column in stored and column in made:
            yield compare_texts(where, column, stored[column], made[column], names)


def compare_fits(stored: pd.DataFrame, made: pd.DataFrame) -> Iterator[Comparison]:
    """Frames with a row per segment."""
    stored, made = stored.set_index("segment"), made.set_index("segment")
    both = stored.index.intersection(made.index)
    other = stored.index.symmetric_difference(made.index)
    example = f"segment {other[0]}" if len(other) else ""
    yield Comparison("theta", "segments", len(stored), len(other), float(len(other)), example)

    def names(k: int) -> str:
        return f"segment {both[k]}"

    for column in THETA:
        yield compare_numbers("theta", column, stored.loc[both, column], made.loc[both, column], names)
    for column in FIT_TEXTS:
        yield compare_texts("theta", column, stored.loc[both, column], made.loc[both, column], names)


def compare_numbers(where: str, what: str, stored: Any, made: Any, name_of: Name) -> Comparison:
    """Equal to 1e-9, absolute below one and relative above; absent equals absent."""
    a = np.asarray(pd.to_numeric(stored).astype("float64"), dtype=np.float64)
    b = np.asarray(pd.to_numeric(made).astype("float64"), dtype=np.float64)
    absent = np.isnan(a) | np.isnan(b)
    gap = np.abs(np.where(absent, 0.0, a) - np.where(absent, 0.0, b))
    scale = np.maximum(1.0, np.maximum(np.abs(np.nan_to_num(a)), np.abs(np.nan_to_num(b))))
    wrong = (gap > TOLERANCE * scale) | (np.isnan(a) != np.isnan(b))
    example = ""
    if wrong.any():
        worst = int(np.argmax(np.where(wrong, np.where(absent, np.inf, gap), -1.0)))
        example = f"{name_of(worst)}: {a[worst]:.12g} stored, {b[worst]:.12g} replayed"
    return Comparison(where, what, a.size, int(wrong.sum()), float(gap.max(initial=0.0)), example)


def compare_texts(where: str, what: str, stored: Any, made: Any, name_of: Name) -> Comparison:
    a, b = (_texts(values) for values in (stored, made))
    wrong = np.asarray(a != b, dtype=bool)
    example = ""
    if wrong.any():
        first = int(np.argmax(wrong))
        example = f"{name_of(first)}: {a[first]} stored, {b[first]} replayed"
    return Comparison(where, what, a.size, int(wrong.sum()), float(wrong.any()), example)


def _texts(values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Absent is an empty text, however a column says so."""
    column = pd.Series(values).astype("object")
    return np.asarray(column.where(column.notna(), "").map(str), dtype=object)


def _keyed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{name: frame[name].astype("str") for name in KEY}).set_index(KEY).sort_index()
