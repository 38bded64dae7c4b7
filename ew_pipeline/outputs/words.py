"""Numbers, days and other people's ids as text for the eye."""

from __future__ import annotations

import datetime as dt
import math
import re

from ew_pipeline.core.week import Week
from ew_pipeline.decide.reasons import percent, short
from ew_pipeline.method.theta import Theta

__all__ = ["clean", "count", "days", "money", "percent", "plural", "seconds", "share", "short", "theta"]

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: object) -> str:
    """One line without control characters: an id can neither colour a terminal nor turn its text around."""
    return CONTROL.sub("�", str(text))


def count(value: float) -> str:
    return f"{value:,.0f}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """``1 store``, ``3 stores``, ``1,204 stores``."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def money(value: float) -> str:
    """In the unit of the costs, which the pipeline does not know."""
    return f"{value:,.0f}" if abs(value) >= 999.995 else f"{value:,.2f}"


def share(value: float) -> str:
    """A share with a digit that matters: 4.2%, 18%, 0.35%."""
    if not math.isfinite(value):
        return "unknown"
    return f"{value:.0%}" if value >= 0.0995 else f"{value:.1%}" if value >= 0.00995 else f"{value:.2%}"


def seconds(value: float) -> str:
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def days(week: Week) -> str:
    """``17–23 August 2026``; both months or years where they differ."""
    first, last = week.start, week.start + dt.timedelta(days=6)
    start = f"{first.day}"
    if first.month != last.month:
        start += f" {first:%B}"
    if first.year != last.year:
        start += f" {first.year}"
    dash = " – " if " " in start else "–"
    return f"{start}{dash}{last.day} {last:%B} {last.year}"


def theta(value: Theta) -> str:
    """One sentence: how often records are wrong, and how deep sales fall."""
    low, high = value.anomaly_rate_interval
    below, above = value.alpha_interval
    return (
        f"{share(value.anomaly_rate)} of the records are wrong ({share(low)} to {share(high)}); "
        f"such a pair still sells {share(value.alpha)} of its normal sales ({share(below)} to {share(above)})"
    )
