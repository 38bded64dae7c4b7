"""What the pairs' own history adds: cross-section, trailing rule and both, on simulated chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import typer

from ew_pipeline.core.console import emit_json
from ew_pipeline.core.errors import UsageError
from ew_pipeline.studies.experiments import display, options
from ew_pipeline.studies.experiments.chain_week import (
    BOTH_RANK_1,
    CROSS,
    IGNORE,
    RULE,
    RULE_WEEKS,
    TUNED_RULE,
    ChainTask,
    run_week,
)
from ew_pipeline.studies.experiments.instance import warm_up
from ew_pipeline.studies.experiments.requirements import CHAIN, Verdict, judge
from ew_pipeline.studies.experiments.runner import Row, Study
from ew_pipeline.studies.experiments.summary import standard_error

TITLE = "chain"
SOURCES = (
    *options.SOURCES,
    "intake/history.py",
    "simulate",
    "studies/experiments/chain_week.py",
)


@dataclass(frozen=True)
class PolicySummary:
    """One policy over all weeks; costs relative to flagging nothing on the same weeks.

    ``against_both``: mean difference in that ratio, this policy minus cross-section and history together.
    """

    cost_ratio: float
    against_both: float
    against_both_se: float | None
    flagged: float
    auc: float | None
    average_precision: float | None
    cpu_seconds: float
    ranks: dict[str, int]
    noises: dict[str, int]


def chain(
    instances: Annotated[int, typer.Option(min=1, help="How many chains.")] = 8,
    weeks: Annotated[
        str, typer.Option(help=f"Weeks of each, counted from 0 and not before {RULE_WEEKS}.")
    ] = "10,14",
    stores: Annotated[int, typer.Option(min=2, help="Stores of a chain.")] = 24,
    skus: Annotated[int, typer.Option(min=2, help="SKUs on sale.")] = 150,
    median_units: Annotated[float, typer.Option(help="Median of expected weekly units.")] = 8.0,
    noise: Annotated[str, typer.Option(help="Noise model of every fit.")] = "negative_binomial",
    mode: Annotated[str, typer.Option(help="Mode of every fit.")] = "auto",
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Cross-section, trailing rule, and the detector on the ratio to each pair's trailing level.

    The truth is the phantom inventory of the simulation, active at any time of the week. "trailing rule"
    flags sales of at most half the mean of the last five weeks, whatever the costs; "hindsight" is
    the best such rule for the week that the truth can pick. "drop" prices P(level fell by half) in place of
    the posterior: another question, asked of the same fit. "true expected sales" is the best level there is.
    """
    tasks = [
        ChainTask(stores, skus, median_units, noise, mode, week, seed, k)
        for k in range(instances)
        for week in _weeks(weeks)
    ]
    study = Study(TITLE, run_week, prepare=warm_up, sources=SOURCES)
    rows = study.run(tasks, jobs=options.processes(jobs), folder=out)
    summaries = build(rows)
    verdicts = verdicts_of(summaries)
    if json:
        emit_json(
            {
                "experiment": TITLE,
                "instances": instances,
                "seed": seed,
                "weeks": len(rows),
                "phantom_share": float(np.mean([row["phantom_share"] for row in rows])),
                "policies": {name: asdict(summary) for name, summary in summaries.items()},
                "requirements": [v.plain() for v in verdicts],
            }
        )
    else:
        show(summaries, verdicts, rows)


def build(rows: Sequence[Row]) -> dict[str, PolicySummary]:
    """Figures by policy."""
    ratio = {
        name: np.array([row["policies"][name]["cost"] / row["policies"][IGNORE]["cost"] for row in rows])
        for name in rows[0]["policies"]
    }
    summaries = {}
    for name, own in ratio.items():
        policies = [row["policies"][name] for row in rows]
        gap = own - ratio[BOTH_RANK_1]
        summaries[name] = PolicySummary(
            cost_ratio=float(own.mean()),
            against_both=float(gap.mean()),
            against_both_se=standard_error(gap),
            flagged=float(np.mean([p["flagged"] for p in policies])),
            auc=_mean([p["auc"] for p in policies]),
            average_precision=_mean([p["average_precision"] for p in policies]),
            cpu_seconds=float(np.mean([p["cpu_seconds"] for p in policies])),
            ranks=_counts([p["rank"] for p in policies]),
            noises=_counts([p["noise"] for p in policies]),
        )
    return summaries


def verdicts_of(summaries: Mapping[str, PolicySummary]) -> list[Verdict]:
    both = summaries[BOTH_RANK_1].cost_ratio
    figures = {
        "against_cross": both - summaries[CROSS].cost_ratio,
        "against_rule": both - summaries[RULE].cost_ratio,
        "against_tuned_rule": both - summaries[TUNED_RULE].cost_ratio,
        "against_ignore": both - 1.0,
    }
    return judge(CHAIN, figures)


def show(summaries: Mapping[str, PolicySummary], verdicts: Sequence[Verdict], rows: Sequence[Row]) -> None:
    n = display.number
    display.print_table(
        f"Simulated chains: {len(rows)} weeks of about {np.mean([row['pairs'] for row in rows]):.0f} pairs,"
        f" {np.mean([row['phantom_share'] for row in rows]):.1%} with a phantom",
        (
            "policy",
            "cost / Ignore",
            f"− ({BOTH_RANK_1})",
            "± s.e.",
            "flagged",
            "AUC",
            "avg. precision",
            "CPU s",
            "rank",
        ),
        [
            (
                name,
                n(s.cost_ratio),
                f"{s.against_both:+.3f}",
                n(s.against_both_se),
                f"{s.flagged:.1%}",
                n(s.auc),
                n(s.average_precision),
                n(s.cpu_seconds, 2),
                ", ".join(s.ranks) or "–",
            )
            for name, s in summaries.items()
        ],
    )
    display.print_verdicts("Required", verdicts)


def _weeks(text: str) -> list[int]:
    try:
        weeks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        weeks = []
    if not weeks or weeks[0] < RULE_WEEKS:
        raise UsageError(f"--weeks is {text!r}.", f"give whole numbers from {RULE_WEEKS} on, like 10,14.")
    return weeks


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _counts(values: Sequence[Any]) -> dict[str, int]:
    return {str(value): count for value, count in Counter(v for v in values if v is not None).most_common()}
