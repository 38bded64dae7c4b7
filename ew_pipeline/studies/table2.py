"""`ew reproduce table2`: the paper's real-data protocol (section 4.2) on a dataset of yours.

One week; anomalies are labelled from the ten weeks around it; costs are drawn per pair, an instance is one
such draw. The paper's own data are not public, so its figures stand beside ours as ratios to Ignore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from ew_pipeline.backtest.history import SalesHistory, read_history
from ew_pipeline.backtest.priced import NOTEBOOK_COSTS, PAPER_COSTS, UniformCosts
from ew_pipeline.backtest.registry import all_policies, chosen_policies
from ew_pipeline.backtest.view import PastView, RuleLabels
from ew_pipeline.core.console import number
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.week import maturity
from ew_pipeline.studies.baselines import published_methods
from ew_pipeline.studies.experiments import options, pictures, printed
from ew_pipeline.studies.experiments.instance import warm_up
from ew_pipeline.studies.experiments.report import Report, Table, present
from ew_pipeline.studies.experiments.runner import Study

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TITLE = "table2"
SOURCES = ("core", "method", "intake", "backtest", "studies/baselines.py", "studies/table2.py")
VARIANTS: Mapping[str, tuple[str, UniformCosts]] = {
    "text": ("text", PAPER_COSTS),
    "code": ("code", NOTEBOOK_COSTS),
}


@dataclass(frozen=True)
class PolicyTask:
    """Score one week with one policy and price it. ``data`` is the hash of the sales, wherever they lie."""

    sales: str
    listing: str | None
    zero_rule: str
    data: str
    week: int
    variant: str
    policy: str
    instances: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.policy}, week {self.week}"

    def identity(self) -> Mapping[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("sales", "listing")}


@dataclass(frozen=True)
class Row:
    """One policy: cost per pair over the instances, and as a ratio to Ignore."""

    policy: str
    cost: float
    cost_sd: float
    ratio: float


def table2(
    sales: Annotated[str, typer.Option(help="Sales of many weeks: parquet, CSV, a folder, or SQL.")],
    week: Annotated[str | None, typer.Option(help="The current week; default: the last with labels.")] = None,
    instances: Annotated[int, typer.Option(min=2, help="Draws of the costs.")] = 1000,
    variant: Annotated[str, typer.Option(help="text, or code for what the authors' notebook does.")] = "text",
    policies: Annotated[str | None, typer.Option(help="Comma-separated; default: all.")] = None,
    listing: Annotated[str | None, typer.Option(help="Which store ranges what.")] = None,
    zero_rule: Annotated[
        str, typer.Option(help="auto, explicit, listing or inferred: what a missing row means.")
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the costs.")] = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Costs of every policy on one week of real sales, with the paper's printed table beside them."""
    if variant not in VARIANTS:
        raise UsageError(f"there is no variant {variant!r}.", f"choose one of {', '.join(VARIANTS)}.")
    wanted = [name.strip() for name in (policies or "all").split(",")]
    names = [policy.name for policy in chosen_policies(wanted, "ignore", more=published_methods())]
    history = _history(sales, listing, zero_rule)
    t, data = _week(history, week, variant), history.panel.content_hash()
    tasks = [PolicyTask(sales, listing, zero_rule, data, t, variant, name, instances, seed) for name in names]
    study = Study(TITLE, score_and_price, prepare=warm_up, sources=SOURCES)
    records = study.run(tasks, jobs=options.processes(jobs), folder=out)
    rows = build({task.policy: record["costs"] for task, record in zip(tasks, records, strict=True)})
    if out is not None:
        pictures.save_table2({row.policy: row.ratio for row in rows}, _printed_ratios(), out / f"{TITLE}.png")
    asked = {
        "sales": sales,
        "week": history.panel.weeks[t],
        "variant": variant,
        "instances": instances,
        "seed": seed,
        "policies": policies,
    }
    present(report(rows, asked, _setting(history, t, variant)), out, as_json=json)


@lru_cache(maxsize=1)
def _history(sales: str, listing: str | None, zero_rule: str) -> SalesHistory:
    """Read once in each process, however many policies it scores."""
    return read_history(sales, listing, zero_rule)


def score_and_price(task: PolicyTask) -> dict[str, Any]:
    """The cost per pair of one policy in each draw of the costs; every policy meets the same draws."""
    panel = _history(task.sales, task.listing, task.zero_rule).panel
    rule, costs = VARIANTS[task.variant]
    labels = RuleLabels(rule)
    truth, view = labels.of(panel, task.week), PastView(panel, task.week, labels)
    policy = next(each for each in all_policies(published_methods()) if each.name == task.policy)
    kept = truth.known[view.pairs]
    probability = policy.score(view).probability[kept]
    anomaly = truth.anomaly[view.pairs][kept]
    return {"costs": drawn_costs(probability, anomaly, costs, task.instances, task.seed).tolist()}


def drawn_costs(
    p: FloatArray, anomaly: BoolArray, costs: UniformCosts, instances: int, seed: int
) -> FloatArray:
    """Mean cost per pair in each draw. A probability of 0 is never flagged, whatever the costs."""
    rng = np.random.default_rng(seed)
    spent = np.empty(instances)
    for k in range(instances):
        c0 = rng.random(anomaly.size) * costs.false_alarm_high
        c1 = rng.random(anomaly.size) * costs.missed_high
        flagged = (p > 0.0) & (p * c1 >= (1.0 - p) * c0)
        spent[k] = np.where(flagged, np.where(anomaly, 0.0, c0), np.where(anomaly, c1, 0.0)).mean()
    return spent


def build(costs: Mapping[str, Sequence[float]]) -> list[Row]:
    """Means over the draws; ``costs`` has those of Ignore."""
    base = float(np.mean(costs["ignore"]))
    return [
        Row(name, float(np.mean(c)), float(np.std(c)), float(np.mean(c)) / base if base else float("nan"))
        for name, c in costs.items()
    ]


def report(rows: Sequence[Row], asked: Mapping[str, Any], setting: Mapping[str, Any]) -> Report:
    ours = [(row.policy, number(row.cost, 2), number(row.cost_sd, 2), number(row.ratio)) for row in rows]
    paper = [
        (f"printed: {name}", number(cost), number(sd), number(_printed_ratios()[name]))
        for name, (cost, sd) in printed.TABLE_2.items()
    ]
    title = (
        f"Table 2: week {asked['week']}, {setting['stores']} stores, {setting['skus']} SKUs,"
        f" {setting['pairs']} labelled pairs, {asked['instances']} draws of costs"
    )
    figures = {
        **setting,
        "methods": {row.policy: asdict(row) for row in rows},
        "paper": {name: {"cost": cost, "cost_sd": sd} for name, (cost, sd) in printed.TABLE_2.items()},
    }
    table = Table(title, ("policy", "cost per pair", "±", "of Ignore"), (*ours, *paper))
    return Report(TITLE, asked, figures, (table,), (), printed.REAL_DATA)


def _week(history: SalesHistory, week: str | None, variant: str) -> int:
    """The column of the week to score; it has labels."""
    rule, _ = VARIANTS[variant]
    panel = history.panel
    t = panel.n_weeks - 1 - maturity(rule) if week is None else history.position(week)
    if not 0 <= t < panel.n_weeks or not RuleLabels(rule).of(panel, t).known.any():
        raise DataError(
            f"no pair has a label in week {week or 'number ' + str(t)}.", "choose one away from both ends."
        )
    return t


def _setting(history: SalesHistory, t: int, variant: str) -> dict[str, Any]:
    truth = RuleLabels(VARIANTS[variant][0]).of(history.panel, t)
    return {
        "stores": int(history.panel.store_ids.size),
        "skus": int(history.panel.sku_ids.size),
        "pairs": int(truth.known.sum()),
        "anomalies": int(truth.anomaly.sum()),
        "zero_rule": history.zero_rule,
    }


def _printed_ratios() -> dict[str, float]:
    ignore, _ = printed.TABLE_2["Ignore"]
    return {name: cost / ignore for name, (cost, _) in printed.TABLE_2.items()}
