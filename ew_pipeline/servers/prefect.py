"""Prefect without anything to start: its server as a child of this process, gone when the process is.

Prefect's own embedded server imports the whole server twice, one after the other, and outlives a process that
was killed. Started here it boots while the parent imports what it needs itself, and the kernel ends it with
its parent.

A server of ours answers only to who knows its login (``user:password``). Servers and clients get it by
environment, never on a command line.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from ew_pipeline.core.child import end_with_parent, in_environment
from ew_pipeline.core.errors import EwError
from ew_pipeline.core.files import make_private
from ew_pipeline.core.settings import Settings
from ew_pipeline.servers.ports import free_port
from ew_pipeline.servers.standing import login_for

SERVER = (
    *("-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"),
    *("--host", "127.0.0.1", "--log-level", "error", "--lifespan", "on"),
)
STARTUP_SECONDS = 180.0
STOP_SECONDS = 10.0
GIVEN_SECONDS = 10.0  # for a server that somebody else has started
NO_ANSWER = (urllib.error.URLError, ConnectionError, TimeoutError)
QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_CLI_COLORS": "false",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
}
LOGIN, SERVER_LOGIN = "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"
ORIGINS = "PREFECT_SERVER_CORS_ALLOWED_ORIGINS"
SERVER_ONLY = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}


def quiet_environment(settings: Settings, environment: MutableMapping[str, str]) -> None:
    """Prefect's variables, before prefect is imported; what the user has set stays."""
    environment.setdefault("PREFECT_HOME", str(settings.root / "prefect"))
    for name, value in QUIET.items():
        environment.setdefault(name, value)


def server_login(environment: MutableMapping[str, str], login: str, port: int) -> None:
    """Prefect's variables for a server on this port: it asks for the login, and allows only its own pages."""
    environment[SERVER_LOGIN] = environment[LOGIN] = login
    environment.setdefault(ORIGINS, f"http://127.0.0.1:{port},http://localhost:{port}")


@contextmanager
def prefect_api(settings: Settings) -> Iterator[Starting]:
    """A Prefect API for the time of the block: the configured server, or one of our own.

    The block begins at once; call ``wait()`` on what it gives before the first flow.
    """
    quiet_environment(settings, os.environ)
    if settings.prefect_api_url or os.environ.get("PREFECT_API_URL"):
        url = os.environ.get("PREFECT_API_URL") or str(settings.prefect_api_url)
        login = os.environ.get(LOGIN) or login_for(settings, url)
        with in_environment({} if login is None else {LOGIN: login}):
            yield Starting(None, url, None)
        return
    make_private(settings.root)
    home = Path(os.environ["PREFECT_HOME"])
    make_private(home)
    port = free_port()
    environment = {**os.environ, **SERVER_ONLY}
    server_login(environment, login := f"ew:{secrets.token_urlsafe(32)}", port)
    url = f"http://127.0.0.1:{port}/api"
    log = home / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, *SERVER, "--port", str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )
    try:
        with in_environment({"PREFECT_API_URL": url, LOGIN: login}):
            yield Starting(server, url, log)
    finally:
        _stop(server)


class Starting:
    """A server that may still be booting."""

    def __init__(self, server: subprocess.Popen[bytes] | None, url: str, log: Path | None) -> None:
        self.server = server
        self.url = url
        self.log = log

    def answers(self) -> bool:
        """Whether it is there by now."""
        try:
            self._ask()
        except NO_ANSWER:
            return False
        return True

    def _ask(self) -> None:
        with urllib.request.urlopen(f"{self.url}/health", timeout=5):
            pass

    def wait(self, seconds: float = STARTUP_SECONDS) -> None:
        """Until it answers. One that we did not start should be there already."""
        deadline = time.monotonic() + (seconds if self.server is not None else GIVEN_SECONDS)
        while True:
            try:
                return self._ask()
            except NO_ANSWER as error:
                gone = self.server is not None and self.server.poll() is not None
                if gone or time.monotonic() > deadline:
                    raise self._failure(error) from error
            time.sleep(0.1)

    def _failure(self, error: Exception) -> EwError:
        if self.server is None:
            return EwError(
                f"Prefect's server at {self.url} does not answer: {error}.",
                "start it, correct PREFECT_API_URL, or run without Prefect: EW_ORCHESTRATE=false ew run …",
            )
        return EwError(
            f"Prefect's embedded server did not start; its messages are in {self.log}.",
            "run without Prefect: EW_ORCHESTRATE=false ew run …",
        )


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
