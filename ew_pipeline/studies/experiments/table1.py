"""Table 1 (section 4.1): the paper's ensemble at n = m = 100, every method on the same instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from ew_pipeline.core.console import number as n
from ew_pipeline.core.console import tally
from ew_pipeline.studies.ensemble import EnsembleSettings
from ew_pipeline.studies.experiments import options, pictures, printed
from ew_pipeline.studies.experiments.instance import DEFAULT, METHODS, InstanceTask
from ew_pipeline.studies.experiments.record import Record
from ew_pipeline.studies.experiments.report import Report, Table, present, verdict_table
from ew_pipeline.studies.experiments.requirements import TABLE_1, VARIATIONAL, Verdict, judge
from ew_pipeline.studies.experiments.summary import (
    CalibrationRow,
    MethodSummary,
    RateSummary,
    pooled_calibration,
    summarise,
    summarise_rates,
)

TITLE = "table1"
CASE = "ensemble"
ALL = (
    "default,variational,fast,paper,paper-practical,paper-oracle,"
    "drmf,stable-pcp,rmc,drmf-one-sided,stable-pcp-one-sided,rmc-one-sided,ignore"
)


@dataclass(frozen=True)
class Table1:
    """All figures of the study."""

    methods: Mapping[str, MethodSummary]
    rates: Sequence[RateSummary]
    calibration: Sequence[CalibrationRow]
    verdicts: Sequence[Verdict]


def table1(
    instances: Annotated[int, typer.Option(min=1, help="How many instances; the paper has 1000.")] = 200,
    methods: Annotated[str, typer.Option(help=f"Comma-separated, from {', '.join(METHODS)}.")] = ALL,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    size: options.Size = 100,
    json: options.Json = False,
) -> None:
    """Table 1 of the paper on fresh instances: regret, error of M, AUC, theta, Algorithm 2, calibration.

    Every method meets the same instances. Ours choose rank, noise and anomaly model by themselves;
    what the others are told is said below the table.
    """
    chosen = options.names(methods, METHODS, "method")
    records = options.run_records(TITLE, ensemble_tasks(chosen, instances, seed, size), jobs, out)
    table = build(records)
    if out is not None:
        pictures.save_table1(records, table.calibration, out / f"{TITLE}.png")
    asked = {"instances": instances, "seed": seed, "size": size, "methods": ",".join(chosen)}
    present(report(table, asked), out, as_json=json)


def ensemble_tasks(methods: Sequence[str], instances: int, seed: int, size: int = 100) -> list[InstanceTask]:
    """The paper's ensemble; the same instances, and the same tasks, for every study of it."""
    settings = EnsembleSettings(n=size, m=size)
    return [InstanceTask(CASE, settings, method, seed, k) for k in range(instances) for method in methods]


def build(records: Sequence[Record]) -> Table1:
    """Summaries by method; of the default also Algorithm 2, calibration and verdicts."""
    by_method: dict[str, list[Record]] = {}
    for record in records:
        by_method.setdefault(record.method, []).append(record)
    summaries = {method: summarise(own) for method, own in by_method.items()}
    default = by_method.get(DEFAULT, [])
    rates, calibration = summarise_rates(default), pooled_calibration(default)
    verdicts: list[Verdict] = []
    if default:
        figures = {
            **asdict(summaries[DEFAULT]),
            # The worst over gamma: the promise holds for each.
            "plug_in_fpr": max((row.plug_in_fpr for row in rates), default=None),
            "exceeded": max((row.exceeded for row in rates), default=None),
            "tpr_loss": max((row.tpr_loss for row in rates), default=None),
            "calibration_gap": max((abs(row.gap) for row in calibration), default=None),
        }
        verdicts += judge(TABLE_1, figures)
    if "variational" in summaries:
        verdicts += judge(VARIATIONAL, asdict(summaries["variational"]))
    return Table1(summaries, rates, calibration, verdicts)


def report(table: Table1, asked: Mapping[str, Any]) -> Report:
    """Methods beside what the paper prints; then theta, Algorithm 2, calibration, and what is required."""
    figures = {
        "methods": {name: asdict(summary) for name, summary in table.methods.items()},
        "algorithm2": [asdict(row) for row in table.rates],
        "calibration": [{**asdict(row), "gap": row.gap} for row in table.calibration],
        "requirements": [v.plain() for v in table.verdicts],
        "paper": [asdict(row) for row in printed.TABLE_1],
    }
    details = [_theta(table.methods)]
    if table.rates:
        details.append(_algorithm_2(table.rates))
    if table.calibration:
        details.append(_calibration(table.calibration))
    if table.verdicts:
        details.append(verdict_table("Required", table.verdicts))
    return Report(
        TITLE,
        asked,
        figures,
        (_costs(table.methods, asked["size"]), _errors(table.methods)),
        tuple(details),
        (*(row.difference for row in printed.TABLE_1), printed.TUNING, *printed.ENSEMBLE),
    )


def _costs(methods: Mapping[str, MethodSummary], size: int) -> Table:
    count = max(s.instances for s in methods.values())
    ours = [
        (
            name,
            n(s.regret, 4),
            n(s.regret_se, 4),
            n(s.regret_p95),
            n(s.regret_worst),
            n(s.above_ignore),
            n(s.above_ignore_worst),
            f"{s.flagged:.1%}",
            n(s.cpu_mean, 2),
        )
        for name, s in methods.items()
    ]
    paper = [(f"printed: {p.method}", f"{p.regret:.2f}", *7 * ("",)) for p in printed.TABLE_1]
    return Table(
        f"Table 1: {count} instances, n = m = {size}",
        ("", "mean regret", "± s.e.", "95%", "worst", "cost − Ignore", "worst", "flagged", "CPU s"),
        (*ours, *paper),
    )


def _errors(methods: Mapping[str, MethodSummary]) -> Table:
    ours = [
        (name, n(s.error_frobenius, 1), n(s.error_max, 1), n(s.auc_gap, 4), n(s.tuned_share))
        for name, s in methods.items()
    ]
    paper = [
        (f"printed: {p.method}", n(p.error_frobenius, 1), n(p.error_max, 1), "", "") for p in printed.TABLE_1
    ]
    return Table(
        "Error of M and ranking",
        ("", "‖M − M*‖F", "‖M − M*‖max", "AUC gap to pi*", "share tuned to"),
        (*ours, *paper),
    )


def _theta(methods: Mapping[str, MethodSummary]) -> Table:
    fitted = {name: s for name, s in methods.items() if s.rate_rmse is not None}
    lines: list[tuple[str, Callable[[MethodSummary], str]]] = [
        ("p_A: bias", lambda s: n(s.rate_bias, 4)),
        ("p_A: RMSE", lambda s: n(s.rate_rmse)),
        ("alpha: RMSE", lambda s: n(s.alpha_rmse)),
        ("theta identified", lambda s: n(s.identified, 2)),
        ("  90% interval covers p_A", lambda s: n(s.rate_coverage)),
        ("  90% interval covers alpha", lambda s: n(s.alpha_coverage)),
        ("CPU s per fit, median", lambda s: n(s.cpu_median, 2)),
        ("tier", lambda s: tally(s.tiers)),
        ("noise", lambda s: tally(s.noises)),
        ("not converged / failed", lambda s: f"{s.not_converged} / {s.failures}"),
    ]
    rows = tuple((label, *(figure(s) for s in fitted.values())) for label, figure in lines)
    return Table("Theta and fits", ("", *fitted), rows)


def _algorithm_2(rates: Sequence[RateSummary]) -> Table:
    return Table(
        "Algorithm 2 (default)",
        ("gamma", "z=0: FPR/gamma", "z=1: FPR > gamma", "TPR of pi*", "z=1: TPR loss", "against z=0"),
        tuple(
            (
                f"{r.gamma:g}",
                n(r.plug_in_fpr),
                n(r.exceeded),
                n(r.tpr_ideal),
                n(r.tpr_loss),
                n(r.tpr_loss_to_plug_in),
            )
            for r in rates
        ),
    )


def _calibration(rows: Sequence[CalibrationRow]) -> Table:
    return Table(
        "Calibration (default): deciles of P(anomaly) over all pairs",
        ("pairs", "predicted", "realised", "gap"),
        tuple((str(r.count), n(r.predicted, 4), n(r.realised, 4), f"{r.gap:+.4f}") for r in rows),
    )
