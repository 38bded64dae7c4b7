"""`ew demo`: the whole story on a simulated chain, from its sales file to published flags, and their worth.

Two weeks are run as a retailer would run them; the simulation knows which records are wrong, so the last
one can be marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.text import Text

from ew_pipeline.cli.run import describe, run_one, show
from ew_pipeline.core.console import emit_json, print_lines, print_table, results, step
from ew_pipeline.core.files import make_private
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.ledger import Ledger
from ew_pipeline.simulate import ChainSettings, SimulatedChain, simulate_chain
from ew_pipeline.tracking.weekly import Tracking
from ew_pipeline.weekly.request import make_request
from ew_pipeline.weekly.run import Outcome, run_week

LISTED_PAIRS = 10
EARLIER_WEEKS = 1
# Sales that vary little more than chance, so that one week also says how deep wrong records fall, and enough
# weeks for what is priced to be learnt from those before.
CHAIN = ChainSettings.small(stores=40, weeks=33, median_units=8.0, dispersion_size=30.0)
CHANGES = {"max_checks_per_store": 5}  # as many as a store has time for


@dataclass(frozen=True)
class Verdict:
    """What the checks would find; only a simulation can tell."""

    to_check: int
    found: int
    wrong_records: int
    pairs: int
    cost_doing_nothing: float
    cost_with_checks: float

    @property
    def precision(self) -> float:
        """Share of the checks that find a wrong record."""
        return self.found / self.to_check if self.to_check else 0.0

    @property
    def random_precision(self) -> float:
        """The same for checks at random."""
        return self.wrong_records / self.pairs


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated chain.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Simulate a small chain, run its last weeks, publish them, and say how good the check list is.

    Everything it makes is in the home (``.ew``, or EW_HOME).
    """
    settings = Settings()
    make_private(settings.root)
    with step("simulate a chain") as line:
        chain = simulate_chain(CHAIN, seed)
        tables = chain.write(settings.root / "demo" / f"chain-{seed}")
        weeks = sorted(str(week) for week in chain.sales["week"].unique())[-1 - EARLIER_WEEKS :]
        line.detail = (
            f"{chain.settings.stores} stores, {chain.settings.skus} SKUs, {chain.settings.weeks} weeks"
        )
    sources = {name: str(tables[name]) for name in ("sales", "listing", "costs")}
    for week in weeks[:-1]:
        with step(f"run {week}") as line:
            earlier = _earlier(week, sources, settings)
            line.detail = earlier.status
    outcome = run_one(settings, changes=dict(CHANGES), week=weeks[-1], **sources)
    flags, scores = _published(outcome, settings)
    marked = mark(flags, chain, weeks[-1])
    verdict = judge(marked, scores, chain, weeks[-1])
    if json:
        emit_json({**describe(outcome), "verdict": verdict, "precision": verdict.precision})
    else:
        show(outcome, settings, json=False)
        _print(marked, verdict, outcome, sources["sales"])
    raise typer.Exit(outcome.exit_code)


def mark(flags: pd.DataFrame, chain: SimulatedChain, week: str) -> pd.DataFrame:
    """The flags with a column ``phantom``: whether the record is wrong in truth."""
    truth = _truth(chain, week)
    phantom = truth.set_index(["store_id", "sku_id"])["phantom"]
    pairs = pd.MultiIndex.from_frame(flags[["store_id", "sku_id"]].astype("str"))
    return flags.assign(phantom=phantom.reindex(pairs).fillna(False).to_numpy(dtype=bool))


def judge(marked: pd.DataFrame, scores: pd.DataFrame, chain: SimulatedChain, week: str) -> Verdict:
    """Count what the checks find and what the week's errors cost, over the scored pairs."""
    truth = mark(scores, chain, week)
    flagged = set(zip(marked["store_id"].astype("str"), marked["sku_id"].astype("str"), strict=True))
    pairs = zip(truth["store_id"].astype("str"), truth["sku_id"].astype("str"), strict=True)
    checked = pd.Series([pair in flagged for pair in pairs], index=truth.index)
    missed = truth["phantom"] & ~checked
    false_alarm = checked & ~truth["phantom"]
    return Verdict(
        to_check=len(marked),
        found=int(marked["phantom"].sum()),
        wrong_records=int(truth["phantom"].sum()),
        pairs=len(truth),
        cost_doing_nothing=float(truth.loc[truth["phantom"], "cost_missed"].sum()),
        cost_with_checks=float(
            truth.loc[missed, "cost_missed"].sum() + truth.loc[false_alarm, "cost_false_alarm"].sum()
        ),
    )


def _truth(chain: SimulatedChain, week: str) -> pd.DataFrame:
    truth = chain.truth[(chain.truth["week"] == week).to_numpy()]
    return truth.astype({"store_id": "str", "sku_id": "str"})


def _earlier(week: str, sources: dict[str, str], settings: Settings) -> Outcome:
    with Tracking(settings) as tracking:
        request = make_request(
            settings,
            week=week,
            sales=sources["sales"],
            listing=sources["listing"],
            costs=sources["costs"],
            changes=CHANGES,
        )
        return run_week(request, settings, Steps(quiet=True), tracking)


def _published(outcome: Outcome, settings: Settings) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(flags, all scores), of this run or of the one that had published the week before."""
    if outcome.result is not None:
        return outcome.result.flags, outcome.result.scores
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        assert outcome.publication is not None
        flags = ledger.flags(outcome.publication.id)
    return flags, pd.read_parquet(settings.runs / outcome.run_id / "scores.parquet")


def _print(marked: pd.DataFrame, verdict: Verdict, outcome: Outcome, sales: str) -> None:
    rows = [
        (
            str(flag.store_id),
            str(flag.sku_id),
            str(flag.units),
            f"{flag.expected_units:.1f}",
            f"{flag.anomaly_probability:.2f}",
            f"{flag.expected_saving:.1f}",
            "wrong" if flag.phantom else "fine",
        )
        for flag in marked.head(LISTED_PAIRS).itertuples()
    ]
    print_table(
        f"The {len(rows)} most valuable checks",
        ("store", "SKU", "sold", "expected", "P(anomaly)", "saves", "in truth"),
        rows,
    )
    lift = verdict.precision / verdict.random_precision if verdict.wrong_records else 0.0
    print_lines(
        "How good is the list? (only a simulation can tell)",
        [
            f"{verdict.found} of {verdict.to_check} checks find a wrong record: {verdict.precision:.0%},"
            f" {lift:.0f} times the {verdict.random_precision:.1%} of checks at random",
            f"cost of the week's errors: {verdict.cost_doing_nothing:.0f} doing nothing,"
            f" {verdict.cost_with_checks:.0f} with these checks",
        ],
    )
    week = outcome.result.week if outcome.result else outcome.publication.week if outcome.publication else ""
    top = marked.head(1)
    pair = (
        f"--store {top['store_id'].iloc[0]} --sku {top['sku_id'].iloc[0]}"
        if len(top)
        else "--store S --sku K"
    )
    results().print(Text("Next", style="bold"))
    for command, what in (
        (f"open {_shown(outcome.report)}", "the week's page"),
        (f"ew flags --week {week}", "the check list"),
        (f"ew explain {pair} --week {week}", "why this pair"),
        (f"ew run --week {week} --sales {_shown(Path(sales))}", "run a week yourself"),
        ("ew doctor", "what is configured, and what is missing"),
    ):
        results().print(Text(f"  {command:<62} {what}"), soft_wrap=True)


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
