"""The application: the pages, and what is said when one cannot be shown."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.web.pages import router
from ew_pipeline.web.queries import DriftState
from ew_pipeline.web.render import Guard, NotThere, WrongFormat, as_json, html

START = (("all weeks", "/"), ("all runs", "/runs"), ("drift", "/drift"), ("evaluations", "/evaluations"))
FAULT = "something went wrong that nobody thought of."


def create_app(settings: Settings) -> ASGIApp:
    """Nothing is opened before the first request."""
    app = FastAPI(
        title="ew-pipeline", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.settings = settings
    app.state.drift = DriftState(settings)
    app.include_router(router)
    app.add_exception_handler(NotThere, _not_there)
    app.add_exception_handler(EwError, _unavailable)
    app.add_exception_handler(RequestValidationError, _no_such_page)
    app.add_exception_handler(HTTPException, _no_such_page)
    app.add_exception_handler(Exception, _fault)
    return Guard(app)


def _not_there(request: Request, error: Exception) -> Response:
    assert isinstance(error, NotThere)
    status = 400 if isinstance(error, WrongFormat) else 404
    return _problem(request, status, "Not here", error, error.there or START)


def _unavailable(request: Request, error: Exception) -> Response:
    """The ledger is away or locked, or a file that a page needs is gone: it may be back in a moment."""
    assert isinstance(error, EwError)
    return _problem(request, 503, "Cannot be shown now", error)


def _no_such_page(request: Request, error: Exception) -> Response:
    missing = NotThere("there is no such page.")
    return _problem(request, 404, "Not here", missing, START)


def _fault(request: Request, error: Exception) -> Response:
    logging.getLogger("ew.serve").error("%s %s", request.method, request.url.path, exc_info=error)
    return _problem(request, 500, "A fault", EwError(FAULT, "the messages of `ew serve` say what it was."))


def _problem(
    request: Request, status: int, title: str, error: EwError, there: tuple[tuple[str, str], ...] = ()
) -> Response:
    if request.query_params.get("format", "html") != "html":
        return as_json({"error": error.message, "next": error.next_step}, status)
    return html(
        "problem.html.jinja",
        status,
        title=title,
        message=error.message,
        next_step=error.next_step,
        there=there,
    )
