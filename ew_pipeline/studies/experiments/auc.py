"""Detection as a classification task (section 4.1): AUC against the ideal policy, and the mean ROC curve.

The scatter is of the paper's ensemble, the curve of its representative setting at n = m = 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer

from ew_pipeline.core.console import number as n
from ew_pipeline.studies.experiments import options, pictures, printed
from ew_pipeline.studies.experiments.instance import DEFAULT, IDEAL, METHODS, InstanceTask
from ew_pipeline.studies.experiments.record import ROC_GRID, Record
from ew_pipeline.studies.experiments.regret import representative
from ew_pipeline.studies.experiments.report import Report, Table, present
from ew_pipeline.studies.experiments.summary import standard_error
from ew_pipeline.studies.experiments.table1 import CASE, ensemble_tasks

TITLE = "auc"
RIVAL = "stable-pcp"  # the one that the paper shows
SHOWN_RATES = (0.01, 0.05, 0.1, 0.2)
CLOSE = 0.02  # an AUC this far below the ideal's counts as similar to it


@dataclass(frozen=True)
class AucSummary:
    """One method over the ensemble; instances without an anomaly have no AUC and are left out.

    ``below_default`` and ``close_to_ideal`` are shares of the instances.
    """

    instances: int
    mean: float
    gap: float
    gap_se: float | None
    gap_p95: float
    gap_worst: float
    close_to_ideal: float
    below_default: float | None


@dataclass(frozen=True)
class AucStudy:
    """Figures by method, mean true-positive rates on ``ROC_GRID``, and the points (default, other) of the
    paper's scatter."""

    methods: Mapping[str, AucSummary]
    curves: Mapping[str, Sequence[float]]
    curve_instances: int
    scatter: Mapping[str, Sequence[tuple[float, float]]]


def auc(
    instances: Annotated[int, typer.Option(min=1, help="How many instances; the paper has 1000.")] = 200,
    methods: Annotated[
        str, typer.Option(help=f"Comma-separated, from {', '.join(METHODS)}.")
    ] = "default,paper-practical,paper-oracle,drmf,stable-pcp,rmc",
    roc_instances: Annotated[int, typer.Option(min=1, help="Instances of the ROC curve.")] = 10,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    size: options.Size = 100,
    json: options.Json = False,
) -> None:
    """AUC of every method against that of pi*, and the mean ROC curve in the representative setting.

    The instances are those of table1 with the same seed; with the same --out they are not fitted again.
    """
    chosen = options.names(methods, METHODS, "method")
    curve_tasks = [
        InstanceTask(f"n = {size}", representative(size), method, seed, k)
        for k in range(roc_instances)
        for method in dict.fromkeys((*chosen, IDEAL))
    ]
    tasks = [*ensemble_tasks(chosen, instances, seed, size), *curve_tasks]
    records = options.run_records(TITLE, tasks, jobs, out)
    study = build(records)
    if out is not None:
        pictures.save_auc(study.scatter, study.curves, out / f"{TITLE}.png")
    asked = {
        "instances": instances,
        "roc_instances": roc_instances,
        "seed": seed,
        "size": size,
        "methods": ",".join(chosen),
    }
    present(report(study, asked), out, as_json=json)


def build(records: Sequence[Record]) -> AucStudy:
    """AUC over the ensemble, mean curves over the representative setting."""
    scored: dict[str, dict[int, Record]] = {}
    curves: dict[str, list[tuple[float, ...]]] = {}
    for record in records:
        if record.case == CASE and record.auc is not None:
            scored.setdefault(record.method, {})[record.instance] = record
        elif record.case != CASE and record.roc is not None:
            curves.setdefault(record.method, []).append(record.roc)
    default, rival = scored.get(DEFAULT, {}), scored.get(RIVAL, {})
    return AucStudy(
        {method: _summary(own, default) for method, own in scored.items()},
        {method: np.mean(own, axis=0).tolist() for method, own in curves.items()},
        max((len(own) for own in curves.values()), default=0),
        {
            IDEAL: [(r.auc, r.auc_ideal) for r in default.values() if r.auc and r.auc_ideal],
            RIVAL: [(default[k].auc or 0.0, r.auc or 0.0) for k, r in rival.items() if k in default],
        },
    )


def _summary(own: Mapping[int, Record], default: Mapping[int, Record]) -> AucSummary:
    gap = np.array([record.auc_gap for record in own.values()], dtype=np.float64)
    rivals = [
        (record.auc or 0.0) < (default[k].auc or 0.0)
        for k, record in own.items()
        if k in default and record.method != DEFAULT
    ]
    return AucSummary(
        instances=len(own),
        mean=float(np.mean([record.auc for record in own.values()])),
        gap=float(gap.mean()),
        gap_se=standard_error(gap),
        gap_p95=float(np.quantile(gap, 0.95)),
        gap_worst=float(gap.max()),
        close_to_ideal=float(np.mean(gap <= CLOSE)),
        below_default=float(np.mean(rivals)) if rivals else None,
    )


def report(study: AucStudy, asked: Mapping[str, Any]) -> Report:
    figures = {
        "ensemble": {name: asdict(summary) for name, summary in study.methods.items()},
        "roc": {"false_positive_rate": list(ROC_GRID), "true_positive_rate": dict(study.curves)},
    }
    tables = (_scatter(study, asked["size"]), _claims(study), _curve(study, asked["size"]))
    return Report(TITLE, asked, figures, tables, (), (*printed.AUC, printed.TUNING, *printed.ENSEMBLE[1:]))


def _scatter(study: AucStudy, size: int) -> Table:
    count = max((s.instances for s in study.methods.values()), default=0)
    return Table(
        f"AUC: {count} instances of the ensemble, n = m = {size}",
        ("", "mean AUC", "below pi*", "± s.e.", "95%", "worst", f"within {CLOSE:g} of pi*", "below default"),
        tuple(
            (
                name,
                n(s.mean, 4),
                n(s.gap, 4),
                n(s.gap_se, 4),
                n(s.gap_p95),
                n(s.gap_worst),
                f"{s.close_to_ideal:.0%}",
                "–" if s.below_default is None else f"{s.below_default:.0%}",
            )
            for name, s in study.methods.items()
        ),
    )


def _claims(study: AucStudy) -> Table:
    rows = []
    if DEFAULT in study.methods:
        own = study.methods[DEFAULT]
        rows.append(
            ("EW achieves similar AUC to pi*", f"default: {n(own.gap, 4)} below, {n(own.gap_worst)} at worst")
        )
    for name in (RIVAL, "drmf", "rmc"):
        below = study.methods[name].below_default if name in study.methods else None
        if below is not None:
            rows.append((f"EW outperforms {name} uniformly", f"default above it on {below:.1%} of instances"))
    return Table("What the paper claims", ("claim", "measured"), tuple(rows))


def _curve(study: AucStudy, size: int) -> Table:
    at = [ROC_GRID.index(rate) for rate in SHOWN_RATES]
    return Table(
        f"Mean ROC of {study.curve_instances} instances: r = 3, mean 5, p_O = .8, p_A = .04, alpha = .2,"
        f" n = m = {size}",
        ("", *(f"TPR at FPR {rate:g}" for rate in SHOWN_RATES)),
        tuple((name, *(n(curve[k]) for k in at)) for name, curve in study.curves.items()),
    )
