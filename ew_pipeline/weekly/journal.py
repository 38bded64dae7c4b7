"""Which weeks of a backfill are done, so that the next one passes over them without reading the data.

A week is done when nothing it was made from has changed since: the source files (path, size, time of change),
the configuration and the code. It is still the ledger that says what is live; the journal only saves the
reading. Databases have no such marks: their weeks are read again, which changes nothing when the rows are the
same.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ew_pipeline.core.provenance import canonical_hash, canonical_json, code_version
from ew_pipeline.core.settings import Settings
from ew_pipeline.ledger import Ledger
from ew_pipeline.results import WeekRequest

FILE = "backfill.jsonl"
SOURCES = ("sales", "listing", "costs", "stores", "skus")


@dataclass(frozen=True)
class Done:
    """How a week ended; ``status`` is published, unchanged or held."""

    week: str
    inputs: str
    status: str
    run_id: str


class Journal:
    """One line per week that was done; the last one of a week counts."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.root / FILE
        self._done: dict[str, Done] = {}
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        for line in lines:
            try:
                done = Done(**json.loads(line))
            except (ValueError, TypeError):  # a line that a crash cut short
                continue
            self._done[done.week] = done

    def find(self, request: WeekRequest, ledger: Ledger) -> Done | None:
        """How the week ended before, if the same inputs would end in the same way."""
        inputs = fingerprint(request)
        done = self._done.get(str(request.week))
        if inputs is None or done is None or done.inputs != inputs:
            return None
        live = ledger.current(request.week)
        if done.status == "held":
            return done if request.override is None else None
        return done if live is not None and live.run_id == done.run_id else None

    def add(self, request: WeekRequest, status: str, run_id: str) -> None:
        """Write a week down; one line at once, so that lines of two processes do not mix."""
        inputs = fingerprint(request)
        if inputs is None or request.shadow:
            return
        done = Done(str(request.week), inputs, status, run_id)
        self._done[done.week] = done
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, (canonical_json(vars(done)) + "\n").encode())
        finally:
            os.close(handle)


def fingerprint(request: WeekRequest) -> str | None:
    """What a week is made from, without reading it; None when a source has no mark of change."""
    marks: dict[str, object] = {
        "config": request.config.hash,
        "code": code_version(),
        "week": str(request.week),
    }
    for name in SOURCES:
        spec = getattr(request, name)
        if spec is None:
            continue
        if "://" in spec or not (path := Path(spec).expanduser()).exists():
            return None
        files = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
        marks[name] = [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
    return canonical_hash(marks)
