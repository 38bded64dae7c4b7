"""What `ew evaluate` prints of published weeks, and the tables of measures that a backtest also has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ew_pipeline.backtest.measures import Measures
from ew_pipeline.backtest.page import decisions_table
from ew_pipeline.backtest.run import EvaluationReport, WeekReport, document
from ew_pipeline.core.console import messages, number, print_lines, print_table, results
from ew_pipeline.ledger.records import PUBLISHED
from ew_pipeline.outputs.words import money


def to_json(report: EvaluationReport, *, one: bool) -> dict[str, Any]:
    """The document that `--json` prints: of ``one`` week the evaluation itself, else a list of them."""
    documents = [
        {
            "default": PUBLISHED,
            "weeks": [week.measures.week],
            **document(week.publication, week.measures, report.costs),
            "evaluation": week.evaluation_id,
            "new": week.new,
            "page": str(week.page),
        }
        for week in report.weeks
    ]
    if one:
        return documents[0] | {"untracked": report.untracked}
    return {"evaluations": documents, "left": dict(report.left), "untracked": report.untracked}


def print_evaluation(report: EvaluationReport) -> None:
    """Every evaluated week as tables on stdout; where its page is on stderr."""
    for week in report.weeks:
        _print_week(week, report.costs)
    if not report.weeks and not report.left:
        results().print("Nothing to do: every published week whose labels are in has been evaluated.")
    for name, why in report.left.items():
        messages().print(f"{name} was left: {why}", markup=False, soft_wrap=True)
    if report.untracked is not None:
        messages().print(
            f"MLflow does not know all of this yet ({report.untracked}); the next evaluation tells it.",
            markup=False,
            soft_wrap=True,
        )


def _print_week(week: WeekReport, costs: str) -> None:
    found, publication = week.measures, week.publication
    title = (
        f"{found.week}, publication {publication.id}, label {found.label_rule}: {found.pairs} of "
        f"{found.pairs_published} pairs have a label, {found.anomalies} are anomalies"
    )
    table = decisions_table({name: one.decisions for name, one in found.policies.items()})
    print_table(f"{title}; costs of the week", [column.lower() for column in table.columns], table.rows)
    measures = {name: one.measures for name, one in found.policies.items()}
    print_measures(
        f"The probabilities, costs {costs}, of doing nothing", measures, PUBLISHED, "90% over stores"
    )
    print_parts(PUBLISHED, found.published.measures)
    d = found.published.decisions
    known = "" if week.new else " (it was there already)"
    print_lines(
        "* what was published",
        [
            f"cost {money(d.cost.value)}, doing nothing {money(d.cost_ignoring.value)}: "
            f"saved {money(d.saving.value)}",
            f"evaluation {week.evaluation_id} of the ledger{known}",
        ],
    )
    messages().print(f"Page: {week.page}", markup=False, soft_wrap=True)


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
