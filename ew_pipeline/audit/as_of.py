"""What was live at a moment in the past, who stood behind it, and what became of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from ew_pipeline.core.errors import UsageError
from ew_pipeline.ledger import ConfigRole, Ledger, Publication


@dataclass(frozen=True)
class LiveWeek:
    """A week as it stood: the publication that was live, and those that came after it, in order."""

    publication: Publication
    later: tuple[Publication, ...]


@dataclass(frozen=True)
class Past:
    """All that was live at ``moment``. ``champion``: the configuration that weekly runs used then."""

    moment: dt.datetime
    weeks: tuple[LiveWeek, ...]
    champion: ConfigRole | None


def as_of(ledger: Ledger, moment: dt.datetime) -> Past:
    """The ledger as it stood at ``moment``; with today's knowledge of what came after."""
    after: dict[str, list[Publication]] = {}
    for publication in ledger.publications():
        if publication.published_at > moment:
            after.setdefault(str(publication.week), []).append(publication)
    weeks = tuple(
        LiveWeek(publication, tuple(after.get(str(publication.week), ())))
        for publication in ledger.live(moment)
    )
    known = [role for role in ledger.config_roles("champion") if role.assigned_at <= moment]
    return Past(moment, weeks, known[-1] if known else None)


def parse_moment(text: str, time_zone: str) -> dt.datetime:
    """``2026-11-16`` (the end of that day) or ``2026-11-16T06:30``; in ``time_zone`` if it names none."""
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is not a date or a moment.", "write 2026-11-16, or 2026-11-16T06:30."
        ) from None
    if len(text.strip()) <= len("2026-11-16"):
        moment = dt.datetime.combine(moment.date(), dt.time.max)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(time_zone))
