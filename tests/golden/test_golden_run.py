"""The golden run: a demo of the installed wheel, a week, a backfill and a backtest are as 12bcf5a had them.

``make.py`` says which weeks these are; the files beside it were made by that commit. Scores of all pairs,
flags and the evaluation are compared: numbers to 1e-9, absolute below one and relative above; texts exactly.
Of the evaluation only what the file holds, so that something new may be added to it.

Left out: run ids, times, durations, code versions and hashes over these; the bytes of any file; measures of
the evaluation that are nowhere shown; those in ``MAY_GO`` are compared as long as they are there.

The test stands until figures change on purpose. CHANGELOG then says so, and ``make.py`` makes the files anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from golden.make import EVALUATION, FLAGS, SCORES, Figures, golden_run
from support.wheel import Demonstration

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow("nine weeks from end to end, and the demonstration"),
]

TOLERANCE = 1e-9
SHOWN = 20
MAY_GO = {
    "anomaly_rate",
    "auc_pooled",
    "average_precision_pooled",
    "flagged_at_even_costs",
    "lift_at",
    "mean_predicted",
}


@pytest.fixture(scope="module")
def figures(demonstration: Demonstration) -> Figures:
    return golden_run(demonstration.home, demo=False)


def test_scores_of_all_pairs_are_as_they_were(figures):
    told("scores", differences(pd.read_parquet(SCORES), figures.scores))


def test_flags_of_published_weeks_are_as_they_were(figures):
    told("flags", differences(pd.read_parquet(FLAGS), figures.flags))


def test_the_evaluation_is_as_it_was(figures):
    told("the evaluation", unlike(json.loads(EVALUATION.read_text(encoding="utf-8")), figures.evaluation))


def told(what: str, lines: Iterator[str]) -> None:
    """Fail with the first of the lines, if there are any."""
    found = list(lines)
    if found:
        more = [f"… +{len(found) - SHOWN}"] if len(found) > SHOWN else []
        pytest.fail("\n".join([f"{what}: not as in the file", *found[:SHOWN], *more]), pytrace=False)


def differences(before: pd.DataFrame, now: pd.DataFrame) -> Iterator[str]:
    """A line per column that is not as it was, with the worst of it."""
    if set(before.columns) != set(now.columns) or len(before) != len(now):
        yield f"{len(before)} rows of {sorted(before)} were, {len(now)} of {sorted(now)} are"
        return
    for name in before.columns:
        old, new = before[name], now[name]
        if pd.api.types.is_numeric_dtype(old.dtype):
            gap = distance(old.to_numpy(dtype=np.float64), new.to_numpy(dtype=np.float64))
            wrong = gap > TOLERANCE
        else:
            gap = wrong = (old.astype("str") != new.astype("str")).to_numpy()
        if wrong.any():
            worst = int(np.argmax(gap))
            row = " ".join(before.loc[worst, ["week", "store_id", "sku_id"]])
            yield f"{name}: {wrong.sum()} of {len(old)}; {row}: {old[worst]!r} was, {new[worst]!r} is"


def distance(old: Any, new: Any) -> Any:
    """Absolute below one, relative above; absent equals absent and nothing else."""
    gap = np.abs(old - new) / np.maximum(1.0, np.maximum(np.abs(old), np.abs(new)))
    return np.where(np.isnan(old) & np.isnan(new), 0.0, np.where(np.isnan(gap), np.inf, gap))


def unlike(before: Any, now: Any, place: str = "evaluation") -> Iterator[str]:
    """A line per value that is not as it was."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name, value in before.items():
            if name in now:
                yield from unlike(value, now[name], f"{place}.{name}")
            elif name not in MAY_GO:
                yield f"{place}.{name} is not there any more"
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for k, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from unlike(one, other, f"{place}[{k}]")
    elif isinstance(before, float) and isinstance(now, (int, float)):
        if distance(before, now) > TOLERANCE:
            yield f"{place}: {before!r} was, {now!r} is"
    elif before != now:
        yield f"{place}: {before!r} was, {now!r} is"
