"""The week in a few lines: Markdown for Prefect's artifact, plain lines for the end of a run."""

from __future__ import annotations

import re

import pandas as pd

from ew_pipeline.outputs.report_content import STORES, ReportContent, build_content
from ew_pipeline.outputs.words import count, money, percent, plural, short
from ew_pipeline.results import Override, WeekResult

MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+!|~&-])")
TOP_STORES = 5


def summary_markdown(
    result: WeekResult,
    *,
    previous: pd.DataFrame | None = None,
    override: Override | None = None,
    publish_anyway: str | None = None,
) -> str:
    """Headline, health, marks, the top 20 and the stores as Markdown; ids are escaped."""
    return render_markdown(
        build_content(result, previous=previous, override=override, publish_anyway=publish_anyway)
    )


def summary_lines(
    result: WeekResult,
    *,
    previous: pd.DataFrame | None = None,
    override: Override | None = None,
    publish_anyway: str | None = None,
) -> list[str]:
    """The closing tally of a run, one fact a line."""
    return render_lines(
        build_content(result, previous=previous, override=override, publish_anyway=publish_anyway)
    )


def render_markdown(content: ReportContent) -> str:
    blocks = [
        f"# {content.week}: {headline(content)}",
        f"Expected saving **{money(content.saving)}** of {money(content.cost_ignoring)} at stake.",
        f"**{content.health.label}.** {_markdown(content.health.line)}",
    ]
    if content.health.reasons:
        blocks.append("\n".join(f"- {_markdown(reason)}" for reason in content.health.reasons))
    if content.health.command:
        blocks.append(f"To publish anyway:\n\n```\n{content.health.command}\n```")
    if content.changes is not None:
        blocks.append(_changed(content))
    if content.marks:
        blocks.append("\n".join(f"- *{_markdown(m.name)}*: {_markdown(m.words)}" for m in content.marks))
    if content.top:
        rows = [
            f"| {_markdown(c.store)} | {_markdown(c.sku)} | {count(c.sold)} | {short(c.expected)} "
            f"| {percent(c.probability)} | {money(c.saving)} | {_markdown(c.why)} |"
            for c in content.top
        ]
        named = f"| Store | SKU | Sold | Expected | {content.chance.name} | Saving | Why |"
        head = f"{named}\n|---|---|--:|--:|--:|--:|---|"
        blocks.append("\n".join([head, *rows]))
    if content.stores:
        lines = [f"| {_markdown(s.store)} | {count(s.to_check)} |" for s in content.stores[:STORES]]
        blocks.append("\n".join(["| Store | To check |\n|---|--:|", *lines]))
    return "\n\n".join(blocks) + "\n"


def render_lines(content: ReportContent) -> list[str]:
    lines = [
        f"{content.week}: {headline(content)}",
        f"expected saving {money(content.saving)} of {money(content.cost_ignoring)} at stake",
    ]
    if content.stores:
        named = [f"{s.store} {count(s.to_check)}" for s in content.stores[:TOP_STORES]]
        more = content.stores_to_check - len(named)
        lines.append(f"most in {', '.join(named)}{f', … +{more}' if more else ''}")
    if content.changes is not None:
        lines.append(_changed(content))
    lines.append(f"{content.health.label.lower()}: {content.health.line}")
    lines.extend(f"  {reason}" for reason in content.health.reasons)
    if content.health.command:
        lines.append(f"  to publish anyway: {content.health.command}")
    lines.extend(f"{mark.name}: {mark.words}" for mark in content.marks)
    return lines


def headline(content: ReportContent) -> str:
    """``37 shelves to check in 12 stores``."""
    if content.to_check == 0:
        return "nothing to check"
    shelves = plural(content.to_check, "shelf", "shelves")
    return f"{shelves} to check in {plural(content.stores_to_check, 'store')}"


def _changed(content: ReportContent) -> str:
    c = content.changes
    assert c is not None
    return f"since {c.since}: {count(c.new)} new, {count(c.still)} still there, {count(c.gone)} gone"


def _markdown(text: str) -> str:
    return MARKDOWN.sub(r"\\\1", text)
