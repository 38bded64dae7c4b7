"""What can go wrong, said once: what, which, and what to do next.

Every error the package raises on purpose is an ``EwError``. Its class says whose turn it is: the
data's (``DataError``), the caller's (``UsageError``) or the method's (``FitError``). Each is also the
built-in exception a stranger would expect, so ``except ValueError`` keeps working.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

NAMED_OFFENDERS = 5


class EwError(Exception):
    """Base of all errors of the package.

    Attributes
    ----------
    message : what is wrong, and which items, with their count.
    next_step : what to do about it, or None when there is nothing to suggest.
    exit_code : what the command line ends with when this reaches the top.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return self.message if self.next_step is None else f"{self.message}\nNext: {self.next_step}"


class DataError(EwError, ValueError):
    """The data are not what was promised."""

    exit_code = 1


class UsageError(EwError, ValueError):
    """An argument is wrong, whatever the data."""

    exit_code = 2


class FitError(EwError, RuntimeError):
    """The method cannot give an answer on these data."""

    exit_code = 3


def name_some(offenders: Iterable[object], count: int) -> str:
    """The first five offenders, and how many more there are: ``a, b, c, d, e, … +7``."""
    named = [str(offender) for offender in islice(offenders, NAMED_OFFENDERS)]
    more = count - len(named)
    return ", ".join(named) + (f", … +{more}" if more > 0 else "")
