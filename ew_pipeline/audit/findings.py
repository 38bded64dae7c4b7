"""Something that is not as it was written: in the ledger, or in a file that the ledger vouches for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ew_pipeline.ledger import Problem

Kind = Literal["edited", "inserted", "deleted", "broken", "truncated"]


@dataclass(frozen=True)
class Finding:
    """``where``: ledger, run, snapshot or live copy. ``name``: the row or the file."""

    kind: Kind
    where: str
    name: str
    words: str

    @classmethod
    def in_ledger(cls, problem: Problem) -> Finding:
        return cls(problem.kind, "ledger", f"{problem.table} {problem.key}", problem.words)
