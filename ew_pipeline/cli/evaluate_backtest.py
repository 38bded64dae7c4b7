"""A past-only backtest of every policy on any sales file: what `ew evaluate --sales F` does and prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ew_pipeline.backtest.backtest import Backtest, Verdict, backtest, verdict
from ew_pipeline.backtest.measures import Measures
from ew_pipeline.backtest.priced import COSTS
from ew_pipeline.backtest.registry import chosen_policies, default_policy
from ew_pipeline.backtest.tables import SalesHistory, read_history, read_truth
from ew_pipeline.backtest.view import LabelSource, RuleLabels
from ew_pipeline.core.console import messages, number, print_lines, print_table
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import RULES


@dataclass(frozen=True)
class BacktestRequest:
    """What to evaluate, by which labels and costs; see the options of `ew evaluate`."""

    sales: str
    first: str | None = None
    last: str | None = None
    listing: str | None = None
    label: str = "text"
    truth: str | None = None
    truth_column: str | None = None
    truth_threshold: float = 0.5
    costs: str = "text"
    segment_by: str | None = None
    history: bool = True
    calibrate: bool = True
    zero_rule: str = "auto"
    policies: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class BacktestReport:
    """A finished backtest, its verdict, and what it was made from."""

    request: BacktestRequest
    result: Backtest
    default: str
    verdict: Verdict
    rule: str
    table: SalesHistory


def run_backtest(request: BacktestRequest) -> BacktestReport:
    """Read, score every week with what was known at its end, measure."""
    if request.truth is None and request.label not in RULES:
        raise UsageError(f"there is no label {request.label!r}.", f"choose one of {', '.join(RULES)}.")
    default = default_policy(history=request.history, calibrate=request.calibrate)
    chosen_policies(request.policies, default)  # a wrong name is said before the data are read
    if request.costs not in COSTS:
        raise UsageError(f"there are no costs {request.costs!r}.", f"choose one of {', '.join(COSTS)}.")
    table = read_history(request.sales, request.listing, request.zero_rule, segment_by=request.segment_by)
    labels: LabelSource = RuleLabels(request.label)
    if request.truth is not None:
        labels = read_truth(request.truth, table, request.truth_column, request.truth_threshold)
    _announce(table)
    weeks = _range(table, request.first, request.last)
    policies = chosen_policies(request.policies, default, len(weeks) * table.panel.n_pairs)
    result = backtest(
        table.panel, weeks, policies, labels, say, costs=COSTS[request.costs], grouping=table.grouping
    )
    return BacktestReport(request, result, default, verdict(result, default), labels.rule, table)


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


def _range(table: SalesHistory, first: str | None, last: str | None) -> range:
    begin = 0 if first is None else table.position(first)
    end = table.panel.n_weeks - 1 if last is None else table.position(last)
    if begin > end:
        raise UsageError(f"--from {first} lies after --to {last}.", "exchange them.")
    inside = range(max(begin, 0), min(end, table.panel.n_weeks - 1) + 1)
    if not inside:
        raise UsageError(
            f"no week of the sales lies between {first} and {last}: they run from "
            f"{table.panel.weeks[0]} to {table.panel.weeks[-1]}.",
            "choose from them.",
        )
    return inside


def _announce(table: SalesHistory) -> None:
    panel = table.panel
    say(
        f"{panel.store_ids.size} stores, {panel.sku_ids.size} SKUs, {panel.n_pairs} pairs, "
        f"{panel.weeks[0]} to {panel.weeks[-1]}; zeros are {table.zero_rule}"
    )
    if table.ignored:
        say(f"columns not used: {', '.join(table.ignored)}")


def say(line: str) -> None:
    """A line for the person who watches."""
    messages().print(line, style="dim", soft_wrap=True, markup=False)


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
