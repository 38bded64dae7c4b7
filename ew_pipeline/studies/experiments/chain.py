"""What the pairs' own history adds: cross-section, trailing rule and both, on simulated chains."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from ew_pipeline.backtest.history import history_of
from ew_pipeline.backtest.metrics import auc, average_precision
from ew_pipeline.backtest.oracles import oracle
from ew_pipeline.backtest.policies import Record, Score
from ew_pipeline.backtest.view import PastView, RuleLabels
from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.console import emit_json, number, print_table
from ew_pipeline.core.errors import UsageError
from ew_pipeline.intake.history import trailing_level, trailing_mean
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.simulate import ChainSettings, SimulatedChain, simulate_chain
from ew_pipeline.simulate.settings import iso_weeks
from ew_pipeline.studies.experiments import display, options
from ew_pipeline.studies.experiments.instance import warm_up
from ew_pipeline.studies.experiments.requirements import CHAIN, Verdict, judge
from ew_pipeline.studies.experiments.runner import Row, Study
from ew_pipeline.studies.experiments.summary import standard_error

COST_HIGH = 10.0
RULE_WEEKS = 5
RULE_FRACTION = 0.5
FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
FLOORS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)

IGNORE = "ignore"
RULE = "trailing rule"
TUNED_RULE = "trailing rule, hindsight"
CROSS = "cross-section"
BOTH = "both"
BOTH_RANK_1 = "both, rank 1"
BOTH_DROP = "both, drop"
KNOWN = "true expected sales"
RECORD = "record"
ORACLE = "oracle"

TITLE = "chain"
SOURCES = (
    *options.SOURCES,
    "backtest/oracles.py",
    "backtest/policies.py",
    "infer",
    "intake/history.py",
    "simulate",
    "studies/experiments/chain.py",
)


@dataclass(frozen=True)
class ChainTask:
    """Week number ``week`` (from 0) of chain number ``instance`` of the study with base seed ``seed``."""

    stores: int
    skus: int
    median_units: float
    noise: str
    mode: str
    week: int
    seed: int
    instance: int

    @property
    def name(self) -> str:
        return f"chain {self.instance} of seed {self.seed}, week {self.week}"

    def identity(self) -> Mapping[str, Any]:
        return asdict(self)

    def chain(self) -> SimulatedChain:
        child = np.random.SeedSequence(self.seed, spawn_key=(self.instance,)).generate_state(1)
        settings = ChainSettings.small(
            stores=self.stores, skus=self.skus, median_units=self.median_units, weeks=self.week + 1
        )
        return simulate_chain(settings, int(child[0]))


@dataclass(frozen=True)
class PolicyRecord:
    """Mean cost per pair, and how well the policy's score ranks the phantoms (None: it has no score)."""

    cost: float
    flagged: float
    auc: float | None = None
    average_precision: float | None = None
    rank: int | None = None
    noise: str | None = None
    tier: str | None = None
    cpu_seconds: float = 0.0


def run_week(task: ChainTask) -> dict[str, Any]:
    """Fit and price all policies on one week."""
    if task.week < RULE_WEEKS:
        raise UsageError(f"week {task.week} has too short a past.", f"choose weeks from {RULE_WEEKS} on.")
    chain = task.chain()
    week = iso_weeks(chain.settings.start_week, task.week + 1)[-1]
    sales = SalesMatrix.from_long(chain.sales, week)
    phantom, expected = truth_of(chain, sales)
    level = trailing_level(chain.sales, week)
    policies = {
        IGNORE: PolicyRecord(price_flags(np.zeros(phantom.size, dtype=np.bool_), phantom), 0.0),
        **_rules(sales, trailing_mean(chain.sales, week, RULE_WEEKS), phantom),
    }

    def fit(level: Float | None, rank: int | str = "auto") -> tuple[DetectorFit, float]:
        started = time.process_time()
        detector = EntrywiseDetector(task.mode, noise=task.noise, rank=rank, random_state=task.instance)
        return detector.fit(sales, level=level), time.process_time() - started

    for name, given, rank in (
        (CROSS, None, "auto"),
        (BOTH, level, "auto"),
        (BOTH_RANK_1, level, 1),
        (KNOWN, expected, 1),
    ):
        found, seconds = fit(given, rank)
        policies[name] = _priced(found, found.posterior_, phantom, seconds)
        if name == BOTH_RANK_1:
            policies[BOTH_DROP] = _priced(found, found.drop_probability(), phantom, seconds)
    panel = history_of(chain.sales, None, "explicit", RULE_WEEKS, "the chain").panel
    view = PastView(panel, task.week, RuleLabels("text"))
    for name, policy in ((RECORD, Record()), (ORACLE, oracle(chain))):
        started = time.process_time()
        score = policy.score(view)
        policies[name] = _of_score(score, phantom, time.process_time() - started)
    return {
        "instance": task.instance,
        "week": task.week,
        "pairs": sales.n_observed,
        "phantom_share": float(phantom.mean()),
        "policies": {name: asdict(policy) for name, policy in policies.items()},
    }


def truth_of(chain: SimulatedChain, sales: SalesMatrix) -> tuple[Bool, Float]:
    """(phantom, expected units if healthy) for the observed pairs of the week."""
    rows = chain.truth[(chain.truth["week"] == sales.week).to_numpy()]
    index = pd.MultiIndex.from_arrays([rows["store_id"].astype("str"), rows["sku_id"].astype("str")])
    pairs = pd.MultiIndex.from_arrays(
        [np.asarray(sales.store_ids)[sales.rows], np.asarray(sales.sku_ids)[sales.cols]]
    )
    at = index.get_indexer(pairs)
    return rows["phantom"].to_numpy(dtype=np.bool_)[at], rows["expected_units"].to_numpy(dtype=np.float64)[at]


def price_flags(flags: Bool, anomalous: Bool) -> float:
    """Mean cost of flags that do not look at the costs: each error costs COST_HIGH / 2."""
    return float(np.mean(flags != anomalous) * COST_HIGH / 2.0)


def price_probability(probability: Float, anomalous: Bool) -> float:
    """Mean cost of flagging where p c1 >= (1 - p) c0, over c0, c1 ~ U[0, COST_HIGH].

    With a = (1 - p)/p a healthy pair costs E[c0; c1 >= a c0] = C (1/2 - a/3) for a <= 1, and C/(6 a²) above;
    an anomalous one the same with 1/a.
    """
    p = np.clip(probability, 1e-12, 1.0 - 1e-12)
    a = np.where(anomalous, p / (1.0 - p), (1.0 - p) / p)
    return float(
        COST_HIGH * np.mean(np.where(a <= 1.0, 0.5 - a / 3.0, 1.0 / (6.0 * np.maximum(a, 1.0) ** 2)))
    )


def flagged_share(probability: Float) -> float:
    """Share of pairs flagged under the same costs: P(c1 >= a c0)."""
    p = np.clip(probability, 1e-12, 1.0 - 1e-12)
    a = (1.0 - p) / p
    return float(np.mean(np.where(a <= 1.0, 1.0 - a / 2.0, 1.0 / (2.0 * np.maximum(a, 1.0)))))


def _priced(fit: DetectorFit, probability: Float, phantom: Bool, seconds: float) -> PolicyRecord:
    return PolicyRecord(
        cost=price_probability(probability, phantom),
        flagged=flagged_share(probability),
        auc=auc(probability, phantom),
        average_precision=average_precision(probability, phantom),
        rank=fit.rank_,
        noise=fit.noise_,
        tier=fit.mode_,
        cpu_seconds=seconds,
    )


def _of_score(score: Score, phantom: Bool, seconds: float) -> PolicyRecord:
    return PolicyRecord(
        cost=price_probability(score.probability, phantom),
        flagged=flagged_share(score.probability),
        auc=auc(score.order, phantom),
        average_precision=average_precision(score.order, phantom),
        cpu_seconds=seconds,
    )


def _rules(sales: SalesMatrix, mean: Float, phantom: Bool) -> dict[str, PolicyRecord]:
    """What a retailer does today, and the best of its kind that the truth can pick."""
    level = np.nan_to_num(mean, nan=0.0)
    score = -sales.counts / np.maximum(level, 1e-2)
    ranked = (auc(score, phantom), average_precision(score, phantom))

    def rule(fraction: float, floor: float) -> PolicyRecord:
        flags = (level > floor) & (sales.counts <= fraction * level)
        return PolicyRecord(price_flags(flags, phantom), float(flags.mean()), *ranked)

    tuned = min((rule(q, floor) for q in FRACTIONS for floor in FLOORS), key=lambda policy: policy.cost)
    return {RULE: rule(RULE_FRACTION, 0.0), TUNED_RULE: tuned}


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
    "record" follows level and state over all weeks; the oracle is told the expected sales and the parameters.
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
    print_table(
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
                number(s.cost_ratio),
                f"{s.against_both:+.3f}",
                number(s.against_both_se),
                f"{s.flagged:.1%}",
                number(s.auc),
                number(s.average_precision),
                number(s.cpu_seconds, 2),
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
