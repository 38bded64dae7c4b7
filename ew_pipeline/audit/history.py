"""What was current on a day, and what is removed after some weeks."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from zoneinfo import ZoneInfo

from ew_pipeline.audit.verify import present, removed_files, vouched
from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import ConfigRole, Ledger, Publication, Run
from ew_pipeline.ledger.records import now

PER_PAIR = ("scores.parquet", "model/*/arrays.npz")


@dataclass(frozen=True)
class LiveWeek:
    """A week as it stood: the publication that was live, and those that came after it, in order."""

    publication: Publication
    later: tuple[Publication, ...]


@dataclass(frozen=True)
class Past:
    """All that was live at ``moment``. ``champion``: the configuration that weekly runs used then."""

    moment: dt.datetime
    weeks: tuple[LiveWeek, ...]
    champion: ConfigRole | None


def as_of(ledger: Ledger, moment: dt.datetime) -> Past:
    """The ledger as it stood at ``moment``; with today's knowledge of what came after."""
    after: dict[str, list[Publication]] = {}
    for publication in ledger.publications():
        if publication.published_at > moment:
            after.setdefault(str(publication.week), []).append(publication)
    weeks = tuple(
        LiveWeek(publication, tuple(after.get(str(publication.week), ())))
        for publication in ledger.live(moment)
    )
    known = [role for role in ledger.config_roles("champion") if role.assigned_at <= moment]
    return Past(moment, weeks, known[-1] if known else None)


def parse_moment(text: str, time_zone: str) -> dt.datetime:
    """``2026-11-16`` (the end of that day) or ``2026-11-16T06:30``; in ``time_zone`` if it names none."""
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is not a date or a moment.", "write 2026-11-16, or 2026-11-16T06:30."
        ) from None
    if len(text.strip()) <= len("2026-11-16"):
        moment = dt.datetime.combine(moment.date(), dt.time.max)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(time_zone))


@dataclass(frozen=True)
class Pruned:
    """The per-pair files of one run."""

    run_id: str
    week: Week
    files: dict[str, str]  # path in the run's folder -> sha256
    bytes: int


def prune(ledger: Ledger, keep_weeks: int, *, by: str, dry_run: bool = False) -> tuple[Pruned, ...]:
    """Remove the per-pair files of all weeks but the newest ``keep_weeks`` published ones.

    Files that are not what the ledger vouches for are evidence: then nothing is removed. Snapshots, flags and
    reports stay, so a replay still works. The removal is recorded first: interrupted anywhere, verification
    still passes, and the next call removes what was left.
    """
    if keep_weeks < 1:
        raise UsageError(f"{keep_weeks} weeks cannot be kept.", "keep at least one.")
    published = sorted(publication.week for publication in ledger.live())
    if len(published) <= keep_weeks:
        return ()
    first_kept = published[-keep_weeks]
    runs = [run for run in ledger.runs() if run.week < first_kept]
    hashes = {one.run_id: vouched(one.files) for one in ledger.publications()}
    found = tuple(one for run in sorted(runs, key=_age) if (one := _per_pair(run)) is not None)
    changed = [
        f"{one.run_id}/{path}"
        for one in found
        for path, sha256 in one.files.items()
        if one.run_id in hashes and hashes[one.run_id].get(path) != sha256
    ]
    if changed:
        raise DataError(
            f"{len(changed)} files are not what was published: {name_some(changed, len(changed))}. "
            "Nothing was removed.",
            "ew audit verify names all of them; settle that first.",
        )
    if not dry_run:
        _record(ledger, found, f"older than the newest {keep_weeks} published weeks", by)
        folders = {run.run_id: run.folder for run in runs}
        for one in found:
            for path in one.files:
                (folders[one.run_id] / path).unlink(missing_ok=True)
    return found


def is_per_pair(path: str) -> bool:
    """Whether a file of a run grows with the number of pairs."""
    return any(fnmatch(path, pattern) for pattern in PER_PAIR)


def _record(ledger: Ledger, found: tuple[Pruned, ...], why: str, by: str) -> None:
    known = removed_files(ledger)
    ledger.append(
        "removals",
        [
            {
                "run_id": one.run_id,
                "week": one.week,
                "files": one.files,
                "bytes": one.bytes,
                "why": why,
                "removed_at": now(),
                "removed_by": by,
            }
            for one in found
            if not one.files.items() <= known.get(one.run_id, {}).items()  # left over from an interruption
        ],
    )


def _per_pair(run: Run) -> Pruned | None:
    found: dict[str, Path] = {
        name: path
        for name, path in (present(run.folder) if run.folder.is_dir() else {}).items()
        if is_per_pair(name)
    }
    if not found:
        return None
    hashes = {name: file_hash(path) for name, path in found.items()}
    return Pruned(run.run_id, run.week, hashes, sum(path.stat().st_size for path in found.values()))


def _age(run: Run) -> tuple[Week, str]:
    return run.week, run.run_id
