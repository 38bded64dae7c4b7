"""The golden run: `ew` on one simulated chain, and what is kept of its figures.

``python tests/golden/make.py`` makes the run with the code beside it and writes the three files that
``test_golden_run.py`` compares with. The files in the repository were made by commit 12bcf5a. Make them again
only when figures change on purpose, and say so in CHANGELOG.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.command_line import ew, home_at

HERE = Path(__file__).parent
SCORES, FLAGS, EVALUATION = HERE / "scores.parquet", HERE / "flags.parquet", HERE / "evaluation.json"

STORES = 14  # of the demo's 40, for all but the demo: enough to be published, quick enough for seven weeks
QUICK = {"max_checks_per_store": 5, "detector": {"mode": "variational"}}
POLICIES = ("constant", "trailing-tail", "cross-section", "history")

# Of the flags: who made them and when. Also the hashes, which cover these.
NOT_OF_FLAGS = ("run_id", "flow_run_id", "mlflow_run_id", "code_version", "row_hash")
# Of the evaluation: times, places, a hash over last bits.
NOT_OF_EVALUATION = ("seconds", "page", "version")
# Measures that are nowhere shown: two kinds of drawn costs, and cost in money.
NOT_OF_POLICIES = (
    "cost_ratio_drawn",
    "cost_ratio_drawn_interval",
    "cost_ratio_joint_interval",
    "cost_per_pair",
    "cost_per_pair_interval",
)


@dataclass(frozen=True)
class Figures:
    """``scores``: of every week's run. ``flags``: of every published week. ``evaluation``: as printed."""

    scores: pd.DataFrame
    flags: pd.DataFrame
    evaluation: dict[str, Any]


def golden_run(home: Path, demo: bool = True) -> Figures:
    """The demo; one more week and a six-week backfill of some of its stores; a backtest of two weeks.

    The demo runs two weeks with defaults; without ``demo`` the home has it. The later ones use the quicker
    mode; in one of them checks are drawn at random, and one is held back.
    """
    with home_at(home):
        if demo:
            ew("demo", "--seed", "0", "--json")
        chain = home / "demo" / "chain-0"
        part = home / "part"
        part.mkdir()
        for name in ("sales", "listing"):
            table = pd.read_parquet(chain / f"{name}.parquet")
            chosen = sorted(table["store_id"].astype("str").unique())[:STORES]
            inside = table["store_id"].astype("str").isin(chosen)
            table[inside].to_parquet(part / f"{name}.parquet", index=False)
        tables = ("--sales", part / "sales.parquet", "--listing", part / "listing.parquet")
        costs = ("--costs", chain / "costs.parquet")
        config = part / "config.json"
        config.write_text(json.dumps(QUICK))
        asked = (*tables, *costs, "--config", config, "--json")
        ew("run", "--week", "2026-W31", "--random-check-share", "0.02", *asked)
        done = ew("backfill", "--from", "2026-W25", "--to", "2026-W30", *asked, expect=4).json["weeks"]
        assert [one["week"] for one in done if one["status"] == "held"] == ["2026-W28"]
        policies = [word for name in POLICIES for word in ("--policy", name)]
        weeks = ("--from", "2026-W25", "--to", "2026-W26")
        evaluation = ew("evaluate", *tables, *weeks, *policies, "--json").json
        live = sorted(one.name for one in (home / "reports").glob("*-W*"))
        flags = {week: pd.DataFrame(ew("flags", "--week", week, "--json").json) for week in live}
    scores = {one.parent.name[:8]: pd.read_parquet(one) for one in home.glob("runs/*/scores.parquet")}
    assert len(scores) == 9
    return Figures(
        together([frame.assign(week=week) for week, frame in sorted(scores.items())]),
        together(list(flags.values())).drop(columns=list(NOT_OF_FLAGS)),
        of_evaluation(evaluation),
    )


def together(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """One below the other: numbers as they are, all else as text, whatever a file makes of it."""

    def plain(frame: pd.DataFrame) -> pd.DataFrame:
        numbers = frame.select_dtypes("number").columns
        return frame.astype({name: "str" for name in frame if name not in numbers})

    whole = pd.concat([plain(frame) for frame in frames], ignore_index=True)
    texts = whole.columns.difference(whole.select_dtypes("number").columns)
    return whole.fillna(dict.fromkeys(texts, ""))


def of_evaluation(printed: Mapping[str, Any]) -> dict[str, Any]:
    """Without what may differ from run to run, and what is not shown."""

    def without(value: Any, names: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {name: without(one, names) for name, one in value.items() if name not in names}
        return [without(one, names) for one in value] if isinstance(value, list) else value

    kept: dict[str, Any] = without(dict(printed), (*NOT_OF_EVALUATION, *NOT_OF_POLICIES))
    return kept


def rounded(values: Any) -> Any:
    """To within 6e-11, relative above one: the rest is noise that files would have to hold."""
    numbers = np.asarray(values, dtype=np.float64)
    places = 34 - np.maximum(np.frexp(numbers)[1], 0)
    return np.ldexp(np.rint(np.ldexp(numbers, places)), -places)


def keep(figures: Figures) -> None:
    """Write the three files."""
    for place, frame in ((SCORES, figures.scores), (FLAGS, figures.flags)):
        floats = list(frame.select_dtypes("float").columns)
        table = pa.Table.from_pandas(
            frame.assign(**{name: rounded(frame[name]) for name in floats}), preserve_index=False
        ).replace_schema_metadata()
        others = [name for name in table.column_names if name not in floats]
        pq.write_table(
            table,
            place,
            compression="zstd",
            compression_level=19,
            use_dictionary=others,
            use_byte_stream_split=floats,
        )

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: short(one) for name, one in value.items()}
        if isinstance(value, list):
            return [short(one) for one in value]
        return float(rounded(value)) if isinstance(value, float) else value

    EVALUATION.write_text(json.dumps(short(figures.evaluation), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ew-golden-") as folder:
        keep(golden_run(Path(folder) / "home"))
