"""Where the method reaches its limits (section 4.1): what sets the worst fifth of the instances apart.

The paper shows histograms of the fifth with the largest AUC gap to pi*. We add the fifth with the largest
regret, and say of each parameter whether the worst have more or less of it than chance would give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.console import number as n
from ew_pipeline.studies.experiments import options, pictures, printed
from ew_pipeline.studies.experiments.instance import METHODS
from ew_pipeline.studies.experiments.record import Record
from ew_pipeline.studies.experiments.report import Report, Table, present
from ew_pipeline.studies.experiments.table1 import ensemble_tasks

TITLE = "limits"
WORST = 0.2
FEWEST = 10
CLEAR = 2.0  # standard errors


@dataclass(frozen=True)
class Parameter:
    """A parameter of the ensemble: its name, its place in a record, and the bins of its histogram."""

    name: str
    of: Callable[[Record], float]
    edges: tuple[float, ...]


PARAMETERS = (
    Parameter("alpha", lambda r: r.true_alpha, tuple(np.linspace(0.0, 1.0, 6).tolist())),
    Parameter("anomaly rate", lambda r: r.true_anomaly_rate, tuple(np.linspace(0.0, 0.3, 6).tolist())),
    Parameter("observed share", lambda r: r.true_observed_share, tuple(np.linspace(0.5, 1.0, 6).tolist())),
    Parameter("rank", lambda r: float(r.true_rank), (0.5, 2.5, 4.5, 6.5, 8.5, 10.5)),
    Parameter("mean demand", lambda r: r.true_mean, tuple(np.linspace(1.0, 10.0, 6).tolist())),
)
MEASURES: Mapping[str, Callable[[Record], float | None]] = {
    "AUC gap": lambda r: r.auc_gap,
    "regret": lambda r: r.regret,
}


@dataclass(frozen=True)
class Contrast:
    """One parameter: the worst fifth against the other instances.

    ``difference`` is in standard errors; ``worst_counts`` and ``all_counts`` fill the histogram's bins.
    """

    parameter: str
    worst_mean: float
    other_mean: float
    difference: float
    worst_counts: tuple[int, ...]
    all_counts: tuple[int, ...]

    @property
    def reading(self) -> str:
        if abs(self.difference) < CLEAR:
            return "no clear difference"
        return "higher" if self.difference > 0 else "lower"


@dataclass(frozen=True)
class Limits:
    """One method by one measure. ``share`` is how much of the measure's sum the worst fifth holds."""

    method: str
    measure: str
    instances: int
    worst: int
    share: float
    contrasts: tuple[Contrast, ...]


def limits(
    instances: Annotated[int, typer.Option(min=FEWEST, help="How many instances; the paper has 1000.")] = 200,
    methods: Annotated[
        str, typer.Option(help=f"Comma-separated, from {', '.join(METHODS)}; the picture is of the first.")
    ] = "default,paper-oracle",
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    size: options.Size = 100,
    json: options.Json = False,
) -> None:
    """On which instances most is lost: alpha, p_A, p_O, rank and mean demand of the worst fifth.

    The instances are those of table1 with the same seed; with the same --out they are not fitted again.
    """
    chosen = options.names(methods, METHODS, "method")
    records = options.run_records(TITLE, ensemble_tasks(chosen, instances, seed, size), jobs, out)
    found = [
        contrast([r for r in records if r.method == method], measure)
        for method in chosen
        for measure in MEASURES
    ]
    if out is not None:
        pictures.save_limits(
            [each for each in found if each.method == chosen[0]],
            {parameter.name: parameter.edges for parameter in PARAMETERS},
            out / f"{TITLE}.png",
        )
    asked = {"instances": instances, "seed": seed, "size": size, "methods": ",".join(chosen)}
    present(report(found, asked), out, as_json=json)


def contrast(records: Sequence[Record], measure: str) -> Limits:
    """Set the fifth of one method's records with the largest measure against the others."""
    measured = [(r, value) for r in records if (value := MEASURES[measure](r)) is not None]
    lost = np.array([value for _, value in measured])
    count = max(1, round(WORST * lost.size))
    worst = np.zeros(lost.size, dtype=np.bool_)
    worst[np.argsort(-lost, kind="stable")[:count]] = True
    contrasts = tuple(_contrast(p, np.array([p.of(r) for r, _ in measured]), worst) for p in PARAMETERS)
    total = float(lost.sum())
    share = float(lost[worst].sum() / total) if total > 0 else math.nan
    return Limits(records[0].method, measure, lost.size, count, share, contrasts)


def _contrast(parameter: Parameter, values: Float, worst: Bool) -> Contrast:
    inside, outside = values[worst], values[~worst]
    spread = math.sqrt(_error(inside) + _error(outside))
    gap = float(inside.mean() - outside.mean())
    return Contrast(
        parameter.name,
        float(inside.mean()),
        float(outside.mean()),
        gap / spread if spread > 0 else 0.0,
        tuple(np.histogram(inside, parameter.edges)[0].tolist()),
        tuple(np.histogram(values, parameter.edges)[0].tolist()),
    )


def _error(values: Float) -> float:
    """The squared standard error of the mean."""
    return float(values.var(ddof=1) / values.size) if values.size > 1 else 0.0


def report(found: Sequence[Limits], asked: Mapping[str, Any]) -> Report:
    figures = {
        "limits": [
            {**asdict(each), "contrasts": [{**asdict(c), "reading": c.reading} for c in each.contrasts]}
            for each in found
        ],
        "bins": {parameter.name: list(parameter.edges) for parameter in PARAMETERS},
    }
    tables = tuple(
        Table(
            f"{each.method}: the {each.worst} of {each.instances} instances with the largest {each.measure}"
            f" hold {each.share:.0%} of it",
            ("", "worst fifth", "others", "difference, s.e.", "worst fifth is", "the paper says"),
            tuple(
                (
                    c.parameter,
                    n(c.worst_mean),
                    n(c.other_mean),
                    f"{c.difference:+.1f}",
                    c.reading,
                    printed.LIMIT_CLAIMS[c.parameter],
                )
                for c in each.contrasts
            ),
        )
        for each in found
    )
    return Report(TITLE, asked, figures, tables, (), (*printed.LIMITS, *printed.ENSEMBLE))
