"""Checks into the ledger: validated, idempotent, conflicts named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ew_pipeline.checks.evidence import Evidence, evidence_of
from ew_pipeline.checks.reading import CheckTable
from ew_pipeline.core.errors import DataError
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.reading import UNDECIDED
from ew_pipeline.ledger.records import now
from ew_pipeline.ledger.store import newest_checks


@dataclass(frozen=True)
class Refused:
    """A row that was not recorded, and why."""

    key: str
    why: str


@dataclass
class Recorded:
    """What became of a table of checks. ``unlinked``: kept, but no publication said anything of the pair."""

    added: int = 0
    unchanged: int = 0
    empty: int = 0
    unlinked: int = 0
    refused: list[Refused] = field(default_factory=list)
    conflicts: list[Refused] = field(default_factory=list)


def record_checks(ledger: Ledger, table: CheckTable, *, by: str, correct: bool = False) -> Recorded:
    """Record every sound row that says something new.

    The same row again changes nothing. Another outcome for a pair that already has one is a conflict, and is
    recorded only with ``correct``; the earlier row stays in the ledger, the newest one counts. Raises
    ``DataError`` when the table as a whole is broken.
    """
    from ew_pipeline.intake.contract import validate_table

    if table.rows.empty and table.empty:
        return Recorded(empty=table.empty)
    report = validate_table("checks", table.rows, label="checks")
    if report.rejected:
        raise DataError(
            f"{table.label} is rejected: {report}.", "correct it and import it again; nothing was recorded."
        )
    done = Recorded(empty=table.empty)
    for position, reason in zip(report.faulty["position"], report.faulty["reason"], strict=True):
        done.refused.append(Refused(_key_text(table.rows.iloc[position]), str(reason)))
    sound = table.rows[report.clean].reset_index(drop=True)
    new = list(_new_rows(ledger, sound, done, by, correct))
    ledger.append("checks", new)
    done.added = len(new)
    done.unlinked = sum(row["publication_id"] is None for row in new)
    return done


def _new_rows(
    ledger: Ledger, sound: pd.DataFrame, done: Recorded, by: str, correct: bool
) -> Iterator[dict[str, Any]]:
    for label, rows in sound.groupby("week", sort=True):
        week = Week.parse(str(label))
        known = {(row["store_id"], row["sku_id"]): row for row in _records(newest_checks(ledger, week))}
        pairs = set(zip(rows["store_id"], rows["sku_id"], strict=True))
        evidence = evidence_of(ledger, week, pairs)
        for row in _records(rows):
            pair = (row["store_id"], row["sku_id"])
            said = evidence.get(pair)
            source = _source(row.get("source"), said)
            if source not in ("flag", "random"):
                done.refused.append(Refused(_key_text(row), source))
                continue
            made = _row(row, week, source, said, by)
            before = known.get(pair)
            if before is not None and _same(before, made):
                done.unchanged += 1
            elif before is not None and before["outcome"] not in (UNDECIDED, made["outcome"]) and not correct:
                who = before["checked_by" if pd.notna(before["checked_by"]) else "recorded_by"]
                words = f"{before['outcome']} ({before['source']}) is recorded, by {who}; "
                words += f"now {made['outcome']} ({made['source']})"
                done.conflicts.append(Refused(_key_text(row), words))
            else:
                yield made


def _source(given: str | None, said: Evidence | None) -> str:
    """flag or random, or in words why neither will do."""
    if given is None:
        if said is not None and said.flagged:
            return "flag"
        if said is not None and said.drawn:
            return "random"
        return "neither flagged nor drawn at random; say which with the column source, or --source"
    if given == "random" and said is not None and said.flagged:
        return "flagged, so it cannot be of the random share of unflagged pairs"
    return given


def _row(row: dict[str, Any], week: Week, source: str, said: Evidence | None, by: str) -> dict[str, Any]:
    # A flag that was not published, or a pair that nobody drew, is kept but must not bias the figures.
    fits = said is not None and (
        said.flagged if source == "flag" else not said.flagged and said.drawn is not False
    )
    linked = said if fits else None
    return {
        "store_id": row["store_id"],
        "sku_id": row["sku_id"],
        "week": week,
        "outcome": row["outcome"],
        "source": source,
        "publication_id": None if linked is None else linked.publication_id,
        "checked_at": row.get("checked_at"),
        "checked_by": row.get("checked_by"),
        "recorded_at": now(),
        "recorded_by": by,
        "note": row.get("note"),
        "anomaly_probability": None if linked is None else linked.anomaly_probability,
        "cost_false_alarm": None if linked is None else linked.cost_false_alarm,
        "cost_missed": None if linked is None else linked.cost_missed,
        "inclusion_probability": None if linked is None else linked.inclusion,
    }


def _same(before: dict[str, Any], made: dict[str, Any]) -> bool:
    """Whether the new row adds nothing: what it leaves open is as it was."""
    names = ("outcome", "source", "checked_by", "checked_at", "note")
    return all(made[name] is None or before[name] == made[name] for name in names)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _key_text(row: Any) -> str:
    return " ".join("?" if row[name] is None else str(row[name]) for name in ("store_id", "sku_id", "week"))
