"""What holds for every answer: reading only, nothing from the network, ids decoded after they are matched."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
