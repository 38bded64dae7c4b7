"""Simulated chains with known truth, and what a probability of a wrong record is worth on them.

``python -m ew_pipeline.studies.worlds --seeds 11,12`` prints the share of wrong records, the cost of making
no checks, and the oracles: the floor of every other policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from ew_pipeline.backtest.metrics import auc, average_precision
from ew_pipeline.backtest.oracles import KEYS, Oracle, oracle
from ew_pipeline.core import console
from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.simulate import (
    ChainSettings,
    ShelfChain,
    ShelfSettings,
    SimulatedChain,
    simulate_chain,
    simulate_shelves,
)

Chain = SimulatedChain | ShelfChain
LAST_WEEKS = 15


def chain_60_x_300(**overrides: float) -> Callable[[int], Chain]:
    """Return a maker of chains of ``simulate_chain`` by seed."""
    settings = ChainSettings(stores=60, skus=300, weeks=40, **overrides)  # type: ignore[arg-type]
    return lambda seed: simulate_chain(settings, seed)


# "shallow": a mean loss of .6; "none": nothing is wrong; "tenfold": some SKUs go wrong ten times as often.
WORLDS: Mapping[str, Callable[[int], Chain]] = {
    "chain": chain_60_x_300(),
    "chain shallow": chain_60_x_300(phantom_depth=0.6),
    "chain none": chain_60_x_300(phantom_rate=0.0),
    "shelves 4": lambda seed: simulate_shelves(ShelfSettings.median_4(), seed),
    "shelves 1.5": lambda seed: simulate_shelves(ShelfSettings.median_1_5(), seed),
    "shelves tenfold": lambda seed: simulate_shelves(ShelfSettings.median_1_5(sku_onset_ratio=10.0), seed),
    "shelves none": lambda seed: simulate_shelves(ShelfSettings.nothing_wrong(), seed),
}


@dataclass(frozen=True)
class Worth:
    """What a policy is worth on some pairs and weeks, at the chain's own costs.

    ``cost`` and ``nothing`` are in money; ``claimed`` and ``real`` are savings against making no checks.
    """

    cost: float
    nothing: float
    claimed: float
    flagged: float
    precision: float
    recall: float
    auc: float
    average_precision: float

    @property
    def cost_ratio(self) -> float:
        """Cost relative to no checks; below 1 is better."""
        return self.cost / self.nothing if self.nothing else float("nan")

    @property
    def real(self) -> float:
        return self.nothing - self.cost


def priced_rows(chain: Chain, weeks: int = LAST_WEEKS) -> pd.DataFrame:
    """Return the pairs of the last weeks that were ranged, reported and not on promotion.

    Columns: those of sales and truth, ``is_wrong``, cost_false_alarm and cost_missed of the SKU.
    """
    truth = chain.truth[chain.truth["week"].cat.codes >= len(chain.truth["week"].cat.categories) - weeks]
    rows = truth.merge(chain.sales, on=KEYS)
    rows = rows[~rows["promo"].astype("bool")].reset_index(drop=True)
    costs = chain.costs.dropna(subset="sku_id").set_index("sku_id")[["cost_false_alarm", "cost_missed"]]
    own = costs.reindex(rows["sku_id"].astype("str")).reset_index(drop=True)
    label = "phantom" if isinstance(chain, SimulatedChain) else "wrong"
    return rows.assign(is_wrong=rows[label].astype("bool"), **own)


def probability_of(found: Oracle, rows: pd.DataFrame) -> Float:
    """Return the oracle's P(record wrong) of each row."""
    probability = np.empty(len(rows))
    for week, at in rows.groupby("week", observed=True).indices.items():
        store, sku = (rows[name].iloc[at].to_numpy(dtype=np.str_) for name in KEYS[:2])
        probability[at] = found.of_week(str(week), store, sku)
    return probability


def worth(rows: pd.DataFrame, probability: Float) -> Worth:
    """Return what it costs to check where P x missed exceeds (1 - P) x false alarm."""
    false_alarm = rows["cost_false_alarm"].to_numpy(dtype=np.float64)
    missed = rows["cost_missed"].to_numpy(dtype=np.float64)
    wrong: Bool = rows["is_wrong"].to_numpy(dtype=np.bool_)
    saving = probability * missed - (1 - probability) * false_alarm
    flags = saving > 0
    return Worth(
        cost=float(missed[wrong & ~flags].sum() + false_alarm[flags & ~wrong].sum()),
        nothing=float(missed[wrong].sum()),
        claimed=float(saving[flags].sum()),
        flagged=float(flags.mean()),
        precision=float(wrong[flags].mean()) if flags.any() else float("nan"),
        recall=float(flags[wrong].mean()) if wrong.any() else float("nan"),
        auc=auc(probability, wrong),
        average_precision=average_precision(probability, wrong),
    )


def oracles_of(chain: Chain) -> Iterator[tuple[Oracle, str]]:
    """Yield the oracles of a chain, and what each is told besides demand and parameters."""
    yield oracle(chain), "-"
    if isinstance(chain, ShelfChain):
        yield oracle(chain, on_hand=True), "record"
        if chain.settings.sku_onset_ratio > 1:
            yield oracle(chain, on_hand=True, by_sku=True), "record, SKU"


def main(
    seeds: Annotated[str, typer.Option(help="Seeds of the chains.")] = "11",
    only: Annotated[str, typer.Option(help="Worlds whose name contains this text.")] = "",
) -> None:
    """Print the oracles' costs on simulated chains, and what making no checks costs."""
    table = []
    for name, simulate in WORLDS.items():
        if only not in name:
            continue
        for seed in seeds.split(","):
            chain = simulate(int(seed))
            rows = priced_rows(chain)
            weeks = rows["week"].nunique()
            for policy, told in oracles_of(chain):
                found = worth(rows, probability_of(policy, rows))
                table.append(
                    (
                        name,
                        seed,
                        f"{rows['is_wrong'].mean():.2%}",
                        f"{found.nothing / weeks:,.0f}",
                        told,
                        console.number(found.cost_ratio),
                        f"{found.flagged:.3%}",
                        f"{found.precision:.2f}/{found.recall:.2f}",
                        f"{found.auc:.2f}/{found.average_precision:.2f}",
                        console.number(found.claimed / found.real if found.real else float("nan")),
                    )
                )
    console.print_table(
        f"Oracles on simulated chains, last {LAST_WEEKS} weeks",
        (
            "world",
            "seed",
            "wrong",
            "no checks/week",
            "told of",
            "cost",
            "flagged",
            "prec./recall",
            "AUC/AP",
            "claimed/real",
        ),
        table,
    )


if __name__ == "__main__":
    typer.run(main)
