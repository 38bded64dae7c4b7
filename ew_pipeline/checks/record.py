"""What people found at the shelves: read, validated, compared with what was published, recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.schema import CHECKS
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import DRAWN
from ew_pipeline.intake.contract import validate_table
from ew_pipeline.intake.sources import open_source
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.ledger.reading import UNDECIDED
from ew_pipeline.ledger.records import now
from ew_pipeline.ledger.store import newest_checks

OPTIONAL = ("note", "checked_at")  # columns the ledger has room for
# The apostrophe that a check list puts before what a spreadsheet would take for a formula.
GUARD = re.compile(r"(?:\A|(?<=[,;|\t\r\n]))'(?=\s*[=+\-@＝＋－＠]|[\t\r\n])")
Pair = tuple[str, str]
PRICED = ["anomaly_probability", "cost_false_alarm", "cost_missed"]


@dataclass(frozen=True, eq=False)
class CheckTable:
    """``rows``: text columns of ``schema.CHECKS``, None where missing. ``empty``: rows without outcome."""

    rows: pd.DataFrame
    empty: int
    label: str


def read_checks(spec: str) -> CheckTable:
    """Read a file or a database table (``intake.sources``); a filled-in check list is one.

    Rows whose outcome is empty are not checks yet and are passed over.
    """
    import duckdb

    with duckdb.connect() as connection:
        source = open_source(spec, connection)
        absent = [name for name in CHECKS.required if name not in source.columns]
        if absent:
            raise DataError(
                f"{source.label} has no column {name_some(absent, len(absent))}.",
                f"a table of checks has {', '.join(CHECKS.names)}; a filled-in check_list.csv is one.",
            )
        names = [name for name in (*CHECKS.names, *OPTIONAL) if name in source.columns]
        cells = [
            f"{source.week_text('week')} AS week"
            if name == "week"
            else f'CAST("{name}" AS VARCHAR) AS "{name}"'
            for name in names
        ]
        frame = connection.execute(f"SELECT {', '.join(cells)} FROM {source.relation(names, None)}").df()
        return _table(frame, source.label)


def _table(frame: pd.DataFrame, label: str) -> CheckTable:
    cells = {name: _texts(frame[name]) for name in frame.columns}
    given = [row for row, outcome in enumerate(cells["outcome"]) if outcome is not None]
    rows = {name: [_meant(name, texts[row]) for row in given] for name, texts in cells.items()}
    # As objects: a column of texts would turn None into NaN.
    made = pd.DataFrame({name: pd.Series(texts, dtype=object) for name, texts in rows.items()})
    return CheckTable(made, len(frame) - len(given), label)


def one_check(**values: str | None) -> CheckTable:
    """A single check, from the command line."""
    return _table(pd.DataFrame({name: [value] for name, value in values.items()}, dtype=object), "the check")


def _texts(column: pd.Series[str]) -> list[str | None]:
    texts = (None if not isinstance(value, str) else value.strip() for value in column)
    return [text or None for text in texts]


def _meant(column: str, text: str | None) -> str | None:
    """People type ``Not checked``, and a check list guards ids against spreadsheets."""
    if text is None:
        return None
    if column in ("outcome", "source"):
        return re.sub(r"[\s-]+", "_", text.lower())
    if column in ("store_id", "sku_id"):
        return GUARD.sub("", text)
    if column == "week":
        try:
            return str(Week.parse(text))
        except UsageError:
            return None
    return text


@dataclass(frozen=True)
class Evidence:
    """``drawn``: of the random share; None when the run drew none, so that it cannot be told.

    ``inclusion``: the probability that the pair was sent to be checked, where it is known.
    """

    publication_id: int
    flagged: bool
    drawn: bool | None
    anomaly_probability: float
    cost_false_alarm: float
    cost_missed: float
    inclusion: float | None


def evidence_of(ledger: Ledger, week: Week, pairs: set[Pair]) -> Mapping[Pair, Evidence]:
    """By pair; pairs that no publication of the week scored are absent.

    The live publication speaks first. A flag of an earlier one counts too: somebody may have walked to that
    shelf before it was superseded.
    """
    publications = [one for one in ledger.publications(week) if one.kind == "publish"]
    live = ledger.current(week)
    if live is None:
        return {}
    publications.sort(key=lambda one: (one.id != live.source_id, -one.id))
    found: dict[Pair, Evidence] = {}
    for publication in publications:
        for pair, evidence in _flags(ledger, publication, pairs).items():
            found.setdefault(pair, evidence)
    for publication in publications:
        for pair, evidence in _drawn(ledger, publication, pairs - set(found)).items():
            found[pair] = evidence
    source = next(one for one in publications if one.id == live.source_id)
    for pair, evidence in _unflagged(source, pairs - set(found)).items():
        found[pair] = evidence
    return found


def _flags(ledger: Ledger, publication: Publication, pairs: set[Pair]) -> dict[Pair, Evidence]:
    flags = ledger.flags(publication.id)
    columns = [flags[name] for name in ("store_id", "sku_id", *PRICED)]
    return {
        (store, sku): Evidence(publication.id, True, False, p, c0, c1, 1.0)
        for store, sku, p, c0, c1 in zip(*columns, strict=True)
        if (store, sku) in pairs
    }


def _drawn(ledger: Ledger, publication: Publication, pairs: set[Pair]) -> dict[Pair, Evidence]:
    drawn = ledger.random_checks(publication.id)
    columns = [drawn[name] for name in ("store_id", "sku_id", *PRICED, "inclusion_probability")]
    return {
        (store, sku): Evidence(publication.id, False, True, p, c0, c1, chance)
        for store, sku, p, c0, c1, chance in zip(*columns, strict=True)
        if (store, sku) in pairs
    }


def _unflagged(publication: Publication, pairs: set[Pair]) -> dict[Pair, Evidence]:
    if not pairs or publication.scores is None or not publication.scores.is_file():
        return {}
    scores = _read_scores(publication.scores)
    scores = scores[~scores["flagged"].to_numpy(dtype=bool)]
    if scores.empty:
        return {}
    inclusion = float(scores[DRAWN].mean()) if DRAWN in scores else None
    keys = pd.MultiIndex.from_arrays([scores["store_id"].astype("str"), scores["sku_id"].astype("str")])
    scores = scores[keys.isin(pairs)]
    drawn = scores[DRAWN].astype(bool).tolist() if DRAWN in scores else [None] * len(scores)
    columns = [scores["store_id"].astype("str"), scores["sku_id"].astype("str"), *(scores[n] for n in PRICED)]
    return {
        (store, sku): Evidence(publication.id, False, was_drawn, p, c0, c1, inclusion if was_drawn else None)
        for (store, sku, p, c0, c1), was_drawn in zip(zip(*columns, strict=True), drawn, strict=True)
    }


def _read_scores(place: Path) -> pd.DataFrame:
    present = pq.ParquetFile(place).schema_arrow.names
    wanted = ["store_id", "sku_id", "flagged", *PRICED, DRAWN]
    return pd.read_parquet(place, columns=[name for name in wanted if name in present])


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
