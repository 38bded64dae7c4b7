"""What a page that cannot be shown says instead."""

from __future__ import annotations

from collections.abc import Iterable

from ew_pipeline.core.errors import EwError, name_some


class NotThere(EwError):
    """Something was asked for that there is not. ``there``: what there is, as (words, address)."""

    def __init__(
        self, message: str, next_step: str | None = None, there: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message, next_step)
        self.there = tuple(there)


class WrongFormat(NotThere):
    """The page exists, but not in the form that was asked for."""

    def __init__(self, asked: str, known: Iterable[str]) -> None:
        names = list(known)
        super().__init__(
            f"there is no format {asked!r} here.", f"choose one of {name_some(names, len(names))}."
        )
