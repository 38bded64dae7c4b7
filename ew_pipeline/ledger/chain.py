"""The hash chain: every row of the ledger is a link, so that no row can be changed, added or removed unseen.

A row's hash is the SHA-256 of its canonical JSON, without the columns that are NULL: a column that a later
version adds leaves the old hashes as they are. A link binds that hash to its place and to the link before:

    hash = SHA-256([seq, table, key, record_hash, hash of link seq - 1])

The flags of a publication are chained among themselves instead, and the last hash is a column of the
publication: a hundred thousand flags are one link.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Table, insert, select, update

from ew_pipeline.core.errors import DataError
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.texts import each_once, number_texts, whole_texts
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.failures import LedgerError, shown

Row = Mapping[str, Any]
HEAD_ID = 1
LEAST_PLAIN, ABOVE_PLAIN = 1e-4, 1e16  # Python writes numbers outside with an exponent
# Same text as provenance.canonical_json; one encoder for all rows is twice as quick as one for each.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True)
class Head:
    """Where the chain ends. Kept somewhere else, it proves later that nothing was cut off."""

    ledger_id: str
    seq: int
    hash: str


def genesis(ledger_id: str) -> str:
    """What stands before the first link; another ledger has another one."""
    return canonical_hash(["ew ledger", ledger_id])


def plain(value: Any) -> Any:
    """A value as both databases give it back: -0.0 is 0.0, since SQLite does not keep its sign."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DataError(f"the ledger holds finite numbers only, not {value}.")
        return value + 0.0
    return value


def record_hash(row: Row) -> str:
    return hashlib.sha256(record_text(row).encode()).hexdigest()


def record_text(row: Row) -> str:
    """The canonical JSON that is hashed."""
    return _encode({name: value for name, value in row.items() if value is not None})


def scalar_text(value: float | str | None) -> str:
    """One value as ``record_text`` writes it; a number without the detour of the encoder."""
    return repr(plain(value)) if type(value) in (float, int) else _encode(value)


def scalar_texts(values: Sequence[Any] | pa.Array) -> pa.Array:
    """``scalar_text`` of each, and null where there is none; of a column at once, since a week has a million
    of them."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    if pa.types.is_floating(column.type):
        return _number_texts(column)
    if pa.types.is_integer(column.type):
        return whole_texts(column)
    return each_once(column, scalar_text)


def _number_texts(column: pa.Array) -> pa.Array:
    """Python and JSON's writer both use the fewest digits that say a number, but exponents elsewhere."""
    numbers = column.fill_null(0.0).to_numpy() + 0.0
    if not np.isfinite(numbers).all():
        plain(float(numbers[~np.isfinite(numbers)][0]))
    size = np.abs(numbers)
    other = (size != 0) & ((size < LEAST_PLAIN) | (size >= ABOVE_PLAIN))
    texts = number_texts(numbers)
    if other.any():
        written = pa.array([repr(number) for number in numbers[other].tolist()], texts.type)
        texts = pc.replace_with_mask(texts, pa.array(other), written)
    return pc.if_else(column.is_valid(), texts, None) if column.null_count else texts


def record_key(table: Table, row: Row) -> str:
    """The primary key as text, e.g. ``2026-W34-…/all``."""
    return "/".join(str(row[column.name]) for column in table.primary_key)


def link_hash(seq: int, table_name: str, key: str, hash_of_record: str, previous: str) -> str:
    return canonical_hash([seq, table_name, key, hash_of_record, previous])


def lock_head(connection: Connection) -> Head:
    """Read where the chain ends; in PostgreSQL this is where writers queue (SQLite lets one in at a time)."""
    connection.execute(select(tables.chain_head.c.id).with_for_update())
    return head_of(connection)


def head_of(connection: Connection) -> Head:
    """Where the chain ends."""
    found = connection.execute(select(tables.chain_head).where(tables.chain_head.c.id == HEAD_ID)).first()
    if found is None:
        raise LedgerError(
            f"the ledger {shown(connection.engine.url)} has lost the end of its chain: "
            "the row of chain_head is gone.",
            "run ew audit verify to see what else was changed, and put the last backup in its place.",
        )
    return Head(found.ledger_id, found.seq, found.hash)


def extend(connection: Connection, head: Head, records: Sequence[tuple[Table, Row]]) -> Head:
    """Insert rows and their links, in order; the head of the longer chain."""
    links = []
    for table, row in records:
        key, hashed = record_key(table, row), record_hash(row)
        seq = head.seq + 1
        link = link_hash(seq, table.name, key, hashed, head.hash)
        links.append(
            {
                "seq": seq,
                "table_name": table.name,
                "record_key": key,
                "record_hash": hashed,
                "previous_hash": head.hash,
                "hash": link,
            }
        )
        head = Head(head.ledger_id, seq, link)
    for table, rows in _runs_of_a_table(records):
        connection.execute(insert(table), rows)
    if links:
        connection.execute(insert(tables.chain), links)
        connection.execute(
            update(tables.chain_head).where(tables.chain_head.c.id == HEAD_ID),
            {"seq": head.seq, "hash": head.hash},
        )
    return head


def flags_start(publication_id: int, week: str, run_id: str) -> str:
    """What stands before a publication's first flag."""
    return canonical_hash(["flags", publication_id, week, run_id])


def next_flag_hash(previous: str, row: Row) -> str:
    """The ``row_hash`` of a flag, from that of the row before and its own other columns."""
    return _flag_hash(previous, record_text(row))


def chain_flags(start: str, texts: Iterable[str]) -> list[str]:
    """The ``row_hash`` of each flag, from the canonical JSON of its other columns."""
    hashes, previous = [], start
    for text in texts:
        previous = _flag_hash(previous, text)
        hashes.append(previous)
    return hashes


def _flag_hash(previous: str, text: str) -> str:
    return hashlib.sha256((previous + text).encode()).hexdigest()


def _runs_of_a_table(records: Sequence[tuple[Table, Row]]) -> list[tuple[Table, list[Row]]]:
    """Neighbours of one table together, as one insert."""
    grouped: list[tuple[Table, list[Row]]] = []
    for table, row in records:
        if not grouped or grouped[-1][0] is not table:
            grouped.append((table, []))
        grouped[-1][1].append(row)
    return grouped
