"""`ew evaluate`: what was published, what every policy would have cost, or what the checks have shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from ew_pipeline.backtest.page import write_backtest_page
from ew_pipeline.backtest.run import EvaluationRequest, run_evaluation
from ew_pipeline.backtest.run_backtest import BacktestReport, BacktestRequest, run_backtest, say
from ew_pipeline.cli import evaluate_week
from ew_pipeline.cli.checks import show_checks
from ew_pipeline.cli.evaluate_week import print_measures, print_parts
from ew_pipeline.cli.studies import published_methods
from ew_pipeline.core.console import emit_json, print_lines
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps


def evaluate(
    week: Annotated[str | None, typer.Option(help="A published week whose labels are mature.")] = None,
    sales: Annotated[
        str | None,
        typer.Option(
            help="Sales of many weeks: parquet, CSV, a folder, or SQL. Alone: a backtest. With --week: "
            "instead of what the runs have kept."
        ),
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", help="First week of a backtest or of checks.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last week.")] = None,
    checks: Annotated[
        bool, typer.Option("--checks", help="By what was found at the shelves instead of by labels.")
    ] = False,
    publication: Annotated[
        int | None, typer.Option(help="A publication by its number, also a superseded one.")
    ] = None,
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
    out: Annotated[
        Path | None, typer.Option(help="Folder of the page; default: evaluations/ in EW_HOME.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """How published weeks, policies and checks did.

    --week W: the published decisions of a week, and every policy beside them, once the labels are in.
    --sales F: what every policy would have cost, week by week, with what was known at the time.
    --checks: precision, recall, lift, calibration and saving, by what people found at the shelves.
    Nothing of these: every publication whose labels have matured since.

    Costs are ratios to doing nothing: below 1 pays for itself. Labels look at the weeks around each week; a
    policy sees none of them before they have matured. What was flagged is never changed.

    Exit codes: 0 done; 1 data rejected, or labels not mature; 2 wrong call; 3 failed.
    """
    _refuse_mixed(week, publication, sales, first, last, checks)
    if checks:
        show_checks(first, last, json)
    elif sales is None or week is not None or publication is not None:
        request = EvaluationRequest(
            week=week,
            publication=publication,
            sales=sales,
            listing=listing,
            zero_rule=zero_rule,
            label=label,
            truth=truth,
            truth_column=truth_column,
            truth_threshold=truth_threshold,
            costs=costs,
            policies=policy or (),
            out=out,
        )
        report = run_evaluation(request, Settings(), Steps(), published_methods())
        if json:
            emit_json(evaluate_week.to_json(report, one=not (week is None and publication is None)))
        else:
            evaluate_week.print_evaluation(report)
    else:
        _backtest(
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
            ),
            out,
            json,
        )


def _refuse_mixed(
    week: str | None,
    publication: int | None,
    sales: str | None,
    first: str | None,
    last: str | None,
    checks: bool,
) -> None:
    published = week is not None or publication is not None
    if checks and (published or sales is not None):
        raise UsageError("--checks needs no week and no sales.", "choose its weeks with --from and --to.")
    if published and (first is not None or last is not None):
        raise UsageError("--week is one week; --from and --to are for a backtest.", "leave out one of them.")
    if (first is not None or last is not None) and sales is None and not checks:
        raise UsageError("--from and --to go with --sales or --checks.", "give the sales to backtest on.")


def _backtest(request: BacktestRequest, out: Path | None, json: bool) -> None:
    report = run_backtest(request, published_methods())
    page = write_backtest_page(report, Settings(), out)
    if json:
        emit_json(to_json(report) | {"page": str(page)})
    else:
        print_backtest(report)
        say(f"Page: {page}")


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
