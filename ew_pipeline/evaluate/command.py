"""`ew evaluate --sales F --from W --to W`: a past-only backtest of every policy on any sales file."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from ew_pipeline.console import emit_json, messages
from ew_pipeline.errors import UsageError
from ew_pipeline.evaluate.backtest import Backtest, Verdict, backtest, verdict
from ew_pipeline.evaluate.experiments.display import number, print_lines, print_table
from ew_pipeline.evaluate.labels import RULES
from ew_pipeline.evaluate.registry import chosen_policies, default_policy
from ew_pipeline.evaluate.tables import SalesHistory, read_history, read_truth
from ew_pipeline.evaluate.view import LabelSource, RuleLabels


def evaluate(
    sales: Annotated[str, typer.Option(help="Sales of many weeks: parquet, CSV, a folder, or SQL.")],
    first: Annotated[str | None, typer.Option("--from", help="First week to evaluate.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last week to evaluate.")] = None,
    listing: Annotated[str | None, typer.Option(help="Which store ranges what.")] = None,
    label: Annotated[str, typer.Option(help="What an anomaly is: text, pair or code.")] = "text",
    truth: Annotated[
        str | None, typer.Option(help="Known anomalies instead of a label: store_id, sku_id, week, label.")
    ] = None,
    truth_column: Annotated[str | None, typer.Option(help="The column of the truth that tells.")] = None,
    truth_threshold: Annotated[float, typer.Option(help="An anomaly from this value on.")] = 0.5,
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="The default may use the pairs' own past.")
    ] = True,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="The default may learn from past labels.")
    ] = True,
    zero_rule: Annotated[
        str, typer.Option(help="auto, explicit, listing or inferred: what a missing row means.")
    ] = "auto",
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Only these, beside the default and the rules in use today; all for all."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """What every policy would have cost, week by week, with what was known at the time.

    Costs are ratios to doing nothing: below 1 pays for itself. Labels look at the weeks around each week; a
    policy sees none of them before they have matured.

    Exit codes: 0 done; 1 data rejected; 2 wrong call; 3 failed.
    """
    if truth is None and label not in RULES:
        raise UsageError(f"there is no label {label!r}.", f"choose one of {', '.join(RULES)}.")
    default = default_policy(history=history, calibrate=calibrate)
    chosen_policies(policy or (), default)  # a wrong name is said before the data are read
    table = read_history(sales, listing, zero_rule)
    labels: LabelSource = (
        RuleLabels(label) if truth is None else read_truth(truth, table, truth_column, truth_threshold)
    )
    _announce(table)
    weeks = _range(table, first, last)
    policies = chosen_policies(policy or (), default, len(weeks) * table.panel.n_pairs)
    result = backtest(table.panel, weeks, policies, labels, _progress)
    judged = verdict(result, default)
    if json:
        emit_json(to_json(result, default, judged, labels.rule, table))
    else:
        _print(result, default, judged, labels.rule)


def to_json(
    result: Backtest, default: str, judged: Verdict, rule: str, table: SalesHistory
) -> dict[str, Any]:
    """The document that `--json` prints."""
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
        "pairs": result.pairs,
        "anomalies": result.anomalies,
        "zero_rule": table.zero_rule,
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
    _progress(
        f"{panel.store_ids.size} stores, {panel.sku_ids.size} SKUs, {panel.n_pairs} pairs, "
        f"{panel.weeks[0]} to {panel.weeks[-1]}; zeros are {table.zero_rule}"
    )
    if table.ignored:
        _progress(f"columns not used: {', '.join(table.ignored)}")


def _progress(line: str) -> None:
    messages().print(line, style="dim", soft_wrap=True, markup=False)


def _print(result: Backtest, default: str, judged: Verdict, rule: str) -> None:
    rate = result.anomalies / result.pairs
    title = (
        f"{len(result.weeks)} weeks, {result.weeks[0]} to {result.weeks[-1]}, label {rule}: "
        f"{result.pairs} pairs, {rate:.2%} anomalies"
    )
    head = ("policy", "cost", "90% over weeks", "AUC", "AP", "TPR at 5%", "gap", "lift top 5")
    rows = []
    for name, m in result.policies.items():
        low, high = m.cost_ratio_interval
        rows.append(
            (
                f"{name} *" if name == default else name,
                number(m.cost_ratio),
                f"{number(low)} – {number(high)}",
                number(m.auc),
                number(m.average_precision),
                number(m.tpr_at["0.05"]),
                number(m.calibration_gap),
                number(m.lift_top_k, 2),
            )
        )
    print_table(title, head, rows)
    bands = result.policies[default].bands
    print_table(
        f"{default} by what the pair used to sell",
        ("units a week", "pairs", "anomalies", "cost", "AUC"),
        [
            (
                f"{b.low:g} to {b.high:g}",
                str(b.pairs),
                f"{b.anomaly_rate:.2%}",
                number(b.cost_ratio),
                number(b.auc),
            )
            for b in bands
        ],
    )
    lines = [judged.reason + ("." if judged.use else "; NOT to be used here.")]
    forms = Counter(c.chosen for c in result.calibrations.get(default, ()))
    if forms:
        lines.append("forms in use: " + ", ".join(f"{form} in {n} weeks" for form, n in forms.most_common()))
    if result.skipped:
        lines.append(f"{len(result.skipped)} weeks of the range have no labels yet and were skipped.")
    print_lines(f"* {default}", lines)
