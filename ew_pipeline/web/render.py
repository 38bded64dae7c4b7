"""Answers: pages from templates, data as JSON or CSV, what holds for all of them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import Response
from fastapi.responses import HTMLResponse
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ew_pipeline._version import __version__
from ew_pipeline.core.console import plain
from ew_pipeline.core.errors import EwError, name_some
from ew_pipeline.outputs import words
from ew_pipeline.outputs.page import page_environment, page_style
from ew_pipeline.web import addresses

READING = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a rerun supersedes a week; browsers ask before they show it again
}
PACKAGE = "ew_pipeline.web"
Forms = Mapping[str, Callable[[], Response]]


class NotThere(EwError):
    """Something was asked for that there is not. ``there``: what there is, as (words, address)."""

    def __init__(
        self, message: str, next_step: str | None = None, there: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message, next_step)
        self.there = tuple(there)


class WrongFormat(NotThere):
    """The page exists, but not in the form that was asked for."""

    def __init__(self, asked: str, known: Iterable[str]) -> None:
        names = list(known)
        super().__init__(
            f"there is no format {asked!r} here.", f"choose one of {name_some(names, len(names))}."
        )


def policy_with_script(digest: str) -> str:
    """The policy of a page with one script of its own, by the script's hash."""
    return f"{POLICY}; script-src '{digest}'"


class Guard:
    """Around the whole application. Its headers are set unless an answer has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["method"] not in READING:
            refusal = PlainTextResponse(
                "These pages can only be read.\n", 405, headers={"Allow": ", ".join(READING)}
            )
            return await refusal(scope, receive, with_headers)
        # As it was sent: the server decodes it, and an id with a slash would become two parts.
        raw = scope.get("raw_path") or scope["path"].encode()
        await self.app({**scope, "path": raw.partition(b"?")[0].decode("latin-1")}, receive, with_headers)


def html(template: str, status: int = 200, here: str = "", **values: Any) -> HTMLResponse:
    """A page of ours; ``here``: its name among those that every page links to."""
    environment = page_environment(PACKAGE)
    for form in (
        words.clean,
        words.count,
        words.money,
        words.percent,
        words.plural,
        words.share,
        words.short,
    ):
        environment.filters[form.__name__] = form
    page = environment.get_template(template).render(
        **values, here=here, to=addresses, style=page_style(), version=__version__
    )
    return HTMLResponse(page, status)


def as_json(value: object, status: int = 200) -> Response:
    """Dataclasses, weeks, paths and moments included."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=2, default=str)
    return Response(f"{text}\n", status, media_type="application/json")


def as_csv(content: bytes, name: str) -> Response:
    """A table to be saved; ``name`` has only letters that every system takes."""
    disposition = f'attachment; filename="{name}"'
    return Response(
        content, media_type="text/csv; charset=utf-8", headers={"Content-Disposition": disposition}
    )


def chosen(asked: str, forms: Forms) -> Response:
    """The form that ``?format=`` asks for."""
    if asked not in forms:
        raise WrongFormat(asked, forms)
    return forms[asked]()
