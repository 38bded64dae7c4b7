"""Reading columns out of a long table, whoever made it.

A frame is anything that answers ``frame["units"]`` with a column: pandas, polars, pyarrow, or a dict
of arrays. None of them is imported here, so the algorithm runs without them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.errors import NAMED_OFFENDERS, DataError, name_some
from ew_pipeline.method.checks import id_text, is_missing


class Frame(Protocol):
    """What from_long needs of a table."""

    def __getitem__(self, name: str, /) -> Any: ...


def column_names(frame: Frame) -> list[str]:
    """The names of the columns, in the frame's order."""
    for attribute in ("column_names", "columns", "keys"):  # pyarrow; pandas and polars; dict
        names = getattr(frame, attribute, None)
        if names is not None:
            return [str(name) for name in (names() if callable(names) else names)]
    raise DataError(f"a {type(frame).__name__} is not a table.", "pass a data frame or a dict of columns.")


def required_columns(frame: Frame, names: Iterable[str]) -> None:
    """Raise a DataError naming the columns that are missing."""
    present = column_names(frame)
    missing = [name for name in names if name not in present]
    if missing:
        raise DataError(
            f"the sales table has no column {name_some(missing, len(missing))}; it has "
            f"{name_some(present, len(present))}.",
            "rename its columns to store_id, sku_id, units and, for several weeks, week.",
        )


def as_array(column: Any) -> NDArray[Any]:
    """A column of any kind as an array."""
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def take(column: Any, rows: NDArray[np.int64] | None) -> Any:
    """The given rows of a column, by position; the whole column for None."""
    if rows is None:
        return column
    return column.take(rows) if hasattr(column, "take") else as_array(column)[rows]


def id_codes(column: Any, axis: str) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    """The distinct ids as sorted text, and for each row the position of its id among them."""
    keys, numbers = _distinct(column)
    wrong_keys = [k for k, key in enumerate(keys) if id_text(key) is None]
    if wrong_keys:
        wrong = np.flatnonzero(np.isin(numbers, wrong_keys))
        first = (f"row {e} has {keys[numbers[e]]!r}" for e in wrong[:NAMED_OFFENDERS])
        raise DataError(
            f"{wrong.size} rows have no usable {axis} id: {name_some(first, wrong.size)}.",
            f"{axis} ids are text or integers, none missing; read the column as text.",
        )
    return _as_sorted_text([str(id_text(key)) for key in keys], numbers)


def week_rows(frame: Frame, week: str | None) -> tuple[NDArray[np.int64] | None, str | None]:
    """Which rows belong to ``week`` (None: all), and the label of the week they are in."""
    if "week" not in column_names(frame):
        return None, week
    labels, numbers = _week_codes(frame["week"])
    named = name_some(labels, labels.size)
    if week is None:
        if labels.size > 1:
            raise DataError(
                f"the table holds {labels.size} weeks: {named}.",
                f'choose one: SalesMatrix.from_long(frame, week="{labels[-1]}").',
            )
        return None, str(labels[0]) if labels.size else None
    if week not in labels:
        raise DataError(
            f"no row is of week {week}; the weeks in the table are: {named or 'none'}.",
            "pass a week written as in the table.",
        )
    return np.flatnonzero(numbers == np.searchsorted(labels, week)), week


def _week_codes(column: Any) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    keys, numbers = _distinct(column)
    missing = [k for k, key in enumerate(keys) if is_missing(key) or key == ""]
    if missing:
        wrong = np.flatnonzero(np.isin(numbers, missing))
        first = (f"row {e}" for e in wrong[:NAMED_OFFENDERS])
        raise DataError(
            f"{wrong.size} rows have no week: {name_some(first, wrong.size)}.",
            "fill in the week of every row.",
        )
    # A date column gives time stamps in some libraries and dates in others: the same text for both.
    text = [key.date().isoformat() if isinstance(key, datetime) else str(key) for key in keys]
    return _as_sorted_text(text, numbers)


def _as_sorted_text(
    text: list[str], numbers: NDArray[np.int64]
) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
    distinct, position = np.unique(np.array(text, dtype=np.str_), return_inverse=True)
    return distinct, position.astype(np.int64)[numbers]


def _distinct(column: Any) -> tuple[list[Any], NDArray[np.int64]]:
    """The distinct values, in any order, and for each row the position of its value among them.

    np.unique would sort, and 1e7 strings sort slowly. A frame's own hash table is used where there is
    one; integers of a narrow range index a table; other values go through a dict.
    """
    if hasattr(column, "factorize"):
        numbers, keys = column.factorize(use_na_sentinel=False)
        return list(keys), np.asarray(numbers, dtype=np.int64)
    values = as_array(column)
    if values.ndim != 1:
        raise DataError(f"a column of the table has {values.ndim} dimensions; it must have 1.")
    if values.dtype.kind == "M":
        values = values.astype("datetime64[D]")
    if values.dtype.kind in "iu" and values.size:
        low, high = int(values.min()), int(values.max())
        if high - low <= 2 * values.size:
            present = np.zeros(high - low + 1, dtype=bool)
            present[values - low] = True
            return (np.flatnonzero(present) + low).tolist(), (np.cumsum(present) - 1)[values - low]
    rows = values.tolist()
    positions = {key: k for k, key in enumerate(dict.fromkeys(rows))}
    return list(positions), np.fromiter(map(positions.__getitem__, rows), dtype=np.int64, count=len(rows))
