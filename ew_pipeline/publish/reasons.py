"""Why a pair is on the check list: a short code for programs, and words for whoever walks to the shelf.

A flag carries its reasons as one text, most telling first: what it sold against what it should have sold,
against its own past, and whether only the stakes put it there::

    ZERO_SALES: zero sales against expected 6.2; BELOW_OWN_LEVEL: below half of its own level (0 of 7.1)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.algorithm.types import Bool, Float
from ew_pipeline.errors import UsageError

SEPARATOR = "; "
OWN_LEVEL_SHARE = 0.5
LEAST_LEVEL = 1.0  # half of less than one unit a week cannot be seen in a week
UNSURE = 0.5


@dataclass(frozen=True)
class Reason:
    """One reason, read back from a flag."""

    code: str
    words: str


@dataclass(frozen=True)
class Rule:
    """A reason that may apply: its code, what it means, and how it is worded for a pair.

    ``words`` is given units, expected units, P(anomaly) and the pair's own level.
    """

    code: str
    meaning: str
    words: Callable[[float, float, float, float], str]


RULES = (
    Rule(
        "ZERO_SALES",
        "sold nothing",
        lambda units, expected, p, level: f"zero sales against expected {short(expected)}",
    ),
    Rule(
        "BELOW_20_PCT",
        "sold less than a fifth of what a healthy pair would have",
        lambda units, expected, p, level: f"below 20% of expected ({short(units)} of {short(expected)})",
    ),
    Rule(
        "BELOW_50_PCT",
        "sold less than half of what a healthy pair would have",
        lambda units, expected, p, level: f"below half of expected ({short(units)} of {short(expected)})",
    ),
    Rule(
        "BELOW_EXPECTED",
        "sold less than a healthy pair would have",
        lambda units, expected, p, level: f"below expected ({short(units)} of {short(expected)})",
    ),
    Rule(
        "BELOW_OWN_LEVEL",
        "sold less than half of its own level of the weeks before",
        lambda units, expected, p, level: f"below half of its own level ({short(units)} of {short(level)})",
    ),
    Rule(
        "COSTLY_MISS",
        f"the probability is below {UNSURE:.0%}, but a miss would cost far more than a check",
        lambda units, expected, p, level: f"P = {percent(p)}, listed because a miss is costly",
    ),
)
CODES = {rule.code: rule.meaning for rule in RULES}


def reasons(
    units: ArrayLike, expected: ArrayLike, anomaly_probability: ArrayLike, level: ArrayLike | None = None
) -> list[str]:
    """The reasons of each pair as one text, for pairs that are flagged; each has at least one.

    Parameters
    ----------
    units : sold in the week.
    expected : what a healthy pair would have sold.
    anomaly_probability : as priced, higher is more suspicious.
    level : the pair's own level of the weeks before; None or NaN without history.
    """
    n, mu = np.asarray(units, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    p = np.asarray(anomaly_probability, dtype=np.float64)
    own = np.full(n.shape, np.nan) if level is None else np.asarray(level, dtype=np.float64)
    if n.ndim != 1 or not n.shape == mu.shape == p.shape == own.shape:
        raise UsageError(
            f"units, expected, anomaly_probability and level have shapes {n.shape}, {mu.shape}, {p.shape} "
            f"and {own.shape}; each needs one number per pair."
        )
    found = [""] * n.size  # not a list each: half a million of them keep the garbage collector busy
    for rule, holds in zip(RULES, _which(n, mu, p, own), strict=True):
        values = (column[holds].tolist() for column in (n, mu, p, own))
        for pair, *of_pair in zip(np.flatnonzero(holds).tolist(), *values, strict=True):
            before = f"{found[pair]}{SEPARATOR}" if found[pair] else ""
            found[pair] = f"{before}{rule.code}: {rule.words(*of_pair)}"
    return found


def parse(text: str) -> tuple[Reason, ...]:
    """Read a flag's text back; a code that stands without words is worded by its meaning."""
    return tuple(Reason(code, words) for code, words in codes_and_words(text))


def codes_and_words(text: str) -> list[tuple[str, str]]:
    """The same as plain pairs, for lists of many flags."""
    parts = [part.strip().partition(":") for part in text.split(";") if part.strip()]
    return [(code.strip(), words.strip() or CODES.get(code, code)) for code, _, words in parts]


def in_words(text: str) -> str:
    """The reasons without their codes, for people."""
    return SEPARATOR.join(words for _, words in codes_and_words(text))


def short(value: float) -> str:
    """A quantity for the eye: 0.35, 6.2, 17.4, 120; whole numbers without a point."""
    if value == int(value) or value >= 99.95:
        return f"{value:,.0f}"
    if value >= 0.95:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.005 else "<0.01"


def percent(p: float) -> str:
    """A probability for the eye; never "100%" or "0%" of what is not certain."""
    if 0.999 < p < 1.0:
        return ">99.9%"
    if 0.0 < p < 0.001:
        return "<0.1%"
    return f"{p:.1%}" if 0.0 < p < 0.01 or 0.99 < p < 1.0 else f"{p:.0%}"


def _which(n: Float, mu: Float, p: Float, own: Float) -> tuple[Bool, ...]:
    """Where each of ``RULES`` holds. The first four exclude each other; one always holds."""
    zero = n == 0
    below_20, below_50, below = n < 0.2 * mu, n < 0.5 * mu, n < mu
    own_level = (own >= LEAST_LEVEL) & (n < OWN_LEVEL_SHARE * own)  # False where NaN
    return (
        zero,
        below_20 & ~zero,
        below_50 & ~below_20 & ~zero,
        below & ~below_50 & ~zero,
        own_level,
        (p < UNSURE) | ~(zero | below | own_level),
    )
