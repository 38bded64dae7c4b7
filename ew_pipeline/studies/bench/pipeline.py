"""`ew bench pipeline`: a whole weekly run by stage, and what Prefect, MLflow and Great Expectations add.

Each run is a cold process with a home of its own, as a scheduler would start it in any week but the first:
Prefect has made its database there, which takes it some seconds once (``first_start``). Beside the stages
stand the start, until the first of them begins, and all that is between and after them, so that the rows
sum to the whole run. What the tools add is taken from short runs (``FEW_ROWS``, mode fast), so that the work
itself does not blur it:

- Prefect: the same run with and without it (``EW_ORCHESTRATE``), the difference in wall time;
- MLflow: how long the run waits for the process that does the tracking beside it;
- Great Expectations: a cold process that checks a hundred rows and writes Data Docs, less what starting
  Python and pandas takes. What it needs for more rows is the work of checking them.

Runs have their rows over some weeks, as the weekly run reads them: the week's level is learnt from its past,
the price from fits of past weeks, all but the newest of which the run of the week before has kept. There
the stages outside the fits must not take longer than the fits. Fits are those of the models of the sales, the
detector's and the levels', of this week and of past ones with what is kept of them. Learning what their
evidence is worth is none.

The last run has its rows in one week: the least there is to fit for so many, and the most to list and to
publish. How many times our fit the other stages take there is said and not held to a limit, which a slower
fit would meet and a quicker one miss.
"""

from __future__ import annotations

import datetime as dt
import json as jsonlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.table import Table

from ew_pipeline.core.console import ExitCode, emit_json, results, step
from ew_pipeline.core.errors import FitError
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.servers.prefect import prefect_api
from ew_pipeline.studies.bench.machine import machine, said_machine
from ew_pipeline.studies.bench.page import Requirement, at_most, reported, required_table, said_size
from ew_pipeline.studies.bench.processes import PeakMemory
from ew_pipeline.studies.bench.reading import WEEK, write_long
from ew_pipeline.studies.bench.stored import Size, store

FULL = Size(70_000, 10_000, 10_000_000)
LOOK_EVERY = 0.2  # seconds; shorter than any stage that allocates much
FIT_STAGES = ("level from history", "fit the detector", "fit past weeks", "fit the week alone")
START, END = "start: Python, imports, Prefect", "between and after: MLflow's end, live files, Prefect's end"
TRACK_STAGES = ("track in MLflow",)
CHECKED_ROWS = 100
FEW_ROWS = 5_000


def pipeline(
    rows: Annotated[str, typer.Option(help="Sales rows of a run, each size once.")] = "1e5,1e6,1e7",
    weeks: Annotated[int, typer.Option(min=2, help="Weeks over which a run has its rows.")] = 21,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Time of each stage of a weekly run, memory of all its processes, and what the tools around it cost."""
    sizes = sorted(float(text) for text in rows.split(","))
    runs: list[dict[str, Any]] = []
    few = FULL.grown(FEW_ROWS)
    with tempfile.TemporaryDirectory(prefix="ew-bench-") as place:
        folder = Path(place)
        for observed in sizes:
            with step(f"{observed:g} rows of {weeks} weeks") as line:
                runs.append(one_week(FULL.grown(observed / weeks), folder, weeks=weeks))
                line.detail = _brief(runs[-1])
        with step(f"{sizes[-1]:g} rows of one week") as line:
            runs.append(one_week(FULL.grown(sizes[-1]), folder))
            line.detail = _brief(runs[-1])
        with step(f"a week of {FEW_ROWS} rows, with Prefect and without"):
            short = one_week(few, folder, mode="fast")
            plain = one_week(few, folder, mode="fast", orchestrate=False)
        with step("Great Expectations alone"):
            checking = checking_alone()
    tools = tool_costs(short, plain, checking)
    *_, largest, one = runs
    table = of_pipeline(largest, one, tools)
    if json:
        emit_json(
            {
                "machine": machine(),
                "runs": runs,
                "few_rows": [short, plain],
                "tools_s": tools,
                "requirements": table,
            }
        )
        return
    results().print(stages_table(runs))
    for name, seconds in tools.items():
        results().print(f"{name}: {seconds:.1f} s beyond the work")
    results().print(required_table(table))
    results().print(said_machine(machine()))


def one_week(
    size: Size, folder: Path, *, orchestrate: bool = True, mode: str = "auto", weeks: int = 1
) -> dict[str, Any]:
    """`ew run` on fresh data in a fresh home; wall and CPU seconds, peak memory, seconds by stage. With more
    ``weeks`` of this size before it, in a home that has run the last of them."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        home = Path(place)
        sales = write_long(store(size, home), weeks)
        command = [sys.executable, "-m", "ew_pipeline.cli", "run", "--sales", str(sales), "--mode", mode]
        command += ["--override", "a benchmark", "--json", "--week"]
        environment = _scheduled() | {
            "EW_HOME": str(home / "ew"),
            "EW_ORCHESTRATE": str(orchestrate).lower(),
        }
        first = first_start(environment) if orchestrate else 0.0
        if weeks > 1:
            before_it = [*command, str(Week.parse(WEEK).shift(-1))]
            done = subprocess.run(before_it, capture_output=True, text=True, check=False, env=environment)
            _refuse_failed(done.returncode, done.stderr, size)
        before, started, begun_at = _children_cpu(), time.perf_counter(), dt.datetime.now(dt.UTC)
        with subprocess.Popen(
            [*command, WEEK],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            with PeakMemory(process.pid, LOOK_EVERY) as memory:
                out, said = process.communicate()
            wall = time.perf_counter() - started
        _refuse_failed(process.returncode, said, size)
    told = jsonlib.loads(out)
    stages = told["timings"]
    start = (dt.datetime.fromisoformat(told["started_at"]) - begun_at).total_seconds()
    return {
        "rows": size.observed * weeks,
        "weeks": weeks,
        "status": told["status"],
        "flags": told["flags"],
        "priced": told["priced"]["form"],
        "publication": told["publication"],
        "wall_s": wall,
        "cpu_s": _children_cpu() - before,
        "peak_gb": memory.highest / 1e9,
        "stages_s": {START: start, **stages, END: wall - start - sum(stages.values())},
        "first_start_s": first,
    }


def _refuse_failed(code: int, said: str, size: Size) -> None:
    if code not in (ExitCode.DONE, ExitCode.HELD_BACK):
        raise FitError(
            f"the week of {size.observed:,} pairs ended with {code}: {said[-500:]}", "run `ew doctor`."
        )


def first_start(environment: dict[str, str]) -> float:
    """Wall seconds in which Prefect's server starts in a new home and makes its database, once for all."""
    started = time.perf_counter()
    child = "from ew_pipeline.studies.bench.pipeline import start_prefect; start_prefect()"
    subprocess.run([sys.executable, "-c", child], check=True, env=environment)
    return time.perf_counter() - started


def start_prefect() -> None:
    """The child's part of ``first_start``."""
    with prefect_api(Settings()) as api:
        api.wait()


def checking_alone() -> float:
    """Wall seconds that Great Expectations takes cold for next to no rows."""
    done = subprocess.run(
        [sys.executable, "-c", "from ew_pipeline.studies.bench.pipeline import check_few; check_few()"],
        capture_output=True,
        text=True,
        check=True,
        env=_scheduled(),
    )
    return float(done.stdout.splitlines()[-1])


def check_few() -> None:
    """The child's part of ``checking_alone``."""
    stores, skus = ["S1"] * CHECKED_ROWS, [f"K{k}" for k in range(CHECKED_ROWS)]
    frame = pd.DataFrame({"store_id": stores, "sku_id": skus, "week": WEEK, "units": 1})
    started = time.perf_counter()
    from ew_pipeline.intake.expectations import Validator, load_suite

    validator = Validator()
    validator.validate(load_suite("sales").on(set(frame.columns)), frame, "few rows")
    with tempfile.TemporaryDirectory() as folder:
        validator.build_docs(Path(folder))
    print(time.perf_counter() - started)


def tool_costs(run: dict[str, Any], plain: dict[str, Any], checking: float) -> dict[str, float]:
    """Wall seconds that each tool adds to a run."""
    return {
        "Prefect": max(0.0, run["wall_s"] - plain["wall_s"]),
        "MLflow": sum(seconds for name, seconds in plain["stages_s"].items() if name in TRACK_STAGES),
        "Great Expectations": checking,
    }


def of_pipeline(
    largest: dict[str, Any],
    one: dict[str, Any],
    tools: dict[str, float],
) -> list[Requirement]:
    """What is required of the largest run with its past, of that with as many rows in one week, and of the
    tools."""
    fits, others = fits_and_others(largest)
    one_fit, one_others = fits_and_others(one)
    rows, one_rows = said_size(largest), said_size(one)
    most = max(largest["peak_gb"], one["peak_gb"])
    return [
        at_most(f"stages outside the fits over these, {rows}", others / fits, 1.0, "x"),
        reported(f"stages outside the fit over our fit, {one_rows}", one_others / one_fit, "x"),
        at_most("memory of all processes", most, 8.0, " GB"),
        at_most("Prefect, MLflow and Great Expectations beyond the work", sum(tools.values()), 20.0, " s"),
    ]


def fits_and_others(run: dict[str, Any]) -> tuple[float, float]:
    """Wall seconds of the stages that fit, and of the others. Start and end do not grow with the data: they
    are the tools' and Python's, not stages."""
    stages = {name: s for name, s in run["stages_s"].items() if name not in (START, END)}
    fits = sum(seconds for name, seconds in stages.items() if name in FIT_STAGES)
    return fits, sum(stages.values()) - fits


def _brief(run: dict[str, Any]) -> str:
    return f"{run['wall_s']:.0f} s, {run['peak_gb']:.2f} GB"


def stages_table(runs: list[dict[str, Any]]) -> Table:
    """Wall seconds by stage and size."""
    table = Table("stage, s", *(said_size(run) for run in runs))
    names = list(dict.fromkeys(name for run in runs for name in run["stages_s"]))
    for name in names:
        table.add_row(name, *(f"{run['stages_s'].get(name, 0.0):.1f}" for run in runs))
    for name, key, digits in (("whole run", "wall_s", 0), ("CPU", "cpu_s", 0), ("peak GB", "peak_gb", 2)):
        table.add_row(name, *(f"{run[key]:.{digits}f}" for run in runs))
    return table


def _scheduled() -> dict[str, str]:
    """The environment, but compiled byte code is kept, as on the machine of a weekly run: without it,
    importing takes three times as long."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
