"""Why a pair is on the check list: a short code for programs, and words for whoever walks to the shelf.

A flag carries its reasons as one text, most telling first: what it sold against what it should have sold,
against its own past, and whether only the stakes put it there::

    ZERO_SALES: zero sales against expected 6.2; BELOW_OWN_LEVEL: below half of its own level (0 of 7.1)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.texts import TEXT, alike, joined

SEPARATOR = "; "
OWN_LEVEL_SHARE = 0.5
LEAST_LEVEL = 1.0  # half of less than one unit a week cannot be seen in a week
UNSURE = 0.5


@dataclass(frozen=True)
class Rule:
    """A reason that may apply: its code, what it means, and how it is worded for a pair.

    In ``words``, what stands in braces is the pair's own.
    """

    code: str
    meaning: str
    words: str


RULES = (
    Rule("ZERO_SALES", "sold nothing", "zero sales against expected {expected}"),
    Rule(
        "BELOW_20_PCT",
        "sold less than a fifth of what a healthy pair would have",
        "below 20% of expected ({units} of {expected})",
    ),
    Rule(
        "BELOW_50_PCT",
        "sold less than half of what a healthy pair would have",
        "below half of expected ({units} of {expected})",
    ),
    Rule(
        "BELOW_EXPECTED",
        "sold less than a healthy pair would have",
        "below expected ({units} of {expected})",
    ),
    Rule(
        "BELOW_OWN_LEVEL",
        "sold less than half of its own level of the weeks before",
        "below half of its own level ({units} of {level})",
    ),
    Rule(
        "COSTLY_MISS",
        f"the probability is below {UNSURE:.0%}, but a miss would cost far more than a check",
        "P = {chance}, listed because a miss is costly",
    ),
)
CODES = {rule.code: rule.meaning for rule in RULES}


def reasons(
    units: ArrayLike, expected: ArrayLike, anomaly_probability: ArrayLike, level: ArrayLike | None = None
) -> pa.Array:
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
    found = pa.repeat(pa.scalar("", TEXT), n.size)
    for rule, holds in zip(RULES, _which(n, mu, p, own), strict=True):
        if not holds.any():
            continue
        seen = {
            name: write(column[holds])
            for name, column, write in (
                ("units", n, short_texts),
                ("expected", mu, short_texts),
                ("level", own, short_texts),
                ("chance", p, percent_texts),
            )
            if f"{{{name}}}" in rule.words
        }
        before = found.filter(pa.array(holds))
        between = pc.if_else(pc.equal(before, ""), "", SEPARATOR).cast(TEXT)
        pieces = [seen.get(piece, piece) for piece in re.split(r"[{}]", rule.words)]
        worded = joined(before, between, f"{rule.code}: ", *pieces)
        found = pc.replace_with_mask(found, pa.array(holds), worded)
    return found


def codes_and_words(text: str) -> list[tuple[str, str]]:
    """Read a flag's text back; a code that stands without words is worded by its meaning."""
    parts = [part.strip().partition(":") for part in text.split(";") if part.strip()]
    return [(code.strip(), words.strip() or CODES.get(code, code)) for code, _, words in parts]


def in_words(text: str) -> str:
    """The reasons without their codes, for people."""
    return SEPARATOR.join(words for _, words in codes_and_words(text))


def short(value: float) -> str:
    """A quantity for the eye: 0.35, 6.2, 17.4, 120; whole numbers without a point."""
    if value == int(value) or value >= 99.95:
        return f"{round(value):,}"
    if value >= 0.95:
        return f"{round(value * 10) / 10:.1f}"
    return f"{round(value * 100) / 100:.2f}" if value >= 0.005 else "<0.01"


def percent(p: float) -> str:
    """A probability for the eye; never "100%" or "0%" of what is not certain."""
    if 0.999 < p < 1.0:
        return ">99.9%"
    if 0.0 < p < 0.001:
        return "<0.1%"
    if 0.0 < p < 0.01 or 0.99 < p < 1.0:
        return f"{round(p * 1000) / 1000:.1%}"
    return f"{round(p * 100) / 100:.0%}"


def short_texts(values: Float) -> pa.Array:
    """``short`` of each."""
    whole = (values == np.floor(values)) | (values >= 99.95)
    form = np.select([whole, values >= 0.95, values >= 0.005], [0, 1, 2], 3)
    return alike(values, np.rint(values * np.array([1, 10, 100, 0])[form]) * 4 + form, short)


def percent_texts(p: Float) -> pa.Array:
    """``percent`` of each."""
    possible = (p > 0.0) & (p < 1.0)
    form = np.select(
        [possible & (p > 0.999), possible & (p < 0.001), possible & ((p < 0.01) | (p > 0.99))], [0, 1, 2], 3
    )
    return alike(p, np.rint(p * np.array([0, 0, 1000, 100])[form]) * 4 + form, percent)


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
