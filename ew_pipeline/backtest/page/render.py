"""The page as a file: no network, every name escaped, the look of the weekly report."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from ew_pipeline._version import __version__
from ew_pipeline.backtest.page.content import EvaluationContent, compared, parts_of
from ew_pipeline.backtest.page.pictures import (
    calibration_picture,
    lift_picture,
    parts_picture,
    policies_picture,
    weeks_picture,
)
from ew_pipeline.outputs.drawing import Plot
from ew_pipeline.outputs.page import page_environment, page_style, write_page_file

PAGE = "evaluation.html"


def write_evaluation(content: EvaluationContent, folder: Path) -> Path:
    """Write ``evaluation.html`` into ``folder``."""
    return write_page_file(folder / PAGE, render_evaluation(content))


def render_evaluation(content: EvaluationContent) -> str:
    """The page as text."""
    plots = {plot.name: plot for plot in _plots(content)}
    template = page_environment("ew_pipeline.backtest.page").get_template("evaluation.html.jinja")
    return template.render(
        content=content,
        plots={name: Markup(plot.svg) for name, plot in plots.items()},
        described=plots,
        style=page_style(),
        version=__version__,
    )


def _plots(content: EvaluationContent) -> list[Plot]:
    shown, policies = content.shown, content.policies
    lines = compared(policies, shown)
    beside = {name: policies[name] for name in lines}
    found = [policies_picture(policies, shown), weeks_picture(content.series, shown)]
    found.append(calibration_picture(policies[shown]))
    for kind, title in (("band", "By what the pair used to sell"), ("segment", "By segment")):
        parts = {name: parts_of(policies[name], kind) for name in lines[:4]}
        found.append(parts_picture(kind, title, parts, shown))
    found.append(lift_picture(beside, shown))
    return [plot for plot in found if plot is not None]
