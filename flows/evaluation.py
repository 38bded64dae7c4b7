"""The evaluation flow: published weeks whose labels have matured, as they stood when they were published."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.states import Completed, State

from ew_pipeline.backtest.run import EvaluationReport, EvaluationRequest, run_evaluation
from ew_pipeline.core.settings import Settings
from ew_pipeline.intake.source_passwords import with_passwords
from flows.steps import PrefectSteps


@flow(name="evaluation", persist_result=False, validate_parameters=False)
def evaluation(
    label: str = "text",
    week: str | None = None,
    sales: str | None = None,
    listing: str | None = None,
    costs: str = "text",
    policies: list[str] | None = None,
) -> State[EvaluationReport]:
    """Evaluate every publication that is due under ``label``, or one week; see ``ew_pipeline.backtest.run``.

    Without ``sales``: on what the weekly runs have kept. The state is Evaluated, or Unchanged when nothing
    was due.
    """
    sources = with_passwords(sales=sales, listing=listing)
    request = EvaluationRequest(week=week, label=label, costs=costs, policies=policies or (), **sources)
    report = run_evaluation(request, Settings(), PrefectSteps())
    _show(report)
    new = [done for done in report.weeks if done.new]
    words = [f"{len(new)} evaluated"]
    words += [f"not: {', '.join(report.left)}"] if report.left else []
    words += [f"not tracked: {report.untracked}"] if report.untracked else []
    return Completed(name="Evaluated" if new else "Unchanged", message="; ".join(words), data=report)


def _show(report: EvaluationReport) -> None:
    if not report.weeks:
        return
    rows = []
    for done in report.weeks:
        own = done.measures.published
        rows.append(
            {
                "week": done.measures.week,
                "publication": done.publication.id,
                "pairs": done.measures.pairs,
                "flags": own.decisions.flagged,
                "right": own.decisions.found,
                "saving": round(own.decisions.saving.value, 2),
                "cost of doing nothing": round(own.decisions.cost_ignoring.value, 2),
                "cost ratio": round(own.measures.cost_ratio, 3),
                "AUC": round(own.measures.auc, 3),
            }
        )
    create_table_artifact(rows, key="evaluation")
    create_link_artifact(link=report.weeks[-1].page.as_uri(), link_text="evaluation", key="evaluation-page")
