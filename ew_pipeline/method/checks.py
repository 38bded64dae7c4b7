"""Refusals of SalesMatrix: each names the first offenders, their count, and what to do.

Validation rejects and never repairs: a clipped negative or a rounded fraction would delete the very
thing the detector looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ew_pipeline.core.errors import NAMED_OFFENDERS, DataError, UsageError, name_some

MAX_COUNT = int(np.iinfo(np.int32).max)
Naming = Callable[[int], str]
"""From the position of an offender in the array under test to the words that identify it."""


def whole_counts(values: ArrayLike, naming: Naming) -> NDArray[np.int32]:
    """``values`` as int32, or a DataError if any is not a whole number in [0, 2**31 - 1]."""
    raw = np.asarray(values)
    if raw.dtype.kind == "O":
        raw = _numbers(raw)
    if raw.dtype.kind not in "iuf":
        raise DataError(
            f"counts have type {raw.dtype}; they must be numbers.", "pass units sold, as integers."
        )
    kinds = _wrong_counts(raw)
    if kinds:
        wrong = np.logical_or.reduce([mask for _, mask in kinds])
        total = int(np.count_nonzero(wrong))
        by_kind = ", ".join(f"{np.count_nonzero(mask)} {kind}" for kind, mask in kinds)
        first = (f"{naming(int(e))} = {raw[e]}" for e in np.flatnonzero(wrong)[:NAMED_OFFENDERS])
        raise DataError(
            f"{total} of {raw.size} observed counts cannot be used ({by_kind}): {name_some(first, total)}.",
            "counts are whole numbers from 0 to 2147483647; correct these entries, or leave a pair that "
            "was not ranged or not reported out of the observed set.",
        )
    return raw.astype(np.int32)


def _numbers(raw: NDArray[Any]) -> NDArray[np.float64]:
    # Nullable integer columns arrive as objects with None or a missing-value marker inside.
    missing = np.fromiter((is_missing(value) for value in raw), dtype=bool, count=raw.size)
    numbers = np.full(raw.size, np.nan)
    try:
        numbers[~missing] = raw[~missing].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"counts must be numbers: {error}.", "pass units sold, as integers.") from error
    return numbers


def _wrong_counts(raw: NDArray[Any]) -> list[tuple[str, NDArray[np.bool_]]]:
    if raw.size == 0:
        return []
    low, high = raw.min(), raw.max()  # NaN propagates, so one pass each settles the usual case
    if raw.dtype.kind in "iu":
        if low >= 0 and high <= MAX_COUNT:
            return []
        kinds = [("negative", raw < 0), (f"above {MAX_COUNT}", raw > MAX_COUNT)]
    else:
        if low >= 0 and high <= MAX_COUNT and np.array_equal(raw, np.rint(raw)):
            return []
        finite = np.isfinite(raw)
        kinds = [
            ("NaN", np.isnan(raw)),
            ("infinite", np.isinf(raw)),
            ("negative", finite & (raw < 0)),
            ("fractional", finite & (raw >= 0) & (raw != np.rint(raw))),
            (f"above {MAX_COUNT}", finite & (raw > MAX_COUNT) & (raw == np.rint(raw))),
        ]
    return [(kind, mask) for kind, mask in kinds if mask.any()]


def positions(values: ArrayLike, size: int, axis: str) -> NDArray[np.integer[Any]]:
    """``values`` as whole positions below ``size``, in their own type, or a DataError."""
    raw = np.asarray(values)
    if raw.ndim != 1:
        raise DataError(f"{axis} positions have {raw.ndim} dimensions; they must have 1.")
    if raw.dtype.kind not in "iu" and raw.size > 0:
        raise DataError(f"{axis} positions have type {raw.dtype}.", "pass integers counted from 0.")
    if raw.size > 0 and (raw.min() < 0 or raw.max() >= size):
        wrong = np.flatnonzero((raw < 0) | (raw >= size))
        first = (f"entry {e} has {axis} {raw[e]}" for e in wrong[:NAMED_OFFENDERS])
        raise DataError(
            f"{wrong.size} {axis} positions lie outside 0..{size - 1}: {name_some(first, wrong.size)}.",
            "pass the shape that covers every entry.",
        )
    return raw if raw.size > 0 else raw.astype(np.int64)


def matrix_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """``shape`` as two Python ints >= 1 that int32 can index."""
    try:
        n, m = (int(size) for size in shape)
    except (TypeError, ValueError) as error:
        raise UsageError(f"shape is {shape!r}; it must be (stores, SKUs).") from error
    if n < 1 or m < 1:
        raise DataError(f"the matrix is {n} x {m}: empty.", "pass at least one store and one SKU.")
    if max(n, m) > MAX_COUNT:
        raise DataError(f"the matrix is {n} x {m}: more than {MAX_COUNT} on one axis.", "split it by region.")
    return n, m


def id_array(ids: Sequence[object] | NDArray[Any] | None, size: int, axis: str) -> NDArray[np.str_]:
    """``ids`` as text, one per position, distinct; the position itself when None."""
    if ids is None:
        return np.array([str(k) for k in range(size)], dtype=np.str_)  # no wider than needed
    raw = np.asarray(ids)
    if raw.ndim != 1 or raw.size != size:
        raise DataError(
            f"{raw.size} {axis} ids were given for {size} {axis}s.", f"pass one id for each {axis}, in order."
        )
    is_text = raw.dtype.kind == "U" and (raw != "").all()  # such as the ids of a part of another matrix
    text = raw if is_text else _converted(raw, axis)
    values, first_at, times = np.unique(text, return_index=True, return_counts=True)
    if values.size < size:
        repeated = np.flatnonzero(times > 1)
        repeated = repeated[np.argsort(first_at[repeated])]
        first = (f"{values[k]!s} ({times[k]} times)" for k in repeated[:NAMED_OFFENDERS])
        raise DataError(
            f"{repeated.size} {axis} ids are repeated: {name_some(first, repeated.size)}.",
            f"give every {axis} its own id.",
        )
    return text


def _converted(raw: NDArray[Any], axis: str) -> NDArray[np.str_]:
    # Not numpy's own idea of text: it would turn None and NaN into the ids "None" and "nan".
    named = [id_text(value) for value in raw.tolist()]
    wrong = [k for k, name in enumerate(named) if name is None]
    if wrong:
        first = (f"position {k} has {raw[k]!r}" for k in wrong)
        raise DataError(
            f"{len(wrong)} {axis} ids cannot be used: {name_some(first, len(wrong))}.",
            f"{axis} ids are text or integers, none missing.",
        )
    return np.array(named, dtype=np.str_)


def id_text(value: object) -> str | None:
    """One id as text, or None if it cannot be one.

    Only text and integers can: a float id is an integer column that once had gaps, and "17.0" would
    not match "17" anywhere else.
    """
    if isinstance(value, str):
        return value or None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    return None


def is_missing(value: object) -> bool:
    """None, NaN, or a data frame library's own marker (known by name: none of them is imported)."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
    )


def refuse_duplicates(keys: NDArray[np.int64], naming: Naming) -> None:
    """Raise a DataError that names the cells occurring more than once in ``keys``.

    Called only once a duplicate is known to exist, so its sort costs nothing in the usual case.
    """
    _, first_at, times = np.unique(keys, return_index=True, return_counts=True)
    repeated = np.flatnonzero(times > 1)
    repeated = repeated[np.argsort(first_at[repeated])]
    first = (f"{naming(int(first_at[k]))} ({times[k]} times)" for k in repeated[:NAMED_OFFENDERS])
    raise DataError(
        f"{repeated.size} pairs occur more than once: {name_some(first, repeated.size)}.",
        "one week has one count per pair; add up or drop the repeated rows, or select a single week.",
    )
