"""One page about one pair in one week, flagged or not: as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ew_pipeline.audit.explain import Explanation, Neighbour
from ew_pipeline.outputs.page import page_environment

BAR_WIDTH, BAR_HEIGHT, BAR_BOTTOM = 46, 100, 130
TEXT_BAR = 30


def lines(explanation: Explanation) -> Iterator[str]:
    """The page as text."""
    yield f"Store {explanation.store}, SKU {explanation.sku}, {explanation.week}"
    yield explanation.verdict
    if explanation.steps:
        yield ""
        yield from (f"  - {step}" for step in explanation.steps)
    if explanation.history:
        yield "\nUnits by week"
        most = max((one.units or 0 for one in explanation.history), default=0)
        for one in explanation.history:
            bar = "█" * round(TEXT_BAR * (one.units or 0) / max(most, 1))
            shown = "-" if one.units is None else str(one.units)
            yield f"  {one.week}  {shown:>6}  {bar}{' ' if bar else ''}{one.note}".rstrip()
    if (alike := explanation.resemblance) is not None:
        yield from _neighbours(f"Stores that sell like {explanation.store}", alike.stores)
        yield from _neighbours(f"SKUs that sell like {explanation.sku}", alike.skus)
    if explanation.flagged_in:
        yield f"\nAlso flagged in {', '.join(explanation.flagged_in)}"
    yield from (f"Checked {check}" for check in explanation.checks)
    yield "\nWhere this comes from"
    yield from (f"  {name:<14}{value}" for name, value in explanation.provenance.items())
    yield from (f"Note: {gap}." for gap in explanation.gaps)


def _neighbours(title: str, rows: tuple[Neighbour, ...]) -> Iterator[str]:
    if rows:
        width = max(len(one.name) for one in rows)
        yield f"\n{title} (cosine; sold of expected)"
        for one in rows:
            yield f"  {one.name:<{width}}  {one.similarity:6.3f}  {one.units:>6} of {one.expected_units:.1f}"


def page(explanation: Explanation, links: Mapping[str, str] | None = None) -> str:
    """The page as HTML: one file, nothing loaded from elsewhere. ``links``: addresses by name, on top."""
    template = page_environment("ew_pipeline.audit").get_template("explain.html.jinja")
    return template.render(e=explanation, bars=_bars(explanation), links=links or {})


def _bars(explanation: Explanation) -> dict[str, Any]:
    expected = None if explanation.score is None else explanation.score.expected_units
    most = max([one.units or 0 for one in explanation.history] + [expected or 0.0, 1.0])
    bars = []
    for place, one in enumerate(explanation.history):
        height = round(BAR_HEIGHT * (one.units or 0) / most, 1)
        label = "–" if one.units is None else str(one.units)
        bars.append(
            {
                "x": 6 + BAR_WIDTH * place,
                "y": round(BAR_BOTTOM - height, 1),
                "height": height,
                "week": one.week,
                "label": label,
                "note": one.note,
            }
        )
    line = None if expected is None or not bars else round(BAR_BOTTOM - BAR_HEIGHT * expected / most, 1)
    return {"bars": bars, "width": 12 + BAR_WIDTH * len(bars), "expected": line}
