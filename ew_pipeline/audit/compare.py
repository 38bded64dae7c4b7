"""Two results of the same run, number by number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

TOLERANCE = 1e-9
Name = Callable[[int], str]  # of the k-th pair or segment; asked for the one that is shown
KEY = ["store_id", "sku_id"]
NUMBERS = (
    "units",
    "expected_units",
    "level",
    "posterior",
    "anomaly_probability",
    "cost_false_alarm",
    "cost_missed",
    "threshold",
    "expected_saving",
    "store_rank",
)
TEXTS = ("segment", "reasons")
THETA = (
    "alpha",
    "alpha_low",
    "alpha_high",
    "anomaly_rate",
    "anomaly_rate_low",
    "anomaly_rate_high",
    "rank",
    "dispersion_size",
    "null_gain",
)
FIT_TEXTS = ("noise", "anomaly", "mode", "converged", "calibration")


@dataclass(frozen=True)
class Comparison:
    """One quantity. ``largest``: the largest difference, over those that both have a number for."""

    where: str  # theta, scores or flags
    what: str
    compared: int
    different: int
    largest: float
    example: str  # the worst one, with both values; empty when all are equal

    @property
    def equal(self) -> bool:
        return self.different == 0


def compare_pairs(where: str, stored: pd.DataFrame, made: pd.DataFrame) -> Iterator[Comparison]:
    """Frames with a row per pair: which pairs are in them, then every column that both have."""
    stored, made = _keyed(stored), _keyed(made)
    both = stored.index.intersection(made.index)
    only = [*stored.index.difference(made.index), *made.index.difference(stored.index)]
    example = ""
    if only:
        side = "stored only" if only[0] in stored.index else "replayed only"
        example = f"{' '.join(only[0])}: {side}"
    yield Comparison(where, "pairs", len(stored), len(only), float(len(only)), example)
    stored, made = stored.loc[both], made.loc[both]

    def names(k: int) -> str:
        return " ".join(both[k])

    for column in NUMBERS:
        if column in stored and column in made:
            yield compare_numbers(where, column, stored[column], made[column], names)
    for column in (*TEXTS, "flagged", "random_check"):
        if column in stored and column in made:
            yield compare_texts(where, column, stored[column], made[column], names)


def compare_fits(stored: pd.DataFrame, made: pd.DataFrame) -> Iterator[Comparison]:
    """Frames with a row per segment."""
    stored, made = stored.set_index("segment"), made.set_index("segment")
    both = stored.index.intersection(made.index)
    other = stored.index.symmetric_difference(made.index)
    example = f"segment {other[0]}" if len(other) else ""
    yield Comparison("theta", "segments", len(stored), len(other), float(len(other)), example)

    def names(k: int) -> str:
        return f"segment {both[k]}"

    for column in THETA:
        yield compare_numbers("theta", column, stored.loc[both, column], made.loc[both, column], names)
    for column in FIT_TEXTS:
        yield compare_texts("theta", column, stored.loc[both, column], made.loc[both, column], names)


def compare_numbers(where: str, what: str, stored: Any, made: Any, name_of: Name) -> Comparison:
    """Equal to 1e-9, absolute below one and relative above; absent equals absent."""
    a = np.asarray(pd.to_numeric(stored).astype("float64"), dtype=np.float64)
    b = np.asarray(pd.to_numeric(made).astype("float64"), dtype=np.float64)
    absent = np.isnan(a) | np.isnan(b)
    gap = np.abs(np.where(absent, 0.0, a) - np.where(absent, 0.0, b))
    scale = np.maximum(1.0, np.maximum(np.abs(np.nan_to_num(a)), np.abs(np.nan_to_num(b))))
    wrong = (gap > TOLERANCE * scale) | (np.isnan(a) != np.isnan(b))
    example = ""
    if wrong.any():
        worst = int(np.argmax(np.where(wrong, np.where(absent, np.inf, gap), -1.0)))
        example = f"{name_of(worst)}: {a[worst]:.12g} stored, {b[worst]:.12g} replayed"
    return Comparison(where, what, a.size, int(wrong.sum()), float(gap.max(initial=0.0)), example)


def compare_texts(where: str, what: str, stored: Any, made: Any, name_of: Name) -> Comparison:
    a, b = (_texts(values) for values in (stored, made))
    wrong = np.asarray(a != b, dtype=bool)
    example = ""
    if wrong.any():
        first = int(np.argmax(wrong))
        example = f"{name_of(first)}: {a[first]} stored, {b[first]} replayed"
    return Comparison(where, what, a.size, int(wrong.sum()), float(wrong.any()), example)


def _texts(values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Absent is an empty text, however a column says so."""
    column = pd.Series(values).astype("object")
    return np.asarray(column.where(column.notna(), "").map(str), dtype=object)


def _keyed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**{name: frame[name].astype("str") for name in KEY}).set_index(KEY).sort_index()
