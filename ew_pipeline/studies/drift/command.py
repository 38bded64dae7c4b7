"""`ew reproduce drift`: false alarms, power and attribution of the drift chart, on weeks fitted for real."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import numpy as np
import typer

from ew_pipeline.core import console
from ew_pipeline.core.console import emit_json
from ew_pipeline.studies.drift.figures import (
    ScenarioFigures,
    StableFigures,
    of_drawn,
    of_scenario,
    of_stable,
)
from ew_pipeline.studies.drift.fitted import SCENARIOS, STABLE, TITLE, Chain, Fits, run_alike
from ew_pipeline.studies.drift.retail import CHANGES, USUAL_SIZE, run_retail
from ew_pipeline.studies.experiments import display, options
from ew_pipeline.studies.experiments.requirements import Requirement, Verdict, judge

REPEATS = 20
REQUIRED = 0.9
NEEDED = tuple(name for name in SCENARIOS if name not in (STABLE, "severity"))


class World(StrEnum):
    """Weeks that are alike but for chance (`world`), or those of a chain as retail has it (`retail`)."""

    ALIKE = "alike"
    RETAIL = "retail"


CAN_CHANGE = {World.ALIKE: tuple(SCENARIOS), World.RETAIL: tuple(CHANGES)}


def drift(
    world: Annotated[
        World, typer.Option(help="Weeks alike, or with seasons, promotions, churn and a level from history.")
    ] = World.ALIKE,
    simulations: Annotated[int, typer.Option(min=1, help="How many chains.")] = 10,
    weeks: Annotated[int, typer.Option(min=20, help="Stable weeks for the rate of false alarms.")] = 500,
    baseline: Annotated[int, typer.Option(min=9, help="Stable weeks of a chain that are fitted.")] = 16,
    after: Annotated[int, typer.Option(min=1, help="Weeks after a change that are fitted.")] = 4,
    stores: Annotated[int, typer.Option(min=2, help="Stores.")] = 200,
    skus: Annotated[int, typer.Option(min=2, help="SKUs.")] = 1000,
    dispersion_size: Annotated[
        float | None,
        typer.Option(
            min=0.1, help=f"s0 of negative binomial sales; default: Poisson, in retail {USUAL_SIZE:g}."
        ),
    ] = None,
    scenarios: Annotated[
        str | None, typer.Option(help='Changes to study, with commas; "stable" for none; default: all.')
    ] = None,
    drawn: Annotated[
        int, typer.Option(min=0, help="Further simulations of each change, drawn like the fitted weeks.")
    ] = 200,
    rate: Annotated[float, typer.Option(min=2, help="Weeks between false alarms that are asked for.")] = 52.0,
    mode: Annotated[str, typer.Option(help="Mode of every fit.")] = "variational",
    anomaly: Annotated[str, typer.Option(help="Anomaly family of every fit.")] = "auto",
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Weeks of simulated chains in which nothing or one thing changes, each fitted as in production.

    A simulation is ``--baseline`` stable weeks and then ``--after`` changed ones. Its verdict is the first
    event after the change. Fits take time, so ``--drawn`` further simulations have weeks with the levels and
    errors of the fitted ones. False alarms are counted over ``--weeks`` stable weeks: fitted ones when
    ``--baseline`` is that long, otherwise drawn with the errors that the fitted ones had.
    """
    can_change = [name for name in CAN_CHANGE[world] if name != STABLE]
    chosen = can_change if scenarios is None else options.names(scenarios, CAN_CHANGE[world], "scenario")
    plan = {STABLE: baseline, **{name: after for name in chosen if name != STABLE}}
    usual_size = math.inf if world is World.ALIKE else USUAL_SIZE
    chain = Chain(stores=stores, skus=skus, size=dispersion_size or usual_size)
    run = run_alike if world is World.ALIKE else run_retail
    found = run(chain, plan, simulations, Fits(mode, anomaly, seed), options.processes(jobs), out)
    changes = {name: of_scenario(name, found[STABLE], found[name], rate) for name in plan if name != STABLE}
    rng = np.random.default_rng([seed, 2])
    like = {name: of_drawn(name, found[STABLE], found[name], rate, rng, drawn) for name in changes if drawn}
    stable = of_stable(found[STABLE], weeks, rate, np.random.default_rng([seed, 1]), REPEATS)
    verdicts = verdicts_of(changes, like, stable)
    if json:
        emit_json(
            {
                "experiment": TITLE,
                "world": world.value,
                "chain": {
                    **(asdict(chain) if world is World.ALIKE else {"stores": stores, "skus": skus}),
                    "size": chain.size if math.isfinite(chain.size) else None,
                },
                "mode": mode,
                "anomaly": anomaly,
                "simulations": simulations,
                "seed": seed,
                "fits": sum(len(weeks) for chains in found.values() for weeks in chains),
                "stable": stable,
                "changes": changes,
                "drawn": like,
                "requirements": [verdict.plain() for verdict in verdicts],
            }
        )
    else:
        show(chain, {"fitted": changes, "drawn like the fitted weeks": like}, stable, verdicts)


def verdicts_of(
    changes: Mapping[str, ScenarioFigures], like: Mapping[str, ScenarioFigures], stable: StableFigures
) -> list[Verdict]:
    """The promises beside the figures."""
    required = [Requirement("alarms", "false alarms over the stable weeks", stable.allowed)]
    figures: dict[str, float | None] = {"alarms": stable.alarms}
    for kind, found in (("", changes), (" (drawn)", like)):
        for name in (name for name in NEEDED if name in found):
            words = f"{name}: seen as {found[name].expected}{kind}"
            required.append(Requirement(f"{name}{kind}", words, 1.0, low=REQUIRED))
            figures[f"{name}{kind}"] = found[name].as_expected
    return judge(required, figures)


def show(
    chain: Chain,
    studies: Mapping[str, Mapping[str, ScenarioFigures]],
    stable: StableFigures,
    verdicts: Sequence[Verdict],
) -> None:
    for how, changes in studies.items():
        if not changes:
            continue
        console.print_table(
            f"One change, {chain.stores} x {chain.skus}, {how}",
            ("changed", "as expected", "verdicts", "weeks to the alarm", "early alarms"),
            [
                (
                    name,
                    f"{one.as_expected:.0%} of {one.simulations}",
                    console.tally(one.verdicts),
                    console.number(one.mean_weeks, 1),
                    str(one.early),
                )
                for name, one in changes.items()
            ],
        )
    kind = "fitted" if stable.fitted else "drawn like the fitted ones"
    console.print_lines(
        "Nothing changed",
        [
            f"{stable.weeks} weeks, {kind}, {stable.repeats} times: {stable.alarms:.1f} alarms on average, "
            f"at most {stable.most}; {stable.allowed:.1f} are allowed, kept in {stable.within:.0%}"
        ],
    )
    display.print_verdicts("Required", verdicts)
