"""Pages: one look for all of them, and the report of a week. One file, no network, every id escaped."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, urlsplit

import pandas as pd
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ew_pipeline._version import __version__
from ew_pipeline.core.files import writing_to
from ew_pipeline.outputs import words
from ew_pipeline.outputs.check_list import store_lists_in
from ew_pipeline.outputs.drawing import CalibrationTable, Plot
from ew_pipeline.outputs.report_content import STORES, ReportContent, build_content
from ew_pipeline.outputs.report_plots import make_plots
from ew_pipeline.outputs.summary import headline
from ew_pipeline.results import Override, WeekResult

REPORT = "ew_pipeline.outputs"
PAGE = "report.html"
STORES_ON_A_PHONE = 6  # as in style.css
SAFE_SCHEMES = {"", "http", "https", "file"}


def write_report(
    result: WeekResult,
    *,
    series: pd.DataFrame,
    previous: pd.DataFrame | None,
    links: Mapping[str, str],
    folder: Path,
    calibration: CalibrationTable | None = None,
    calibration_of: str = "",
    override: Override | None = None,
    publish_anyway: str | None = None,
) -> Path:
    """Write ``report.html`` into ``folder``; the check lists are linked when they are already there.

    Parameters
    ----------
    series : theta of the past weeks, one row per week and segment ("pooled" for the chain): week, segment,
        alpha, alpha_low, alpha_high, anomaly_rate, anomaly_rate_low, anomaly_rate_high. May be empty.
    previous : flags of the last published week before this one; None when there is none.
    links : addresses by name, e.g. of the MLflow run and of Data Docs.
    calibration : predicted against realised of earlier weeks whose labels are in; ``calibration_of`` : which.
    override : who published a held week, and why.
    publish_anyway : what to type to publish a held week; by default with the sales left open.
    """
    content = build_content(
        result, previous=previous, links=links, override=override, publish_anyway=publish_anyway
    )
    plots = make_plots(result, series, calibration, calibration_of)
    page = render_html(content, plots, store_lists=store_lists_in(folder))
    return write_page_file(folder / PAGE, page)


def render_html(content: ReportContent, plots: Mapping[str, Plot], *, store_lists: str = "") -> str:
    """The page as text. ``store_lists``: the stores' own lists, which lie beside it with check_list.csv."""
    script = _template("script.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = _report_environment().get_template("report.html.jinja")
    return template.render(
        content=content,
        plots={name: Markup(plot.svg) for name, plot in plots.items()},
        described=plots,
        headline=headline(content),
        first_stores=content.stores[:STORES],
        many_stores=len(content.stores) > STORES_ON_A_PHONE,
        store_lists=store_lists,
        style=page_style(),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        version=__version__,
    )


@cache
def page_environment(package: str) -> Environment:
    """Templates of ``package``, which may import those of the weekly report; they escape."""
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
    return Markup(_template("style.css"))


def write_page_file(path: Path, text: str) -> Path:
    """Write a page; a reader sees the old one or the new one, never half."""
    with writing_to(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".part")
        half.write_text(text, encoding="utf-8")
        os.replace(half, path)
    return path


@cache
def _report_environment() -> Environment:
    environment = page_environment(REPORT)
    for format in (words.count, words.money, words.percent, words.plural, words.share, words.short):
        environment.filters[format.__name__] = format
    environment.filters["fragment"] = lambda text: quote(text, safe="")
    environment.tests["web_address"] = _may_be_linked
    return environment


def _template(name: str) -> str:
    return (files(REPORT) / "templates" / name).read_text(encoding="utf-8")


def _may_be_linked(address: str) -> bool:
    try:
        return urlsplit(address).scheme in SAFE_SCHEMES
    except ValueError:
        return False
