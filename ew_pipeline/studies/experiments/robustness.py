"""Data that are not what the model assumes: sparse, overdispersed, other anomalies, or none at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ew_pipeline.core.console import number as n
from ew_pipeline.core.console import tally
from ew_pipeline.studies.ensemble import EnsembleSettings
from ew_pipeline.studies.experiments import options
from ew_pipeline.studies.experiments.instance import METHODS, InstanceTask
from ew_pipeline.studies.experiments.record import Record
from ew_pipeline.studies.experiments.report import Report, Table, present, verdict_table
from ew_pipeline.studies.experiments.requirements import ROBUSTNESS, Verdict, judge
from ew_pipeline.studies.experiments.summary import MethodSummary, summarise

TITLE = "robustness"
CASES: Mapping[str, EnsembleSettings] = {
    "sparse-.05": EnsembleSettings(observed_share=0.05),
    "sparse-.1": EnsembleSettings(observed_share=0.1),
    "wide-30x300": EnsembleSettings(n=30, m=300, observed_share=0.23),
    "nb-2": EnsembleSettings(noise="negative_binomial", dispersion_size=2.0),
    "nb-5": EnsembleSettings(noise="negative_binomial", dispersion_size=5.0),
    "thinning": EnsembleSettings(family="thinning"),
    "zero": EnsembleSettings(family="zero"),
    "uniform-onset": EnsembleSettings(family="uniform_onset"),
    "blocks-missing": EnsembleSettings(omega="block"),
    "stores-out": EnsembleSettings(anomalies="store"),
    "skus-out": EnsembleSettings(anomalies="sku"),
    "null-poisson": EnsembleSettings(anomaly_rate=0.0),
    "null-nb-5": EnsembleSettings(anomaly_rate=0.0, noise="negative_binomial", dispersion_size=5.0),
    "null-nb-20": EnsembleSettings(anomaly_rate=0.0, noise="negative_binomial", dispersion_size=20.0),
}


def robustness(
    instances: Annotated[int, typer.Option(min=1, help="Instances of each case.")] = 20,
    cases: Annotated[
        str | None, typer.Option(help=f"Comma-separated (default: all): {', '.join(CASES)}.")
    ] = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "default",
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Regret and cost against flagging nothing where the model's assumptions fail.

    In the cases "stores-out" and "skus-out" costs are those of the realised anomalies, and regret is against
    the policy that knows everything but which stores or SKUs are out: it can be negative.
    """
    chosen = list(CASES) if cases is None else options.names(cases, list(CASES), "case")
    options.names(method, METHODS, "method")
    tasks = [InstanceTask(case, CASES[case], method, seed, k) for case in chosen for k in range(instances)]
    records = options.run_records(TITLE, tasks, jobs, out)
    table = build(records)
    asked = {"instances": instances, "cases": cases, "method": method, "seed": seed}
    present(report(table, asked), out, as_json=json)


def build(records: Sequence[Record]) -> dict[str, tuple[MethodSummary, list[Verdict]]]:
    """By case: the figures and how they stand against what is required."""
    by_case: dict[str, list[Record]] = {}
    for record in records:
        by_case.setdefault(record.case, []).append(record)
    table = {}
    for case, own in by_case.items():
        summary = summarise(own)
        required = [requirement for requirement in ROBUSTNESS if requirement.case == case]
        table[case] = (summary, judge(required, asdict(summary)))
    return table


def report(table: Mapping[str, tuple[MethodSummary, list[Verdict]]], asked: Mapping[str, Any]) -> Report:
    """One row a case."""
    rows = tuple(
        (
            case,
            n(s.regret, 4),
            n(s.regret_se, 4),
            n(s.above_ignore, 4),
            n(s.above_ignore_worst, 4),
            f"{s.flagged:.2%}",
            f"{s.flagged_worst:.2%}",
            n(s.cpu_mean, 2),
            tally(s.tiers),
            "pass" if all(v.met is not False for v in verdicts) else "FAIL",
        )
        for case, (s, verdicts) in table.items()
    )
    title = f"Robustness: {asked['instances']} instances each, method {asked['method']}"
    head = ("case", "regret", "± s.e.", "cost − Ignore", "worst", "flagged", "most", "CPU s", "tier", "")
    figures = {
        "cases": {
            case: {**asdict(summary), "requirements": [v.plain() for v in verdicts]}
            for case, (summary, verdicts) in table.items()
        }
    }
    all_verdicts = [v for _, verdicts in table.values() for v in verdicts]
    return Report(
        TITLE, asked, figures, (Table(title, head, rows),), (verdict_table("Required", all_verdicts),)
    )
