"""Regret against n (section 4.1, "Vanishing Regret When n Scales") at the paper's representative setting.

Theorem 1 bounds it by O(1/sqrt(n)) up to logarithms; we measure about 1/n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from ew_pipeline.core.console import number as n
from ew_pipeline.core.console import tally
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.ensemble import EnsembleSettings
from ew_pipeline.studies.experiments import options, pictures, printed
from ew_pipeline.studies.experiments.instance import DEFAULT, METHODS, InstanceTask
from ew_pipeline.studies.experiments.record import Record
from ew_pipeline.studies.experiments.report import Report, Table, present, verdict_table
from ew_pipeline.studies.experiments.requirements import REGRET, Verdict, judge
from ew_pipeline.studies.experiments.summary import MethodSummary, log_log_slope, summarise

TITLE = "regret"
FULL_COUNT_UP_TO = 200
FEWEST = 3


@dataclass(frozen=True)
class RegretBySize:
    """Figures by n, the slope through their means, and the verdicts."""

    sizes: dict[int, MethodSummary]
    slope: float | None
    verdicts: list[Verdict]


def regret(
    sizes: Annotated[str, typer.Option(help="n = m, comma-separated.")] = "50,100,200,400,800",
    instances: Annotated[
        int, typer.Option(min=1, help=f"Instances up to n = {FULL_COUNT_UP_TO}; fewer above, as 1/n.")
    ] = 10,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = DEFAULT,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Regret by n at r = 3, mean 5, p_O = .8, p_A = .04, alpha = .2, with the slope of its logarithm."""
    options.names(method, METHODS, "method")
    tasks = [
        InstanceTask(f"n = {size}", representative(size), method, seed, k)
        for size in _sizes(sizes)
        for k in range(count_at(size, instances))
    ]
    records = options.run_records(TITLE, tasks, jobs, out)
    table = build(records)
    if out is not None:
        regrets = {size: [r.regret for r in records if r.n == size] for size in table.sizes}
        pictures.save_regret(regrets, table.slope, out / f"{TITLE}.png")
    asked = {"sizes": sizes, "instances": instances, "method": method, "seed": seed}
    present(report(table, asked), out, as_json=json)


def representative(size: int) -> EnsembleSettings:
    """The setting of the paper's figure of regret against n."""
    return EnsembleSettings(
        n=size, m=size, rank=3, mean=5.0, observed_share=0.8, anomaly_rate=0.04, alpha=0.2
    )


def count_at(size: int, instances: int) -> int:
    """Fewer instances where each is larger: its regret varies less, and costs more to find."""
    return min(instances, max(FEWEST, instances * FULL_COUNT_UP_TO // size))


def build(records: Sequence[Record]) -> RegretBySize:
    by_size: dict[int, list[Record]] = {}
    for record in records:
        by_size.setdefault(record.n, []).append(record)
    sizes = {size: summarise(by_size[size]) for size in sorted(by_size)}
    slope = log_log_slope(list(sizes), [summary.regret for summary in sizes.values()])
    at_100 = sizes[100].regret if 100 in sizes else None
    return RegretBySize(sizes, slope, judge(REGRET, {"slope": slope, "regret_at_100": at_100}))


def report(table: RegretBySize, asked: Mapping[str, Any]) -> Report:
    """The curve as a table."""
    rows = tuple(
        (
            str(size),
            str(s.instances),
            n(s.regret, 5),
            n(s.regret_se, 5),
            n(s.regret_worst, 5),
            n(s.above_ignore, 4),
            n(s.error_frobenius, 1),
            n(s.cpu_mean, 2),
            tally(s.tiers),
        )
        for size, s in table.sizes.items()
    )
    head = ("n = m", "instances", "regret", "± s.e.", "worst", "cost − Ignore", "‖M − M*‖F", "CPU s", "tier")
    figures = {
        "sizes": {str(size): asdict(summary) for size, summary in table.sizes.items()},
        "slope": table.slope,
        "requirements": [v.plain() for v in table.verdicts],
    }
    return Report(
        TITLE,
        asked,
        figures,
        (Table(f"Regret by n, method {asked['method']}", head, rows),),
        (verdict_table("Required", table.verdicts),),
        (*printed.REGRET, *printed.ENSEMBLE[1:]),
    )


def _sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < FEWEST:
        raise UsageError(
            f"--sizes is {text!r}.", f"give whole numbers of at least {FEWEST}, like 50,100,200."
        )
    return sizes
