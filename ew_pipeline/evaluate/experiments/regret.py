"""Regret against n (section 4.1, "Vanishing Regret When n Scales") at the paper's representative setting.

Theorem 1 bounds it by O(1/sqrt(n)) up to logarithms; we measure about 1/n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from ew_pipeline.console import emit_json
from ew_pipeline.data.synthetic import EnsembleSettings
from ew_pipeline.errors import UsageError
from ew_pipeline.evaluate.experiments import display, options, pictures
from ew_pipeline.evaluate.experiments.instance import DEFAULT, METHODS, InstanceTask, Record
from ew_pipeline.evaluate.experiments.requirements import REGRET, Verdict, judge
from ew_pipeline.evaluate.experiments.summary import MethodSummary, log_log_slope, summarise

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
        InstanceTask(f"n = {n}", representative(n), method, seed, k)
        for n in _sizes(sizes)
        for k in range(count_at(n, instances))
    ]
    records = options.run_records(TITLE, tasks, jobs, out)
    table = build(records)
    if out is not None:
        regrets = {n: [r.regret for r in records if r.n == n] for n in table.sizes}
        pictures.save_regret(regrets, table.slope, out / f"{TITLE}.png")
    if json:
        emit_json(document(table, seed=seed, method=method))
    else:
        show(table, method)


def representative(n: int) -> EnsembleSettings:
    """The setting of the paper's figure of regret against n."""
    return EnsembleSettings(n=n, m=n, rank=3, mean=5.0, observed_share=0.8, anomaly_rate=0.04, alpha=0.2)


def count_at(n: int, instances: int) -> int:
    """Fewer instances where each is larger: its regret varies less, and costs more to find."""
    return min(instances, max(FEWEST, instances * FULL_COUNT_UP_TO // n))


def build(records: Sequence[Record]) -> RegretBySize:
    by_size: dict[int, list[Record]] = {}
    for record in records:
        by_size.setdefault(record.n, []).append(record)
    sizes = {n: summarise(by_size[n]) for n in sorted(by_size)}
    slope = log_log_slope(list(sizes), [summary.regret for summary in sizes.values()])
    at_100 = sizes[100].regret if 100 in sizes else None
    return RegretBySize(sizes, slope, judge(REGRET, {"slope": slope, "regret_at_100": at_100}))


def document(table: RegretBySize, **study: object) -> dict[str, Any]:
    """The figures as plain values, for --json."""
    return {
        "experiment": TITLE,
        **study,
        "sizes": {str(n): asdict(summary) for n, summary in table.sizes.items()},
        "slope": table.slope,
        "requirements": [v.plain() for v in table.verdicts],
    }


def show(table: RegretBySize, method: str) -> None:
    n = display.number
    display.print_table(
        f"Regret by n, method {method}",
        ("n = m", "instances", "regret", "± s.e.", "worst", "cost − Ignore", "‖M − M*‖F", "CPU s", "tier"),
        [
            (
                str(size),
                str(s.instances),
                n(s.regret, 5),
                n(s.regret_se, 5),
                n(s.regret_worst, 5),
                n(s.above_ignore, 4),
                n(s.error_frobenius, 1),
                n(s.cpu_mean, 2),
                display.tally(s.tiers),
            )
            for size, s in table.sizes.items()
        ],
    )
    display.print_verdicts("Required", table.verdicts)


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
