"""Is the ledger as it was written? Every row against the chain, and the chain against its heads.

One pass over each table. A change is named where it was made: a single edited flag is one problem, not one
for every flag after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from sqlalchemy import Boolean, Connection, Integer, Row, Table, select, type_coerce

from ew_pipeline.ledger import chain, tables
from ew_pipeline.ledger.chain import Head
from ew_pipeline.ledger.flags import SharedColumns
from ew_pipeline.ledger.records import Problem

BATCH = 5_000


def verify_ledger(
    connection: Connection, anchors: Iterable[tuple[int, str]], expected: Head | None
) -> list[Problem]:
    """All problems. ``anchors``: (seq, hash) of links that were written down elsewhere."""
    if connection.dialect.name == "sqlite":  # text that is no text is a finding, not a crash
        driver: Any = connection.connection.driver_connection
        driver.text_factory = lambda stored: stored.decode("utf-8", "surrogateescape")
    links: dict[tuple[str, str], str] = {}
    hashes: list[str] = []
    problems = [*_verify_chain(connection, links, hashes)]
    problems += _verify_heads(connection, hashes, anchors, expected)
    for table in tables.CHAINED:
        problems += _verify_table(connection, table, links)
    problems += [Problem("deleted", name, key, f"row {key} of {name} is gone") for name, key in sorted(links)]
    problems += _verify_flags(connection, {(problem.table, problem.key) for problem in problems})
    return problems


def _verify_chain(
    connection: Connection, links: dict[tuple[str, str], str], hashes: list[str]
) -> Iterator[Problem]:
    """Walk the links; fills what they say about each row, and the hash at each place."""
    head = connection.execute(select(tables.chain_head)).first()
    previous = "" if head is None else chain.genesis(head.ledger_id)
    place = 0
    for row in _stream(connection, tables.chain):
        place += 1
        seq, name, key = row["seq"], row["table_name"], row["record_key"]
        if seq != place:
            yield _broken(place, f"link {place} of the chain is gone; the next one is {seq}")
            hashes.extend([""] * (seq - place))
            place = seq
        elif row["previous_hash"] != previous:
            yield _broken(seq, f"link {seq} of the chain ({name} {key}) does not follow link {seq - 1}")
        if _hash(chain.link_hash, *_link(row)) != row["hash"]:
            yield _broken(seq, f"link {seq} of the chain ({name} {key}) was edited")
        previous = row["hash"]
        hashes.append(previous)
        links[(name, key)] = row["record_hash"]


def _link(row: Mapping[str, Any]) -> tuple[int, str, str, str, str]:
    return row["seq"], row["table_name"], row["record_key"], row["record_hash"], row["previous_hash"]


def _broken(seq: int, words: str) -> Problem:
    return Problem("broken", "chain", str(seq), words)


def _verify_heads(
    connection: Connection,
    hashes: list[str],
    anchors: Iterable[tuple[int, str]],
    expected: Head | None,
) -> Iterator[Problem]:
    rows = connection.execute(select(tables.chain_head)).all()
    if len(rows) != 1:
        yield Problem("broken", "chain_head", "1", f"chain_head has {len(rows)} rows, not one")
    for row in rows[:1]:
        if (row.seq, row.hash) != (len(hashes), hashes[-1] if hashes else chain.genesis(row.ledger_id)):
            yield Problem(
                "truncated",
                "chain_head",
                "1",
                f"the chain has {len(hashes)} links, its head says {row.seq}, or their hashes differ",
            )
        if expected is not None and expected.ledger_id != row.ledger_id:
            words = f"this is ledger {row.ledger_id}, not {expected.ledger_id}"
            yield Problem("broken", "chain_head", "1", words)
    for seq, found in anchors:
        yield from _verify_head(hashes, seq, found, "an anchor file in the home")
    if expected is not None:
        yield from _verify_head(hashes, expected.seq, expected.hash, "the expected head")


def _verify_head(hashes: list[str], seq: int, found: str, source: str) -> Iterator[Problem]:
    if seq > len(hashes):
        words = f"the chain ends at link {len(hashes)}, but {source} knows of link {seq}"
        yield Problem("truncated", "chain", str(seq), words)
    elif seq > 0 and hashes[seq - 1] != found:
        words = f"link {seq} of the chain is not the one that {source} knows"
        yield Problem("broken", "chain", str(seq), words)


def _verify_table(
    connection: Connection, table: Table, links: dict[tuple[str, str], str]
) -> Iterator[Problem]:
    """Compare every row with its link, and take the link away: what is left was deleted."""
    for row in _stream(connection, table):
        key = chain.record_key(table, row)
        linked = links.pop((table.name, key), None)
        if linked is None:
            yield Problem(
                "inserted", table.name, key, f"row {key} of {table.name} was not written by the ledger"
            )
        elif _hash(chain.record_hash, row) != linked:
            yield Problem("edited", table.name, key, f"row {key} of {table.name} was edited")


def _verify_flags(connection: Connection, changed: set[tuple[str, str]]) -> Iterator[Problem]:
    """``changed``: rows of other tables that are not what they were."""
    columns = tables.publications.c
    own = select(tables.publications).where(columns.kind == "publish").order_by(columns.id)
    published = {row.id: row for row in connection.execute(own)}
    shared = SharedColumns(connection)
    changed_runs = {key.partition("/")[0] for name, key in changed if name in ("runs", "segments")}
    walk: _FlagWalk | None = None
    seen = set()
    for row in _stream(connection, tables.flag_rows):
        number = row["publication_id"]
        if walk is None or walk.number != number:
            if walk is not None:
                yield from walk.end()
            found = published.get(number)
            edited = ("publications", str(number)) in changed
            walk = _FlagWalk(number, found, edited or (found is not None and found.run_id in changed_runs))
            seen.add(number)
        yield from walk.step(row, shared.of(number, row["segment"]))
    if walk is not None:
        yield from walk.end()
    for number in sorted(set(published) - seen):
        yield from _FlagWalk(number, published[number], False).end()


class _FlagWalk:
    """Along the flags of one publication, from the stored hash of one row to that of the next.

    ``changed``: some row is not what it was that its flags may share columns with. If no flag of a segment is
    what it was, that may be why, and is one problem; if one is, the others must be.
    """

    def __init__(self, number: int, publication: Row[Any] | None, changed: bool) -> None:
        self.number = number
        self.publication = publication
        self.changed = changed
        self.as_it_was: set[str] = set()
        self.unlike: dict[str, list[Problem]] = {}  # by segment, where all may be for what they share
        self.next = 0
        self.broken = False
        self.previous = (
            "" if publication is None else chain.flags_start(number, publication.week, publication.run_id)
        )

    def step(self, row: dict[str, Any], shared: Mapping[str, Any] | None) -> Iterator[Problem]:
        stored = row.pop("row_hash")
        position = row["position"]
        whole = row if shared is None else {**row, **shared}
        if self.publication is None:
            yield _of_flag("inserted", row, "{flag} belongs to no publication ({number})")
            return
        if position >= self.publication.flags_count or position < self.next:
            self.broken = True
            yield _of_flag("inserted", row, "{flag} {place} was not written by the ledger")
            return
        gap = position > self.next
        if gap:
            yield from self._gone(position)
        # After a gap the hash before is not there to compare with.
        elif _hash(chain.next_flag_hash, self.previous, whole) == stored:
            self.as_it_was.add(row["segment"])
        else:
            self.broken = True
            before = f", or row {position - 1} with its hash" if position else ""
            problem = _of_flag("edited", whole, "{flag} {place} was edited" + before)
            if self.changed:
                self.unlike.setdefault(row["segment"], []).append(problem)
            else:
                yield problem
        self.previous, self.next = stored, position + 1

    def end(self) -> Iterator[Problem]:
        if self.publication is None:
            return
        for segment, problems in self.unlike.items():
            if segment in self.as_it_was:
                yield from problems
            else:
                words = (
                    f"the {len(problems)} flags of publication {self.number}, segment {segment}, cannot be "
                    "checked: a row that they share columns with was changed. Restore it and verify again"
                )
                yield Problem("broken", "flags", f"{self.number}/{segment}", words)
        if self.next < self.publication.flags_count:
            yield from self._gone(self.publication.flags_count)
        elif not self.broken and self.previous != self.publication.flags_hash:
            words = (
                f"the flags of publication {self.number} ({self.publication.week}) are not those it hashed"
            )
            yield Problem("edited", "flags", str(self.number), words)

    def _gone(self, until: int) -> Iterator[Problem]:
        self.broken = True
        for position in range(self.next, until):
            words = (
                f"flag {position} of the {self.publication.flags_count if self.publication else 0} "
                f"of publication {self.number} is gone"
            )
            yield Problem("deleted", "flags", f"{self.number}/{position}", words)


def _of_flag(kind: Literal["inserted", "edited"], row: dict[str, Any], words: str) -> Problem:
    """Words are made for the few rows that have a problem, not for the millions that have none."""
    number, position = row["publication_id"], row["position"]
    flag = f"flag {row['store_id']} {row['sku_id']} {row.get('week', '')}".rstrip()
    place = f"(publication {number}, row {position})"
    return Problem(kind, "flags", f"{number}/{position}", words.format(flag=flag, place=place, number=number))


def _stream(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    """All rows in the order of their key, as stored: a yes/no that holds 7 must not read as yes."""
    raw = [
        type_coerce(column, Integer).label(column.name) if isinstance(column.type, Boolean) else column
        for column in table.columns
    ]
    switches = [column.name for column in table.columns if isinstance(column.type, Boolean)]
    query = select(*raw).order_by(*table.primary_key).execution_options(yield_per=BATCH)
    names = [column.name for column in table.columns]
    for found in connection.execute(query):
        row = dict(zip(names, found, strict=True))  # three times as quick as the row's own mapping
        for name in switches:
            row[name] = bool(row[name]) if row[name] in (0, 1) else row[name]
        yield row


def _hash(make: Callable[..., str], *values: Any) -> str | None:
    """None when a tampered value cannot even be hashed (bytes in a text column)."""
    try:
        return make(*values)
    except (TypeError, ValueError):
        return None
