"""Prefect's API in plain requests: importing its client takes seconds that `ew up` has no use for."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from typing import Any

from ew_pipeline.core.errors import EwError

SECONDS = 20.0
# 503 is what Prefect answers when its SQLite database is locked: nothing was done, and it may be asked again.
NOT_NOW = (429, 502, 503)
WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)


class Api:
    """Asks the server at ``url``, e.g. ``http://127.0.0.1:4200/api``; ``login`` is ``user:password``."""

    def __init__(self, url: str, login: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.headers = {"Content-Type": "application/json"}
        if login is not None:
            self.headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"

    def get(self, path: str) -> Any:
        """None when there is no such thing."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        return self._ask("POST", path, body)

    def patch(self, path: str, body: Any) -> None:
        self._ask("PATCH", path, body)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, self.headers, method=method)
        for wait in (*WAITS, None):
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                    text = answer.read()
                    break
            except urllib.error.HTTPError as error:
                if error.code == 404 and method == "GET":
                    return None
                if error.code == 401:
                    raise EwError(
                        f"Prefect at {self.url} asks for another login.",
                        "set PREFECT_API_AUTH_STRING to its user:password.",
                    ) from error
                if error.code not in NOT_NOW or wait is None:
                    said = error.read().decode(errors="replace")[:300]
                    raise EwError(f"Prefect refused {method} {path} with {error.code}: {said}") from error
            except (urllib.error.URLError, OSError) as error:
                raise EwError(
                    f"Prefect at {self.url} does not answer: {error}.",
                    "is it up, and PREFECT_API_URL right?",
                ) from error
            time.sleep(wait)
        return json.loads(text) if text else None


def answers(url: str) -> bool:
    """Whether somebody is there, whatever they say."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, OSError):
        return False
