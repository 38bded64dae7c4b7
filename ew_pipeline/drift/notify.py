"""Tell people about new alerts: a JSON POST or an e-mail, by URL. What cannot be sent now is sent next time.

``https://chat.example/hook``, ``http://…``     POST of one JSON document with all new alerts
``json://host/path``, ``jsons://host/path``      the same, as Apprise writes it (http and https)
``mailto:ops@shop.example?smtp=host:25``         a plain e-mail through that server; default localhost:25
"""

from __future__ import annotations

import json
import re
import smtplib
import urllib.request
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.drift.alerts import Alert

SECONDS = 10.0
SCHEMES = {"http": "http", "https": "https", "json": "http", "jsons": "https"}
SENDER = "ew-pipeline@localhost"
Message = dict[str, Any]


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
        _write(outbox / f"{alerts[0].week}-{alerts[0].id:06d}.json", make_message(alerts), set())
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
            _write(waiting, kept["message"], reached)
    return failures


def split_urls(urls: str | None) -> list[str]:
    """Several URLs stand with commas or spaces; each must be of a kind that we can send to."""
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
    with urllib.request.urlopen(request, timeout=SECONDS):
        pass


def without_secrets(url: str) -> str:
    """The URL as far as it may be shown: hooks carry their key in the path."""
    parts = urlsplit(url)
    return (
        f"mailto:{parts.path}" if parts.scheme == "mailto" else f"{parts.scheme}://{parts.hostname or ''}/…"
    )


def _write(path: Path, message: Message, reached: set[str]) -> None:
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
    with smtplib.SMTP(host, int(port or 25), timeout=SECONDS) as server:
        server.send_message(mail)
