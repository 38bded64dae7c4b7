"""`ew evaluate`: what was published, what every policy would have cost, or what the checks have shown."""

from __future__ import annotations

from typing import Annotated

import typer

from ew_pipeline.console import emit_json
from ew_pipeline.errors import UsageError
from ew_pipeline.evaluate.backtest_command import BacktestRequest, print_backtest, run_backtest, to_json
from ew_pipeline.evaluate.labels import RULES


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
    costs: Annotated[
        str, typer.Option(help="Uniform costs: text for U[0, 500] twice, notebook for false alarms U[0, 10].")
    ] = "text",
    segment_by: Annotated[
        str | None, typer.Option(help="Column of sales or listing: measure each of its values by itself.")
    ] = None,
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
    report = run_backtest(
        BacktestRequest(
            sales=sales,
            first=first,
            last=last,
            listing=listing,
            label=label,
            truth=truth,
            truth_column=truth_column,
            truth_threshold=truth_threshold,
            costs=costs,
            segment_by=segment_by,
            history=history,
            calibrate=calibrate,
            zero_rule=zero_rule,
            policies=policy or (),
        )
    )
    if json:
        emit_json(to_json(report))
    else:
        print_backtest(report)
