"""`ew bench ledger`: years of published weeks, and how long writing, asking and verifying take.

Weeks are as the weekly run hands them to the ledger, drawn instead of fitted: the ledger is what is timed.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.table import Table
from sqlalchemy import text

from ew_pipeline.audit.history import as_of
from ew_pipeline.core.console import emit_json, results, step
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.provenance import canonical_hash, code_version, environment
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.decide.flags import worded
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.intake.assemble import Coverage
from ew_pipeline.intake.contract import Contract
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.connect import SCHEMA, make_engine, parse_url, reading, writing
from ew_pipeline.ledger.failures import is_sqlite, shown
from ew_pipeline.ledger.writing import SCORES
from ew_pipeline.method.theta import Theta
from ew_pipeline.results import GateCheck, Provenance, WeekResult

FIRST_WEEK = Week(2024, 1)
COST_FALSE_ALARM, COST_MISSED = 1.0, 3.0
REPORT = "report.html"
SKUS = 5_000  # at most; more pairs than that are spread over more stores
ASKED = 3  # times that every question is put; the median is shown
WAIT_SECONDS = 30.0


def draw_scores(pairs: int, flags: int, rng: np.random.Generator) -> pd.DataFrame:
    """Scores of ``pairs`` pairs of which ``flags`` are flagged, with the columns and types of ``decide``."""
    if not 0 < flags <= pairs:
        raise UsageError(
            f"{flags:,} flags of {pairs:,} pairs.", "ask for at least one flag and at most all pairs."
        )
    skus = min(SKUS, pairs)
    store, sku = np.divmod(np.arange(pairs), skus)
    flagged = np.zeros(pairs, dtype=bool)
    flagged[rng.choice(pairs, flags, replace=False)] = True
    expected = rng.gamma(4.0, 2.0, pairs) + 1.0
    units = np.where(flagged, 0, rng.poisson(expected)).astype(np.int64)
    probability = np.where(flagged, rng.uniform(0.7, 0.999, pairs), rng.uniform(0.001, 0.2, pairs))
    level = expected * rng.uniform(0.9, 1.1, pairs)
    scores = pd.DataFrame(
        {
            "store_id": _ids("S", store),
            "sku_id": _ids("K", sku),
            "segment": pd.Categorical.from_codes(np.zeros(pairs, np.int16), pd.Index(["all"])),
            "units": units,
            "expected_units": expected,
            "level": level,
            "posterior": probability,
            "anomaly_probability": probability,
            "cost_false_alarm": COST_FALSE_ALARM,
            "cost_missed": COST_MISSED,
            "threshold": COST_MISSED / (COST_FALSE_ALARM + COST_MISSED),
            "expected_saving": probability * COST_MISSED - (1.0 - probability) * COST_FALSE_ALARM,
            "flagged": flagged,
            "store_rank": np.where(flagged, 1, 0),
        }
    )
    return scores.assign(reasons=worded(scores, flagged))


def draw_week(place: int, scores: pd.DataFrame, home: Path, rng: np.random.Generator) -> WeekResult:
    """Week number ``place`` with these scores, and its folder with a page and the scores.

    Scores that were written for an earlier week are linked, so that they are read and hashed every week but
    lie on the disk once.
    """
    week = FIRST_WEEK.shift(place)
    started = dt.datetime.combine(week.shift(1).start, dt.time(6), dt.UTC)
    config = RunConfig()
    data_hash = canonical_hash(["bench", str(week)])
    run_id = f"{week}-{started:%Y%m%dT%H%M%S}-{data_hash[:6]}"
    folder = home / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / REPORT).write_text("<!doctype html><title>A week</title>", encoding="utf-8")
    kept = home / SCORES
    if not kept.exists():
        scores.to_parquet(kept, index=False)
    os.link(kept, folder / SCORES)
    theta = _theta(rng)
    stores, skus = scores["store_id"].nunique(), scores["sku_id"].nunique()
    return WeekResult(
        run_id=run_id,
        week=week,
        started_at=started,
        shadow=False,
        config=config,
        contract=Contract((), {"sales": len(scores)}, 0, None, folder / "data_docs" / "index.html", {}),
        coverage=Coverage(
            "explicit", stores, stores, (), len(scores), int((scores["units"] == 0).sum()), 0, 0, 0, 0, 8
        ),
        segments=(
            SegmentResult(
                name="all",
                stores=stores,
                skus=skus,
                pairs=len(scores),
                theta=theta,
                rank=3,
                noise="poisson",
                anomaly="exponential",
                dispersion_size=math.inf,
                mode="large",
                mode_reason="drawn, not fitted",
                converged=True,
                null_gain=20.0,
                rank_curve=((2, -2.3), (3, -2.0)),
                held_out_curve=(),
                rank_weights={3: 1.0},
                singular_values=(12.5, 3.25, 0.5),
                warnings=(),
                seconds=0.0,
                model=folder / "model" / "all",
            ),
        ),
        pooled=theta,
        scores=scores,
        gate=(GateCheck("converged", True, "drawn, not fitted"),),
        provenance=Provenance(data_hash, config.hash, code_version(), 0, dict(environment())),
        folder=folder,
        timings={},
    )


def _ids(letter: str, codes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pd.Categorical[str]:
    names = pd.Index([f"{letter}{number:05d}" for number in range(int(codes.max()) + 1)])
    return pd.Categorical.from_codes(codes, names, ordered=True)


def _theta(rng: np.random.Generator) -> Theta:
    alpha, rate = float(rng.uniform(0.1, 0.3)), float(rng.uniform(0.03, 0.05))
    return Theta(alpha, rate, (0.8 * alpha, 1.25 * alpha), (0.9 * rate, 1.1 * rate), False, True)


@dataclass(frozen=True)
class Took:
    """CPU seconds of this process and seconds on the clock; a server's own CPU is in the latter alone."""

    cpu_s: float
    wall_s: float
    answer: int  # rows or weeks that came back


def ledger(
    weeks: Annotated[int, typer.Option(min=2, help="Published weeks.")] = 104,
    flags: Annotated[int, typer.Option(min=1, help="Flags of a week.")] = 20_000,
    pairs: Annotated[float, typer.Option(min=1, help="Scored pairs of a week.")] = 1e6,
    database: Annotated[
        str | None,
        typer.Option(help="URL of a PostgreSQL without a ledger; default: SQLite in a temporary folder."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the drawn weeks.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Publish weeks into a fresh ledger, ask it what people ask, verify it, and remove it again.

    Weeks are drawn, not fitted: every second publishes the same scores, and everything else is what a
    weekly run hands over. The models of the runs are not part of it.
    """
    with tempfile.TemporaryDirectory(prefix="ew-bench-ledger-") as folder:
        home = Path(folder)
        url = f"sqlite:///{home / 'ledger.db'}" if database is None else database
        if database is not None:
            refuse_ledger(database)
        try:
            found = measure(url, home, weeks, flags, int(pairs), seed)
        finally:
            if database is not None:
                remove_ledger(database)
    if json:
        emit_json(found)
    else:
        results().print(as_table(found))


def measure(url: str, home: Path, weeks: int, flags: int, pairs: int, seed: int) -> dict[str, Any]:
    """Every figure of a ledger with so many weeks."""
    rng = np.random.default_rng(seed)
    scores = [draw_scores(pairs, flags, rng) for _ in range(2)]
    published: list[Took] = []
    with Ledger.open(url, home=home) as opened:
        with step(f"publish {weeks} weeks of {flags:,} flags") as line:
            for place in range(weeks):
                published.append(_publish(opened, draw_week(place, scores[place % 2], home, rng)))
            line.detail = f"{statistics.median(took.wall_s for took in published):.2f} s each"
        newest = opened.current(FIRST_WEEK.shift(weeks - 1))
        middle = opened.publications()[weeks // 2]
        assert newest is not None
        store = str(scores[0]["store_id"].iloc[0])
        questions: dict[str, Callable[[], int]] = {
            "a week's flags": lambda: len(opened.flags(newest.id)),
            "a store's flags of a week": lambda: len(opened.flags(newest.id, store)),
            "theta of all weeks": lambda: len(opened.segments_series(newest.week, weeks, "all")),
            "what was live on a day": lambda: len(as_of(opened, middle.published_at).weeks),
        }
        asked = {}
        for name, question in questions.items():
            with step(name):
                asked[name] = median([timed(question) for _ in range(ASKED)])
        with step("verify") as line:
            verified = timed(lambda: len(opened.verify()))
            line.detail = f"{verified.wall_s / weeks:.2f} s a week"
        return {
            "weeks": weeks,
            "flags": flags,
            "pairs": pairs,
            "database": shown(parse_url(url)),
            "publish": median(published),
            "questions": asked,
            "verify": verified,
            "verify_cpu_s_per_week": verified.cpu_s / weeks,
            "problems": verified.answer,
            "ledger_bytes": size_of(url, home),
            "scores_bytes_per_week": (home / SCORES).stat().st_size,
        }


def _publish(opened: Ledger, result: WeekResult) -> Took:
    report = result.folder / REPORT
    return timed(lambda: opened.publish(result, by="bench", report=report).flags_count)


def timed(work: Callable[[], int]) -> Took:
    cpu, wall = time.process_time(), time.perf_counter()
    answer = work()
    return Took(time.process_time() - cpu, time.perf_counter() - wall, answer)


def median(took: list[Took]) -> Took:
    return Took(
        statistics.median(one.cpu_s for one in took),
        statistics.median(one.wall_s for one in took),
        took[-1].answer,
    )


def refuse_ledger(url: str) -> None:
    """A bench fills the schema and drops it afterwards: there must be none."""
    parsed = parse_url(url)
    if is_sqlite(parsed):
        raise UsageError("--database is for PostgreSQL.", "leave it out: SQLite is the default.")
    with reading(make_engine(parsed, WAIT_SECONDS)) as connection:
        found = connection.execute(text("SELECT to_regnamespace(:name) IS NOT NULL"), {"name": SCHEMA})
        if found.scalar_one():
            raise UsageError(
                f"{shown(parsed)} already has a schema {SCHEMA!r}, perhaps a ledger that is in use.",
                "give the URL of an empty database.",
            )


def remove_ledger(url: str) -> None:
    """Drop what ``refuse_ledger`` has made sure is ours."""
    with writing(make_engine(parse_url(url), WAIT_SECONDS)) as connection:
        connection.execute(text(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))


def size_of(url: str, home: Path) -> int:
    """Bytes of the database with its indexes."""
    parsed = parse_url(url)
    if is_sqlite(parsed):
        return sum(path.stat().st_size for path in home.glob("ledger.db*"))
    sizes = (
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = to_regnamespace(:name)"
    )
    only_tables = f"{sizes} AND relkind = 'r'"  # a table's size has its indexes in it
    with reading(make_engine(parsed, WAIT_SECONDS)) as connection:
        return int(connection.execute(text(only_tables), {"name": SCHEMA}).scalar_one())


def as_table(found: dict[str, Any]) -> Table:
    """One line per thing that is done with the ledger."""
    weeks = found["weeks"]
    table = Table("", "CPU s", "s", "rows", title=f"{weeks} weeks of {found['flags']:,} flags")
    lines = {"publish a week": found["publish"], **found["questions"]}
    for name, took in lines.items():
        table.add_row(name, f"{took.cpu_s:.3f}", f"{took.wall_s:.3f}", f"{took.answer:,}")
    verified = found["verify"]
    table.add_row("verify everything", f"{verified.cpu_s:.1f}", f"{verified.wall_s:.1f}", "")
    table.add_row("verify, a week", f"{verified.cpu_s / weeks:.3f}", f"{verified.wall_s / weeks:.3f}", "")
    table.add_section()
    table.add_row("ledger on disk", "", "", f"{found['ledger_bytes'] / 1e6:,.0f} MB")
    pairs = f"scores of {found['pairs']:,} pairs, a week (parquet)"
    table.add_row(pairs, "", "", f"{found['scores_bytes_per_week'] / 1e6:,.1f} MB")
    return table
