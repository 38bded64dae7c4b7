#!/usr/bin/env python3
"""Verify this package with Python's standard library alone: python3 verify.py [FOLDER] [--head SEQ:HASH]

Nothing is installed and nothing is changed. Ends with 0 when everything is as it was written, else with 3
and a line for each thing that is not. README.md says what is checked.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
KEYS = {"runs": ("run_id", "revision"), "segments": ("run_id", "segment")}  # all other tables: id
MANIFEST = "manifest.json"


def canonical(value: Any) -> bytes:
    """One text for one value: keys sorted, no spaces, floats as Python writes them."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def record_hash(row: Row) -> str:
    """A row without its empty columns."""
    return sha256(canonical({name: value for name, value in row.items() if value is not None}))


def rows(folder: Path, table: str) -> list[Row]:
    path = folder / "ledger" / f"{table}.jsonl"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def check_files(folder: Path, manifest: Row) -> Iterator[str]:
    """Every file of the package against manifest.json."""
    present = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for path, known in sorted(manifest["files"].items()):
        if path not in present:
            yield f"{path} is gone"
        elif file_sha256(folder / path) != known:
            yield f"{path} was edited"
    for path in sorted(present - set(manifest["files"]) - {MANIFEST}):
        yield f"{path} was put there afterwards"


def check_chain(links: list[Row], manifest: Row) -> Iterator[str]:
    """Every link follows the one before, and the last one is the head."""
    previous = sha256(canonical(["ew ledger", manifest["ledger_id"]]))
    for place, link in enumerate(links, start=1):
        seq, name, key = link["seq"], link["table_name"], link["record_key"]
        if seq != place or link["previous_hash"] != previous:
            yield f"link {seq} of the chain ({name} {key}) does not follow the one before"
            return
        if sha256(canonical([seq, name, key, link["record_hash"], previous])) != link["hash"]:
            yield f"link {seq} of the chain ({name} {key}) was edited"
        previous = link["hash"]
    if (manifest["head"]["seq"], manifest["head"]["hash"]) != (len(links), previous):
        yield f"the chain ends at link {len(links)}, not at the head that {MANIFEST} names"


def check_rows(folder: Path, links: list[Row], manifest: Row) -> Iterator[str]:
    """Every row has its link, and every link of the weeks of the package has its row."""
    known = {(link["table_name"], link["record_key"]): link["record_hash"] for link in links}
    for table in sorted({name for name, _ in known}):
        for row in rows(folder, table):
            key = "/".join(str(row.get(name)) for name in KEYS.get(table, ("id",)))
            linked = known.pop((table, key), None)
            if linked is None:
                yield f"row {key} of {table} was not written by the ledger, or is there twice"
            elif record_hash(row) != linked:
                yield f"row {key} of {table} was edited"
    for table, key in sorted(known):
        if table == "publications" or (table in KEYS and key[:8] in manifest["weeks"]):
            yield f"row {key} of {table} is not in the package"


def check_flags(folder: Path, publication: Row) -> Iterator[str]:
    """The flags of a publication are chained, and it vouches for the last hash."""
    number = publication["id"]
    previous = sha256(canonical(["flags", number, publication["week"], publication["run_id"]]))
    flags = rows(folder, f"flags/{number}")
    for place, flag in enumerate(flags):
        stored = flag.pop("row_hash")
        name = f"flag {place} of publication {number} ({flag['store_id']} {flag['sku_id']} {flag['week']})"
        text = canonical({column: value for column, value in flag.items() if value is not None})
        if flag["position"] != place:
            yield f"{name} is out of place"
        if sha256(previous.encode() + text) != stored:
            yield f"{name} was edited, or a flag before it is gone"
            return
        previous = stored
    if (len(flags), previous) != (publication["flags_count"], publication["flags_hash"]):
        wanted = publication["flags_count"]
        yield f"publication {number} vouches for {wanted} other flags than these {len(flags)}"


def check_runs(folder: Path, publication: Row, removed: dict[str, Row], manifest: Row) -> Iterator[str]:
    """The files of a run against its publication."""
    run_id = publication["run_id"]
    for path, known in sorted(json.loads(publication["files"]).items()):
        place = f"runs/{run_id}/{path}"
        if (folder / place).is_file():
            if file_sha256(folder / place) != known:
                yield f"{place} is not the file that publication {publication['id']} vouches for"
        elif removed.get(run_id, {}).get(path) != known and place not in manifest["left_out"]:
            yield f"{place} is not in the package"


def check_snapshot(folder: Path, data_hash: str, manifest: Row) -> Iterator[str]:
    """A snapshot's manifest against its name, and its files against the manifest."""
    place = f"snapshots/{data_hash}"
    if place in manifest["left_out"]:
        return
    try:
        kept = json.loads((folder / place / MANIFEST).read_text(encoding="utf-8"))
        content = {name: kept[name] for name in ("rule", "week", "segment_by", "parts")}
        if sha256(canonical(content)) != data_hash:
            yield f"{place}/{MANIFEST} was edited"
        for table in kept["tables"].values():
            if file_sha256(folder / place / table["file"]) != table["sha256"]:
                yield f"{place}/{table['file']} was edited"
    except (OSError, ValueError, KeyError) as error:
        yield f"{place} cannot be read: {error}"


def check(folder: Path, head: str | None = None) -> list[str]:
    """Everything that is not as it was written."""
    manifest: Row = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    wrong = list(check_files(folder, manifest))
    links = rows(folder, "chain")
    wrong += check_chain(links, manifest)
    if head is not None:
        seq, _, known = head.partition(":")
        if not any(str(link["seq"]) == seq and link["hash"] == known for link in links):
            wrong.append(f"the chain has no link {seq} with the hash that was given")
    wrong += check_rows(folder, links, manifest)
    removed: dict[str, Row] = {}
    for row in rows(folder, "removals"):
        removed.setdefault(row["run_id"], {}).update(json.loads(row["files"]))
    for publication in rows(folder, "publications"):
        if publication["week"] in manifest["weeks"] and publication["kind"] == "publish":
            wrong += check_flags(folder, publication)
            wrong += check_runs(folder, publication, removed, manifest)
            wrong += check_snapshot(folder, publication["data_hash"], manifest)
    return wrong


def main(arguments: list[str]) -> int:
    head = None
    if "--head" in arguments:
        at = arguments.index("--head")
        head = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    folder = Path(arguments[0]) if arguments else Path(__file__).resolve().parent
    try:
        wrong = check(folder, head)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        wrong = [f"the package cannot be read: {type(error).__name__}: {error}"]
    print(f"package  {file_sha256(folder / MANIFEST) if (folder / MANIFEST).is_file() else 'no ' + MANIFEST}")
    for line in wrong:
        print(f"WRONG    {line}")
    print("intact   everything is as it was written" if not wrong else f"{len(wrong)} wrong")
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
