"""What every page shares: one look, templates that escape, a file that is whole or not there."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ew_pipeline.core.files import writing_to

REPORT = "ew_pipeline.outputs.report"


@cache
def page_environment(package: str) -> Environment:
    """Templates of ``package``, which may import those of the weekly report."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(REPORT)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def page_style() -> Markup:
    """The style of the weekly report."""
    return Markup((files(REPORT) / "templates" / "style.css").read_text(encoding="utf-8"))


def write_page_file(path: Path, text: str) -> Path:
    """A reader sees the old page or the new one, never half."""
    with writing_to(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.write_text(text, encoding="utf-8")
        os.replace(half, path)
    return path
