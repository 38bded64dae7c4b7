"""Alerts leave the house: by POST and by mail, to real servers on this machine."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import Week
from ew_pipeline.drift.alerts import Alert, notify, split_urls, without_secrets

pytestmark = pytest.mark.server
ALERT = Alert(
    id=3,
    week=Week(2026, 34),
    segment="all",
    kind="anomaly_drift",
    severity="high",
    words="anomaly drift in all since 2026-W33: records wrong (p_A) 4.0% -> 8.0%.",
    look_at="deliveries",
    since=Week(2026, 33),
    publication_id=12,
    raised_at="2026-08-24T06:00:00+00:00",
)


class Hook:
    """A webhook that keeps what it is sent; ``status`` is what it answers."""

    def __init__(self) -> None:
        self.received: list[dict[str, object]] = []
        self.status = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.status == 200:
                    hook.received.append(json.loads(body))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret-key"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    running = Hook()
    yield running
    running.server.shutdown()
    running.server.server_close()


def test_new_alerts_are_one_json_post(hook, tmp_path):
    assert notify([ALERT], hook.url, tmp_path / "outbox") == []
    (message,) = hook.received
    assert message["title"] == "Inventory records, 2026-W34: anomaly drift"
    assert "ew drift --acknowledge 3" in message["message"]
    assert message["alerts"][0]["kind"] == "anomaly_drift"
    assert list((tmp_path / "outbox").iterdir()) == []


def test_what_could_not_be_sent_is_sent_with_the_next_call_and_only_once(hook, tmp_path):
    outbox = tmp_path / "outbox"
    hook.status = 500
    (failure,) = notify([ALERT], hook.url, outbox)
    assert "could not be sent to http://127.0.0.1/…" in failure
    assert "secret-key" not in failure
    assert "secret-key" not in next(outbox.iterdir()).read_text(encoding="utf-8")
    hook.status = 200
    assert notify([], hook.url, outbox) == []
    assert notify([], hook.url, outbox) == []
    assert len(hook.received) == 1


def test_a_place_that_has_the_alert_does_not_get_it_again_when_another_fails(hook, tmp_path):
    dead = "http://127.0.0.1:9/hook"
    both = f"{hook.url}, {dead}"
    assert len(notify([ALERT], both, tmp_path)) == 1
    assert len(notify([], both, tmp_path)) == 1
    assert len(hook.received) == 1
    assert notify([], hook.url, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_without_a_url_nothing_is_kept(tmp_path):
    assert notify([ALERT], None, tmp_path / "outbox") == []
    assert not (tmp_path / "outbox").exists()


def test_an_alert_goes_out_by_mail(tmp_path):
    lines: list[str] = []

    class Smtp(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            in_data = False
            while line := self.rfile.readline().decode():
                lines.append(line.strip())
                if in_data:
                    if line == ".\r\n":
                        in_data = False
                        self.wfile.write(b"250 ok\r\n")
                    continue
                if line.upper().startswith("DATA"):
                    in_data = True
                    self.wfile.write(b"354 go on\r\n")
                elif line.upper().startswith("QUIT"):
                    self.wfile.write(b"221 bye\r\n")
                    return
                else:
                    self.wfile.write(b"250 ok\r\n")

    with socketserver.TCPServer(("127.0.0.1", 0), Smtp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"mailto:ops@shop.example?smtp=127.0.0.1:{server.server_address[1]}"
        assert notify([ALERT], url, tmp_path) == []
        server.shutdown()
    assert "To: ops@shop.example" in lines
    assert "Subject: Inventory records, 2026-W34: anomaly drift" in lines


def test_apprise_spelling_is_understood_and_others_are_refused():
    assert split_urls("json://host/x jsons://host/y, mailto:a@b.example") == [
        "json://host/x",
        "jsons://host/y",
        "mailto:a@b.example",
    ]
    with pytest.raises(UsageError, match="slack"):
        split_urls("slack://token/room")
    assert without_secrets("https://hooks.example/T0/B0/key") == "https://hooks.example/…"
