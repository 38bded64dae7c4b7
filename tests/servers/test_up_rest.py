"""Asking Prefect: a server that is busy is asked again; one that refuses is not."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ew_pipeline.core.errors import EwError
from ew_pipeline.servers import schedule

pytestmark = pytest.mark.server


class Server(HTTPServer):
    """Answers with each of ``codes`` in turn, then with the last for ever, and keeps what it was sent."""

    def __init__(self, codes):
        super().__init__(("127.0.0.1", 0), Answers)
        self.codes, self.asked = codes, []


class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.asked.append(self.rfile.read(int(self.headers["Content-Length"])))
        codes = self.server.codes
        self.send_response(codes[min(len(self.server.asked), len(codes)) - 1])
        self.end_headers()
        self.wfile.write(b'{"id": 7}')

    def log_message(self, *_):
        pass


@pytest.fixture
def serving(monkeypatch):
    monkeypatch.setattr(schedule, "WAITS", (0.0, 0.0))
    started = []

    def serve(*codes):
        server = Server(codes)
        started.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return server, schedule.Api(f"http://127.0.0.1:{server.server_port}")

    yield serve
    for server in started:
        server.shutdown()
        server.server_close()


def test_a_locked_database_is_asked_again_with_the_same_words(serving):
    server, api = serving(503, 503, 201)
    assert api.post("/flow_runs/", {"a": 1}) == {"id": 7}
    assert [json.loads(asked) for asked in server.asked] == [{"a": 1}] * 3


def test_one_that_stays_busy_is_reported_after_the_last_try(serving):
    server, api = serving(503)
    with pytest.raises(EwError, match="refused POST /flow_runs/ with 503"):
        api.post("/flow_runs/", {})
    assert len(server.asked) == 3


def test_a_refusal_is_final(serving):
    server, api = serving(422, 201)
    with pytest.raises(EwError, match="422"):
        api.post("/flow_runs/", {})
    assert len(server.asked) == 1
