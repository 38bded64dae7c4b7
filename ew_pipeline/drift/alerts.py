"""Alerts in the ledger: what they come from, who is told, and how every segment stands."""

from __future__ import annotations

import json
import re
import smtplib
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import pandas as pd

from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.week import Week
from ew_pipeline.drift.chart import LEARNING_WEEKS
from ew_pipeline.drift.verdicts import (
    ANOMALY_DRIFT,
    COMPOSITION,
    MEANING,
    OVERDISPERSION,
    SEVERITY,
    STABLE,
    Assessment,
    Event,
    Verdict,
    event_words,
    look_at,
)
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.ledger.records import now

KIND_OF: dict[Verdict, str] = {
    ANOMALY_DRIFT: "anomaly_drift",
    COMPOSITION: "composition_change",
    OVERDISPERSION: "overdispersion_change",
}
VERDICT_OF = {kind: verdict for verdict, kind in KIND_OF.items()}
SEND_SECONDS = 10.0
SCHEMES = {"http": "http", "https": "https", "json": "http", "jsons": "https"}
SENDER = "ew-pipeline@localhost"
Message = dict[str, Any]
MOST_GROWTHS = 10
WORST_FIRST = ("high", "medium", "low", "none")


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
    row = {"alert_id": alert_id, "acknowledged_by": by, "acknowledged_at": now(), "note": why.strip()}
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
        "raised_at": now(),
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


def notify(alerts: Sequence[Alert], urls: str | None, outbox: Path) -> list[str]:
    """Send ``alerts`` and what is still in the ``outbox`` folder to every URL; what failed, in words.

    A message stays in the outbox until every URL has it; failing to send never fails the week. The URLs
    themselves are not written down: they carry keys.
    """
    places = split_urls(urls)
    if not places:
        return []
    if alerts:
        outbox.mkdir(parents=True, exist_ok=True)
        _keep_waiting(outbox / f"{alerts[0].week}-{alerts[0].id:06d}.json", make_message(alerts), set())
    failures = []
    for waiting in sorted(outbox.glob("*.json")) if outbox.is_dir() else []:
        kept = json.loads(waiting.read_text(encoding="utf-8"))
        reached = set(kept["reached"])
        for url in places:
            if canonical_hash(url) in reached:
                continue
            try:
                send(url, kept["message"])
                reached.add(canonical_hash(url))
            except (OSError, smtplib.SMTPException) as error:
                failures.append(
                    f"the alert could not be sent to {without_secrets(url)}: {error}; "
                    f"it waits in {waiting} and is sent with the next ew drift"
                )
        if all(canonical_hash(url) in reached for url in places):
            waiting.unlink()
        else:
            _keep_waiting(waiting, kept["message"], reached)
    return failures


def split_urls(urls: str | None) -> list[str]:
    """Several URLs stand with commas or spaces; each must be of a kind that we can send to.

    ``https://…`` and ``http://…`` get a POST of one JSON document, ``jsons://…`` and ``json://…`` (as Apprise
    writes it) the same, ``mailto:ops@shop.example?smtp=host:25`` a plain e-mail through that server.
    """
    places = [part for part in re.split(r"[,\s]+", urls or "") if part]
    for place in places:
        scheme = urlsplit(place).scheme
        if scheme != "mailto" and scheme not in SCHEMES:
            raise UsageError(
                f"EW_ALERT_URL has {without_secrets(place)!r}, which nothing can be sent to.",
                "use https://…, http://… or mailto:name@shop.example",
            )
    return places


def make_message(alerts: Sequence[Alert]) -> Message:
    """One message for all: a title, the sentences, and the alerts as data."""
    count = f"{len(alerts)} drift alerts" if len(alerts) > 1 else alerts[0].verdict
    lines = [f"[{one.id}] {one.words} Look at: {one.look_at}." for one in alerts]
    lines.append(f'Acknowledge: ew drift --acknowledge {alerts[0].id} --why "…"')
    return {
        "title": f"Inventory records, {alerts[-1].week}: {count}",
        "message": "\n".join(lines),
        "alerts": [json.loads(json.dumps(one.plain(), default=str)) for one in alerts],
    }


def send(url: str, message: Message) -> None:
    if urlsplit(url).scheme == "mailto":
        _mail(url, message)
        return
    parts = urlsplit(url)
    address = urlunsplit((SCHEMES[parts.scheme], *parts[1:]))
    request = urllib.request.Request(
        address,
        data=json.dumps(message).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "ew-pipeline"},
    )
    with urllib.request.urlopen(request, timeout=SEND_SECONDS):
        pass


def without_secrets(url: str) -> str:
    """The URL as far as it may be shown: hooks carry their key in the path."""
    parts = urlsplit(url)
    return (
        f"mailto:{parts.path}" if parts.scheme == "mailto" else f"{parts.scheme}://{parts.hostname or ''}/…"
    )


def _keep_waiting(path: Path, message: Message, reached: set[str]) -> None:
    path.write_text(json.dumps({"message": message, "reached": sorted(reached)}), encoding="utf-8")


def _mail(url: str, message: Message) -> None:
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    mail = EmailMessage()
    mail["To"] = unquote(parts.path)
    mail["From"] = options.get("from", SENDER)
    mail["Subject"] = message["title"]
    mail.set_content(message["message"])
    host, _, port = options.get("smtp", "localhost:25").partition(":")
    with smtplib.SMTP(host, int(port or 25), timeout=SEND_SECONDS) as server:
        server.send_message(mail)


@dataclass(frozen=True)
class Growth:
    """Flags per week of a store or SKU, before the change and since."""

    what: Literal["store", "SKU"]
    id: str
    before: float
    after: float


def evidence(ledger: Ledger, alert: Alert) -> tuple[Growth, ...]:
    """The stores, then the SKUs, whose flags per week grew most since the change; at most ten each.

    Compared are the weeks from the change to the alert with the eight before it. Empty when there is no
    week before.
    """
    live = [one for one in ledger.live() if one.week <= alert.week]
    after = [one for one in live if one.week >= alert.since]
    before = [one for one in live if one.week < alert.since][-LEARNING_WEEKS:]
    if not before or not after:
        return ()
    old, new = _flags(ledger, before, alert.segment), _flags(ledger, after, alert.segment)
    return (
        *_growth("store", old["store_id"], new["store_id"], len(before), len(after)),
        *_growth("SKU", old["sku_id"], new["sku_id"], len(before), len(after)),
    )


def _flags(ledger: Ledger, live: Sequence[Publication], segment: str) -> pd.DataFrame:
    found = pd.concat([ledger.flags(one.id)[["store_id", "sku_id", "segment"]] for one in live])
    return found if segment == "pooled" else found[found["segment"] == segment]


def _growth(
    what: Literal["store", "SKU"], old: pd.Series[str], new: pd.Series[str], before: int, after: int
) -> list[Growth]:
    table = pd.DataFrame({"before": old.value_counts() / before, "after": new.value_counts() / after})
    table = table.fillna(0.0)
    table["grown"] = table["after"] - table["before"]
    table = table[table["grown"] > 0].sort_values("grown", ascending=False, kind="stable").head(MOST_GROWTHS)
    return [
        Growth(what, str(name), float(row["before"]), float(row["after"])) for name, row in table.iterrows()
    ]


@dataclass(frozen=True)
class SegmentVerdict:
    """How a segment stands: its worst open alert, or stable. ``judged``: weeks beyond the first eight."""

    segment: str
    verdict: Verdict
    words: str
    look_at: str
    judged: int
    alerts: tuple[int, ...]  # that are open


def segment_verdicts(assessment: Assessment, alerts: Sequence[Alert]) -> tuple[SegmentVerdict, ...]:
    """Every segment's standing after the last week."""
    made = []
    for segment in assessment.segments:
        waiting = [alert for alert in alerts if alert.open and alert.segment == segment]
        waiting.sort(key=lambda alert: (WORST_FIRST.index(alert.severity), -alert.id))
        charts = [chart for chart in assessment.charts if chart.series.segment == segment]
        judged = max(0, max(len(chart.points) for chart in charts) - LEARNING_WEEKS)
        if waiting:
            worst = waiting[0]
            ids = tuple(alert.id for alert in waiting)
            made.append(SegmentVerdict(segment, worst.verdict, worst.words, worst.look_at, judged, ids))
        elif judged == 0:
            seen = max(len(chart.points) for chart in charts)
            words = f"still learning: {seen} of the {LEARNING_WEEKS} weeks that are needed before a judgement"
            made.append(SegmentVerdict(segment, STABLE, words, "", 0, ()))
        else:
            made.append(SegmentVerdict(segment, STABLE, MEANING[STABLE], "", judged, ()))
    return tuple(made)


def worst_verdict(verdicts: Sequence[SegmentVerdict]) -> Verdict:
    """Of all segments together."""
    return min(
        (one.verdict for one in verdicts), key=lambda v: WORST_FIRST.index(SEVERITY[v]), default=STABLE
    )
