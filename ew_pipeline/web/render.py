"""Pages in the look of the weekly report, and data as JSON or CSV under the same address."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Response
from fastapi.responses import HTMLResponse

from ew_pipeline._version import __version__
from ew_pipeline.core.console import plain
from ew_pipeline.outputs import words
from ew_pipeline.outputs.page import page_environment, page_style
from ew_pipeline.web import addresses
from ew_pipeline.web.errors import WrongFormat

PACKAGE = "ew_pipeline.web"
Forms = Mapping[str, Callable[[], Response]]


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
