"""A week of sales: ISO week ``2026-W34``, or the date it starts.

Chains whose weeks start on another day than Monday write that date; it stands for the ISO week it lies in.
Labels look at the weeks around: ``maturity`` says when those of a week are complete.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ew_pipeline.core.errors import UsageError

ISO_WEEK = re.compile(r"(\d{4})-?W(\d{2})")
ZONED = re.compile(r"\S{10}[T ]([\d:.]+) ?(?:Z|[+-]\d\d(?::?\d\d)?|[A-Za-z][\w/+-]{2,})")
EPOCH = dt.date(1970, 1, 5)  # a Monday; weeks are counted from here

LabelRule = Literal["text", "pair", "code"]
RULES: tuple[str, ...] = get_args(LabelRule)
WINDOW = {"text": 5, "pair": 5, "code": 4}  # weeks on each side that a label looks at


@dataclass(frozen=True, order=True)
class Week:
    """An ISO week. Ordered in time; ``str`` gives ``2026-W34``, which also sorts in time."""

    year: int
    number: int

    def __post_init__(self) -> None:
        try:
            dt.date.fromisocalendar(self.year, self.number, 1)
        except ValueError as error:
            raise UsageError(f"there is no week {self.number} in {self.year}.") from error

    @classmethod
    def parse(cls, value: str | dt.date | Week) -> Week:
        """Read ``2026-W34``, ``2026W34``, ``2026-08-17`` or a date."""
        if isinstance(value, Week):
            return value
        if isinstance(value, dt.date):
            return cls.of(value)
        if iso := ISO_WEEK.fullmatch(value.strip()):
            return cls(int(iso[1]), int(iso[2]))
        zoned = ZONED.fullmatch(value.strip())
        if zoned and zoned[1].strip("0:."):
            raise UsageError(
                f"{value!r} is not the start of a week: it is not midnight in the zone that it names.",
                "write an ISO week such as 2026-W34, or the date it starts.",
            )
        try:
            return cls.of(dt.date.fromisoformat(value.strip()[:10]))
        except ValueError:
            raise UsageError(
                f"{value!r} is not a week.", "write an ISO week such as 2026-W34, or the date it starts."
            ) from None

    @classmethod
    def of(cls, day: dt.date) -> Week:
        """The week that ``day`` lies in."""
        year, number, _ = day.isocalendar()
        return cls(year, number)

    @classmethod
    def at(cls, index: int) -> Week:
        """The week with this ``index``."""
        return cls.of(EPOCH + dt.timedelta(weeks=index))

    @classmethod
    def last_complete(cls, now: dt.datetime | None = None, time_zone: str = "UTC") -> Week:
        """The last week that is over in ``time_zone``: what a schedule runs on Monday morning."""
        try:
            zone = ZoneInfo(time_zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise UsageError(
                f"{time_zone!r} is not a time zone.", "use a name such as Europe/Berlin."
            ) from None
        moment = dt.datetime.now(zone) if now is None else now.astimezone(zone)
        return cls.of(moment.date()).shift(-1)

    @property
    def start(self) -> dt.date:
        """Its Monday."""
        return dt.date.fromisocalendar(self.year, self.number, 1)

    @property
    def index(self) -> int:
        """Weeks since 1970-01-05: consecutive weeks differ by one, also across years."""
        return (self.start - EPOCH).days // 7

    def shift(self, weeks: int) -> Week:
        """So many weeks later, or earlier."""
        return Week.at(self.index + weeks)

    def through(self, last: Week) -> list[Week]:
        """This week up to and with ``last``; empty when it lies before."""
        return [Week.at(index) for index in range(self.index, last.index + 1)]

    def __str__(self) -> str:
        return f"{self.year:04d}-W{self.number:02d}"


def maturity(rule: str) -> int:
    """How many weeks after W must be in before W has labels."""
    if rule not in WINDOW:
        raise UsageError(f"there is no label rule {rule!r}.", f"choose one of {', '.join(RULES)}.")
    return WINDOW[rule]
