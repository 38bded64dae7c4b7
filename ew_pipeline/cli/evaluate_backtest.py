"""A past-only backtest of every policy on any sales file: what `ew evaluate --sales F` does and prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ew_pipeline.backtest.measures import Measures
from ew_pipeline.backtest.run_backtest import BacktestReport
from ew_pipeline.core.console import number, print_lines, print_table


def to_json(report: BacktestReport) -> dict[str, Any]:
    """The document that `--json` prints."""
    result, default, judged, rule = report.result, report.default, report.verdict, report.rule
    return {
        "default": default,
        "policies": {
            name: {
                **measures.to_dict(),
                "seconds": result.seconds[name],
                "forms": dict(Counter(c.chosen for c in result.calibrations.get(name, ()))),
            }
            for name, measures in result.policies.items()
        },
        "weeks": list(result.weeks),
        "skipped": dict(result.skipped),
        "label": rule,
        "costs": report.request.costs,
        "segment_by": report.request.segment_by,
        "pairs": result.pairs,
        "anomalies": result.anomalies,
        "zero_rule": report.table.zero_rule,
        "verdict": {"use": judged.use, "reason": judged.reason},
        "calibrations": {
            name: [
                {
                    "week": week,
                    "version": c.version,
                    "accepted": c.accepted,
                    "chosen": c.chosen,
                    "reason": c.reason,
                    "gain": c.gain,
                    "weeks": list(c.weeks),
                }
                for week, c in zip(result.weeks, records, strict=True)
            ]
            for name, records in result.calibrations.items()
        },
    }


def print_backtest(report: BacktestReport) -> None:
    """The table on stdout."""
    result, default, judged = report.result, report.default, report.verdict
    rate = result.anomalies / result.pairs
    title = (
        f"{len(result.weeks)} weeks, {result.weeks[0]} to {result.weeks[-1]}, label {report.rule}, "
        f"costs {report.request.costs}: {result.pairs} pairs, {rate:.2%} anomalies"
    )
    print_measures(title, result.policies, default, "90% over weeks")
    print_parts(default, result.policies[default])
    lines = [judged.reason + ("." if judged.use else "; NOT to be used here.")]
    forms = Counter(c.chosen for c in result.calibrations.get(default, ()))
    if forms:
        lines.append("forms in use: " + ", ".join(f"{form} in {n} weeks" for form, n in forms.most_common()))
    if result.skipped:
        lines.append(f"{len(result.skipped)} weeks of the range have no labels yet and were skipped.")
    print_lines(f"* {default}", lines)


def print_measures(title: str, policies: Mapping[str, Measures], marked: str, interval: str) -> None:
    """One line per policy; ``interval`` names what the interval is over."""
    head = ("policy", "cost", interval, "AUC", "AP", "TPR at 5%", "gap", "lift top 5")
    rows = [
        (
            f"{name} *" if name == marked else name,
            number(m.cost_ratio),
            " – ".join(map(number, m.cost_ratio_interval)),
            number(m.auc),
            number(m.average_precision),
            number(m.tpr_at["0.05"]),
            number(m.calibration_gap),
            number(m.lift_top_k, 2),
        )
        for name, m in policies.items()
    ]
    print_table(title, head, rows)


def print_parts(name: str, measures: Measures) -> None:
    """One policy by what the pair used to sell, and by segment."""
    head = ("pairs", "anomalies", "cost", "AUC")
    bands = [(band.words, band) for band in measures.bands]
    segments = [(s.name, s) for s in measures.segments]
    for what, column, parts in (
        ("what the pair used to sell", "units a week", bands),
        ("segment", "segment", segments),
    ):
        if parts:
            rows = [
                (label, str(p.pairs), f"{p.anomaly_rate:.2%}", number(p.cost_ratio), number(p.auc))
                for label, p in parts
            ]
            print_table(f"{name} by {what}", (column, *head), rows)
