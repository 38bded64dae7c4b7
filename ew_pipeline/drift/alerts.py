"""Alerts and who has seen them: rows of the ledger."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.core.week import Week
from ew_pipeline.drift.attribute import ANOMALY_DRIFT, COMPOSITION, OVERDISPERSION, Event, Verdict
from ew_pipeline.drift.chart import LEARNING_WEEKS
from ew_pipeline.drift.words import SEVERITY, event_words, look_at
from ew_pipeline.ledger import Ledger

KIND_OF: dict[Verdict, str] = {
    ANOMALY_DRIFT: "anomaly_drift",
    COMPOSITION: "composition_change",
    OVERDISPERSION: "overdispersion_change",
}
VERDICT_OF = {kind: verdict for verdict, kind in KIND_OF.items()}


@dataclass(frozen=True)
class Alert:
    """An alert and, once somebody looked at it, who and what they say."""

    id: int
    week: Week
    segment: str
    kind: str
    severity: str
    words: str
    look_at: str
    since: Week
    publication_id: int | None
    raised_at: str
    acknowledged_by: str | None = None
    acknowledged_at: str | None = None
    note: str | None = None

    @property
    def open(self) -> bool:
        return self.acknowledged_by is None

    @property
    def verdict(self) -> Verdict:
        return VERDICT_OF[self.kind]

    def plain(self) -> dict[str, Any]:
        """For programs: the fields as JSON holds them, and ``open``."""
        return {**vars(self), "week": str(self.week), "since": str(self.since), "open": self.open}


def list_alerts(ledger: Ledger) -> tuple[Alert, ...]:
    """All drift alerts, oldest first."""
    said = {int(row["alert_id"]): row for row in _rows(ledger, "acknowledgements")}
    rows = _rows(ledger, "alerts")
    return tuple(_alert(row, said.get(int(row["id"]))) for row in rows if row["kind"] in VERDICT_OF)


def raise_alerts(ledger: Ledger, events: Sequence[Event]) -> tuple[Alert, ...]:
    """Write an alert for every event that has none yet; those that are new.

    The same change seen again, perhaps in another week because one was superseded, is no new alert.
    """
    known = list_alerts(ledger)
    new = [event for event in events if not any(tells_of(alert, event) for alert in known)]
    if not new:
        return ()
    ids = ledger.append("alerts", [_row(event) for event in new])
    return tuple(alert for alert in list_alerts(ledger) if alert.id in set(ids))


def tells_of(alert: Alert, event: Event) -> bool:
    """Whether the alert was raised for this change."""
    same = (alert.segment, alert.verdict) == (event.segment, event.verdict)
    return same and abs(alert.week.index - event.week.index) <= LEARNING_WEEKS


def acknowledge(ledger: Ledger, alert_id: int, *, by: str, why: str) -> Alert:
    """Record that somebody has looked at an alert, and what they found."""
    alerts = {alert.id: alert for alert in list_alerts(ledger)}
    if alert_id not in alerts:
        waiting = [alert.id for alert in alerts.values() if alert.open]
        raise UsageError(
            f"there is no drift alert {alert_id}.",
            f"open are {name_some(waiting, len(waiting))}: ew drift" if waiting else "none is open.",
        )
    alert = alerts[alert_id]
    if not alert.open:
        raise UsageError(
            f"alert {alert_id} was acknowledged by {alert.acknowledged_by} at {alert.acknowledged_at}: "
            f"{alert.note}"
        )
    if not why.strip():
        raise UsageError(
            "an acknowledgement needs a reason; it stays in the ledger.",
            f'ew drift --acknowledge {alert_id} --why "what was found"',
        )
    row = {"alert_id": alert_id, "acknowledged_by": by, "acknowledged_at": _now(), "note": why.strip()}
    ledger.append("acknowledgements", [row])
    return next(alert for alert in list_alerts(ledger) if alert.id == alert_id)


def _rows(ledger: Ledger, table: str) -> list[dict[str, Any]]:
    found = ledger.table(table).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in found]


def _row(event: Event) -> dict[str, Any]:
    return {
        "week": event.week,
        "segment": event.segment,
        "kind": KIND_OF[event.verdict],
        "severity": SEVERITY[event.verdict],
        "words": event_words(event),
        "publication_id": event.publication_id,
        "detail": {
            "since": str(event.since),
            "look_at": look_at(event),
            "moved": [{k: None if v != v else v for k, v in vars(moved).items()} for moved in event.moved],
        },
        "raised_at": _now(),
    }


def _alert(row: Mapping[str, Any], said: Mapping[str, Any] | None) -> Alert:
    detail = json.loads(row["detail"]) if isinstance(row["detail"], str) else {}
    return Alert(
        id=int(row["id"]),
        week=Week.parse(row["week"]),
        segment=str(row["segment"]),
        kind=str(row["kind"]),
        severity=str(row["severity"]),
        words=str(row["words"]),
        look_at=str(detail.get("look_at", "")),
        since=Week.parse(detail.get("since", row["week"])),
        publication_id=None if row["publication_id"] != row["publication_id"] else int(row["publication_id"]),
        raised_at=str(row["raised_at"]),
        acknowledged_by=None if said is None else str(said["acknowledged_by"]),
        acknowledged_at=None if said is None else str(said["acknowledged_at"]),
        note=None if said is None else str(said["note"]),
    )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
