"""The page of a backtest."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

from ew_pipeline.backtest.page.content import (
    EvaluationContent,
    Figure,
    compared,
    parts_table,
    policies_table,
    series_of,
)
from ew_pipeline.backtest.page.render import write_evaluation
from ew_pipeline.backtest.run_backtest import BacktestReport, BacktestRequest
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.core.settings import Settings
from ew_pipeline.intake.source_passwords import without_password
from ew_pipeline.outputs.report_tables import Table
from ew_pipeline.outputs.words import (
    clean,
    count,
    plural,
    share,
)


def write_backtest_page(report: BacktestReport, settings: Settings, out: Path | None) -> Path:
    """In ``out``, or in a folder of the home named after the sales, the weeks and what was asked."""
    request, weeks = _without_passwords(report.request), report.result.weeks
    asked = canonical_hash(asdict(request))[:8]
    name = f"backtest-{Path(request.sales).stem[:40]}-{weeks[0]}-{weeks[-1]}-{report.rule}-{asked}"
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
    return write_evaluation(backtest_content(report), out or settings.evaluations / safe)


def _without_passwords(request: BacktestRequest) -> BacktestRequest:
    listing = None if request.listing is None else without_password(request.listing)
    truth = None if request.truth is None else without_password(request.truth)
    return replace(request, sales=without_password(request.sales), listing=listing, truth=truth)


def backtest_content(report: BacktestReport) -> EvaluationContent:
    """What every policy would have cost over the weeks, with what was known at the time."""
    result, default, request = report.result, report.default, _without_passwords(report.request)
    own = result.policies[default]
    names = compared(result.policies, default)
    low, high = own.cost_ratio_interval
    tables = (
        policies_table(result.policies, default),
        parts_table(f"{default} by what the pair used to sell", own, "band"),
        parts_table(f"{default} by segment", own, "segment"),
    )
    return EvaluationContent(
        eyebrow=f"Backtest · {plural(len(result.weeks), 'week')}, {result.weeks[0]} to {result.weeks[-1]}",
        headline=f"{clean(default)} costs {own.cost_ratio:.2f} of doing nothing",
        good=report.verdict.use,
        verdict=f"{report.verdict.reason}.",
        figures=(
            Figure("Cost", f"{own.cost_ratio:.3f}", f"of doing nothing; {low:.3f} to {high:.3f} over weeks"),
            Figure(
                "Ranking",
                f"{own.auc:.3f}",
                f"AUC within a week; average precision {own.average_precision:.3f}",
            ),
            Figure("Labelled", count(result.pairs), f"pairs, {share(own.anomaly_rate)} of them anomalies"),
        ),
        shown=default,
        policies=result.policies,
        series=series_of(result.weeks, result.policies, names),
        tables=tuple(table for table in tables if table is not None),
        facts=Table(
            "How",
            ("", ""),
            (
                ("Sales", clean(request.sales)),
                ("Label", report.rule),
                ("Costs", request.costs),
                ("Zeros", report.table.zero_rule),
                ("Weeks without labels", str(len(result.skipped))),
                ("Seconds", f"{sum(result.seconds.values()):.0f}"),
            ),
        ),
        note="Every policy saw only what was known at the end of the week it scored.",
    )
