"""Drift as Markdown, for Prefect's artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ew_pipeline.drift.alerts import Alert
from ew_pipeline.drift.evidence import Growth
from ew_pipeline.drift.page import last_week

if TYPE_CHECKING:
    from ew_pipeline.drift.run import DriftReport


def drift_markdown(report: DriftReport) -> str:
    """The verdict of every segment, and the newest point of every series."""
    lines = [f"# Drift, {report.assessment.weeks[-1]}: {report.verdict}", ""]
    lines += [f"- **{_plain(one.segment)}**: {one.verdict}. {_plain(one.words)}" for one in report.verdicts]
    lines += [
        "",
        "| segment | series | value | 90% interval | statistic | state |",
        "|---|---|---|---|---|---|",
    ]
    for chart in report.assessment.charts:
        row = last_week(chart)
        cells = (row["segment"], row["title"], row["value"], row["interval"], row["statistic"], row["state"])
        lines.append("| " + " | ".join(_plain(cell) for cell in cells) + " |")
    return "\n".join(lines)


def alert_markdown(alert: Alert, found: Sequence[Growth]) -> str:
    """An alert, where to look, and the stores and SKUs whose flags grew most since."""
    lines = [f"# Alert {alert.id}: {alert.verdict}", "", _plain(alert.words), ""]
    if alert.look_at:
        lines += [f"Look at: {alert.look_at}.", ""]
    if found:
        lines += ["| | flags a week before | since |", "|---|---|---|"]
        lines += [f"| {g.what} {_plain(g.id)} | {g.before:.1f} | {g.after:.1f} |" for g in found]
    else:
        lines.append("No store or SKU has more flags a week than before.")
    lines += ["", f'When you know why: `ew drift --acknowledge {alert.id} --why "…"`']
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A name cannot break the table it stands in."""
    return text.replace("|", "\\|").replace("\n", " ")
