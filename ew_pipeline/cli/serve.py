"""`ew serve`: the pages on a port of this machine, until Ctrl-C."""

from __future__ import annotations

import ipaddress
import json as json_module
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from ew_pipeline.core.console import messages
from ew_pipeline.core.settings import Settings
from ew_pipeline.servers.ports import listening

PORT = 8080
GRACE_SECONDS = 5


def serve(
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. There is no password: others than this machine need a proxy."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = PORT,
    json: Annotated[
        bool, typer.Option("--json", help="Print the address as a line of JSON once it listens.")
    ] = False,
) -> None:
    """Weeks, check lists, explanations, runs, drift and evaluations as pages; nothing can be changed there.

    Reads EW_HOME and the ledger anew for each page. Ends with Ctrl-C.
    """
    settings = Settings()
    with listening(host, port) as listener:
        address = shown_address(host, listener.getsockname()[1])
        if not _is_loopback(host):
            messages().print(
                "Whoever reaches this address can read the lists: there is no password.", markup=False
            )

        def ready() -> None:
            messages().print(
                f"Pages of {settings.root}: {address} (Ctrl-C ends)", markup=False, soft_wrap=True
            )
            if json:
                print(json_module.dumps({"address": address, "home": str(settings.root)}), flush=True)

        _run(settings, listener, ready)


def shown_address(host: str, port: int) -> str:
    """``http://127.0.0.1:8080``; with IPv6 in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _run(settings: Settings, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Until a signal asks to end, which is how it is meant to: exit code 0."""
    import uvicorn

    from ew_pipeline.web.app import create_app

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()

    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    config = uvicorn.Config(
        create_app(settings),
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
    )
    # uvicorn raises the signal again once it has ended; by then there is nothing left to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    Server(config).run(sockets=[listener])
