"""`ew demo`: a week of a simulated chain, from sales to a list of shelves to check and how good it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from ew_pipeline.algorithm.costs import Costs
from ew_pipeline.algorithm.detector import EntrywiseDetector
from ew_pipeline.algorithm.result import DetectorFit
from ew_pipeline.algorithm.types import Bool, Float
from ew_pipeline.console import emit_json, results, step
from ew_pipeline.data.history import trailing_level
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.data.simulate import ChainSettings, SimulatedChain, simulate_chain
from ew_pipeline.evaluate.experiments.chain_week import truth_of
from ew_pipeline.evaluate.experiments.display import print_lines, print_table

LISTED_PAIRS = 10
LISTED_STORES = 5
HISTORY_WEEKS = 8
MEDIAN_UNITS = 8.0  # a slow chain of this size has too few sales to tell a phantom from chance
NEXT = (
    "ew demo --seed 1                             the same on another chain",
    "ew demo --json                               everything above, for a program",
    "ew reproduce chain --instances 2             what the pairs' own history adds",
    "ew reproduce table1 --instances 20           the paper's main table on fresh data",
)


@dataclass(frozen=True)
class SuspectPair:
    """A pair worth a check. ``phantom`` is the simulation's secret; a real chain has none."""

    store_id: str
    sku_id: str
    sold: int
    expected: float
    anomaly_probability: float
    saving: float
    phantom: bool


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration found, and what it should have found."""

    week: str
    stores: int
    skus: int
    pairs: int
    tier: str
    tier_reason: str
    rank: int
    noise: str
    dispersion_size: float | None
    anomaly: str
    converged: bool
    warnings: tuple[str, ...]
    alpha: float
    alpha_interval: tuple[float, float]
    anomaly_rate: float
    anomaly_rate_interval: tuple[float, float]
    identified: bool
    to_check: int
    expected_saving: float
    by_store: dict[str, int]
    pairs_to_check: tuple[SuspectPair, ...]
    phantoms: int
    phantoms_to_check: int
    phantoms_listed: int
    cost_doing_nothing: float
    cost_with_checks: float

    @property
    def precision(self) -> float:
        """Share of the checks that find a phantom; 0 without checks."""
        return self.phantoms_to_check / self.to_check if self.to_check else 0.0

    @property
    def random_precision(self) -> float:
        """The same for checks at random."""
        return self.phantoms / self.pairs


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated chain and of the detector.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Simulate a small chain, fit the detector to its last week, and list the shelves worth checking.

    Nothing to start, nothing is written. The simulation knows which records are wrong, so the list is marked.
    """
    with step("simulate a chain") as line:
        chain = simulate_chain(ChainSettings.small(median_units=MEDIAN_UNITS), seed)
        line.detail = (
            f"{chain.settings.stores} stores, {chain.settings.skus} SKUs, {chain.settings.weeks} weeks"
        )
    with step("take the last week") as line:
        sales = SalesMatrix.from_long(chain.sales, str(chain.sales["week"].max()))
        line.detail = f"{sales.week}: {sales.n_observed} pairs on sale in stores that reported"
    with step("find the level of each pair") as line:
        level = trailing_level(chain.sales, str(sales.week), HISTORY_WEEKS)
        line.detail = f"from the {HISTORY_WEEKS} weeks before"
    with step("fit the detector") as line:
        fit = EntrywiseDetector(random_state=seed).fit(sales, level=level)
        line.detail = f"{fit.mode_}, rank {fit.rank_}"
    with step("decide what to check") as line:
        costs = costs_of(chain, sales)
        flags = fit.decide(costs)
        line.detail = f"{flags.sum()} of {flags.size} pairs"
    result = describe(sales, fit, costs, flags, truth_of(chain, sales)[0])
    if json:
        emit_json(
            {**asdict(result), "precision": result.precision, "random_precision": result.random_precision}
        )
    else:
        show(result)


def costs_of(chain: SimulatedChain, sales: SalesMatrix) -> Costs:
    """The chain's costs per SKU, for every observed pair."""
    table = chain.costs[chain.costs["sku_id"].notna()].set_index("sku_id").loc[list(sales.sku_ids)]
    return Costs(
        false_alarm=table["cost_false_alarm"].to_numpy(dtype=np.float64)[sales.cols],
        missed=table["cost_missed"].to_numpy(dtype=np.float64)[sales.cols],
    )


def describe(sales: SalesMatrix, fit: DetectorFit, costs: Costs, flags: Bool, phantom: Bool) -> DemoResult:
    """Put what was found beside the truth."""
    saving = fit.expected_saving(costs)
    flagged = np.flatnonzero(flags)
    ordered = flagged[np.argsort(-saving[flagged], kind="stable")]
    listed = tuple(_pair(sales, fit, saving, phantom, int(e)) for e in ordered[:LISTED_PAIRS])
    per_store = np.bincount(sales.rows[flagged], minlength=sales.shape[0])
    c0, c1 = costs.broadcast(flags.size)
    theta = fit.theta_
    return DemoResult(
        week=str(sales.week),
        stores=sales.shape[0],
        skus=sales.shape[1],
        pairs=sales.n_observed,
        tier=fit.mode_,
        tier_reason=fit.mode_reason_,
        rank=fit.rank_,
        noise=fit.noise_,
        dispersion_size=None if math.isinf(fit.dispersion_size_) else fit.dispersion_size_,
        anomaly=fit.anomaly_,
        converged=bool(fit.converged_),
        warnings=tuple(fit.warnings_),
        alpha=theta.alpha,
        alpha_interval=theta.alpha_interval,
        anomaly_rate=theta.anomaly_rate,
        anomaly_rate_interval=theta.anomaly_rate_interval,
        identified=theta.identified,
        to_check=int(flagged.size),
        expected_saving=float(saving[flagged].sum()),
        by_store={str(sales.store_ids[i]): int(per_store[i]) for i in np.argsort(-per_store, kind="stable")},
        pairs_to_check=listed,
        phantoms=int(phantom.sum()),
        phantoms_to_check=int(phantom[flagged].sum()),
        phantoms_listed=sum(pair.phantom for pair in listed),
        cost_doing_nothing=float(c1[phantom].sum()),
        cost_with_checks=float(c1[phantom & ~flags].sum() + c0[flags & ~phantom].sum()),
    )


def show(result: DemoResult) -> None:
    """The result for a person."""
    low_a, high_a = result.anomaly_rate_interval
    low_b, high_b = result.alpha_interval
    dispersion = "" if result.dispersion_size is None else f", variance M + M²/{result.dispersion_size:.1f}"
    print_table(
        f"What the detector learnt from {result.week}",
        ("", "estimate", "90% interval"),
        [
            ("records that are wrong", f"{result.anomaly_rate:.1%}", f"{low_a:.1%} – {high_a:.1%}"),
            ("sales that such a pair keeps", f"{result.alpha:.0%}", f"{low_b:.0%} – {high_b:.0%}"),
        ],
    )
    noise = result.noise.replace("_", " ")
    said = [
        f"rank {result.rank} on the ratio to each pair's past level",
        f"{noise} noise{dispersion}; anomaly model: {result.anomaly}",
        f"method: {result.tier} ({result.tier_reason})",
        *result.warnings,
    ]
    print_lines("How", said)
    busiest = [f"{store} {count}" for store, count in list(result.by_store.items())[:LISTED_STORES] if count]
    print_lines(
        "Checks that pay",
        [
            f"{result.to_check} of {result.pairs} pairs, expected to save {result.expected_saving:.0f}",
            f"most in: {', '.join(busiest) or 'none'}",
        ],
    )
    if result.pairs_to_check:
        print_table(
            f"The {len(result.pairs_to_check)} most valuable",
            ("store", "SKU", "sold", "expected", "P(anomaly)", "saves", "in truth"),
            [_row(pair) for pair in result.pairs_to_check],
        )
    print_lines("How good is the list? (only a simulation can tell)", _verdict(result))
    results().print(Text("Next", style="bold"))
    for line in NEXT:
        results().print(Text(f"  {line}"), soft_wrap=True)


def _verdict(result: DemoResult) -> Sequence[str]:
    lift = result.precision / result.random_precision if result.phantoms else 0.0
    return [
        f"{result.phantoms_listed} of the {len(result.pairs_to_check)} most valuable are phantoms",
        f"{result.phantoms_to_check} of all {result.to_check} checks find one: {result.precision:.0%},"
        f" {lift:.0f} times the {result.random_precision:.1%} of checks at random ({result.phantoms} exist)",
        f"cost of the week's errors: {result.cost_doing_nothing:.0f} doing nothing,"
        f" {result.cost_with_checks:.0f} with these checks",
    ]


def _pair(sales: SalesMatrix, fit: DetectorFit, saving: Float, phantom: Bool, entry: int) -> SuspectPair:
    return SuspectPair(
        store_id=str(sales.store_ids[sales.rows[entry]]),
        sku_id=str(sales.sku_ids[sales.cols[entry]]),
        sold=int(sales.counts[entry]),
        expected=float(fit.expected_sales_[entry]),
        anomaly_probability=float(fit.anomaly_probability_[entry]),
        saving=float(saving[entry]),
        phantom=bool(phantom[entry]),
    )


def _row(pair: SuspectPair) -> tuple[str, ...]:
    return (
        pair.store_id,
        pair.sku_id,
        str(pair.sold),
        f"{pair.expected:.1f}",
        f"{pair.anomaly_probability:.2f}",
        f"{pair.saving:.1f}",
        "phantom" if pair.phantom else "fine",
    )
