"""What a wrong decision costs (section 2.1), as the two numbers the decision rule needs.

``false_alarm`` (c0) is paid for flagging a healthy pair: the walk to the shelf that finds nothing.
``missed`` (c1) is paid for leaving an anomaly alone: the sales it goes on losing, less the walk it would
have taken. We follow Eq. (cost-pi-pre) of section 3.1; the formula for c_ij in section 2.1 swaps the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Float, Int64
from ew_pipeline.core.errors import NAMED_OFFENDERS, DataError, UsageError, name_some


@dataclass(frozen=True, eq=False, init=False)
class Costs:
    """The cost of a false alarm and of a missed anomaly, for all pairs or for each.

    Parameters
    ----------
    false_alarm, missed : a number for all pairs, or an array over the observed entries in row-major
        order. Non-negative and finite; arrays are copied and read-only.

    Examples
    --------
    >>> Costs(false_alarm=1.0, missed=3.0).threshold
    0.75
    """

    false_alarm: float | Float
    missed: float | Float

    def __init__(self, false_alarm: ArrayLike, missed: ArrayLike) -> None:
        c0, c1 = _numbers(false_alarm, "false_alarm"), _numbers(missed, "missed")
        _refuse(c0, "false_alarm costs", "pass what a needless check costs, zero or more")
        _refuse(c1, "missed costs", "pass what leaving an anomaly alone costs, zero or more")
        _same_length({"false_alarm": c0, "missed": c1})
        object.__setattr__(self, "false_alarm", _frozen(c0))
        object.__setattr__(self, "missed", _frozen(c1))

    @classmethod
    def from_four(
        cls,
        *,
        flagged_healthy: ArrayLike,
        ignored_healthy: ArrayLike,
        ignored_anomalous: ArrayLike,
        flagged_anomalous: ArrayLike,
    ) -> Costs:
        """Reduce the general cost model (appendix "General cost model") to two costs.

        With the first index for flagged and the second for anomalous, c0 = c10 - c00 and c1 = c01 - c11.
        The four may be rewards (negative); the two differences may not.
        """
        four = {
            "flagged_healthy": _numbers(flagged_healthy, "flagged_healthy"),
            "ignored_healthy": _numbers(ignored_healthy, "ignored_healthy"),
            "ignored_anomalous": _numbers(ignored_anomalous, "ignored_anomalous"),
            "flagged_anomalous": _numbers(flagged_anomalous, "flagged_anomalous"),
        }
        _same_length(four)
        for name, value in four.items():
            _refuse(value, f"{name} costs", "pass finite numbers", signed=True)
        c10, c00, c01, c11 = four.values()
        c0, c1 = c10 - c00, c01 - c11
        _refuse(
            c0,
            "differences flagged_healthy - ignored_healthy",
            "negative means that flagging a healthy pair pays better than leaving it alone, which needs no "
            "detector. Correct the costs, or take those pairs out and always check them",
        )
        _refuse(
            c1,
            "differences ignored_anomalous - flagged_anomalous",
            "negative means that an anomaly is better left alone than found, which needs no detector. "
            "Correct the costs, or take those pairs out and never check them",
        )
        return cls(c0, c1)

    @property
    def threshold(self) -> float | Float:
        """c1 / (c0 + c1): a pair is flagged when its healthy probability is at most this.

        Zero means "never flag", and is also the answer to 0 / 0: where missing an anomaly costs nothing, no
        check can pay for itself.
        """
        # Halved before adding: two costs near the largest float would overflow.
        half_missed = np.asarray(self.missed) / 2
        half_sum = np.asarray(self.false_alarm) / 2 + half_missed
        share = np.divide(half_missed, half_sum, out=np.zeros_like(half_sum), where=half_sum > 0)
        return _frozen(share)

    def broadcast(self, n: int) -> tuple[Float, Float]:
        """(c0, c1) as read-only arrays of ``n`` entries; a number is repeated without using memory."""
        for name, value in (("false_alarm", self.false_alarm), ("missed", self.missed)):
            if np.ndim(value) == 1 and np.size(value) != n:
                raise UsageError(
                    f"{name} has {np.size(value)} costs for {n} observed entries.",
                    "pass one number for all, or one per observed entry in row-major order.",
                )
        return np.broadcast_to(self.false_alarm, (n,)), np.broadcast_to(self.missed, (n,))

    def of(self, entries: slice | Int64) -> Costs:
        """The costs of some entries."""
        c0, c1 = (value if np.ndim(value) == 0 else np.asarray(value)[entries]
                  for value in (self.false_alarm, self.missed))  # fmt: skip
        return Costs(c0, c1)


def _numbers(values: ArrayLike, name: str) -> Float:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be a number or an array of numbers: {error}.") from error
    if numbers.ndim > 1:
        raise UsageError(
            f"{name} has shape {numbers.shape}; costs run over the observed entries.",
            "pass one number, or a 1-D array in row-major order of the observed entries.",
        )
    return numbers


def _same_length(arrays: dict[str, Float]) -> None:
    sizes = {name: array.size for name, array in arrays.items() if array.ndim == 1}
    if len(set(sizes.values())) > 1:
        lengths = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise UsageError(f"costs differ in length: {lengths}.", "pass one cost per observed entry in each.")


def _refuse(values: Float, what: str, next_step: str, *, signed: bool = False) -> None:
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)  # NaN propagates through both
    if np.isfinite(low) and np.isfinite(high) and (signed or low >= 0):
        return
    flat = values.ravel()
    wrong = np.flatnonzero(~np.isfinite(flat) | ((flat < 0) & (not signed)))
    must = f"{what} must be {'finite' if signed else 'finite and not negative'}"
    if values.ndim == 0:  # a wrong number is a wrong argument; a wrong array came out of a table
        raise UsageError(f"{must}; got {flat[0]}.", f"{next_step}.")
    named = name_some((f"entry {e} = {flat[e]}" for e in wrong[:NAMED_OFFENDERS]), wrong.size)
    raise DataError(f"{must}; {wrong.size} of {flat.size} are not: {named}.", f"{next_step}.")


def _frozen(values: Float) -> float | Float:
    if values.ndim == 0:
        return float(values)
    values.setflags(write=False)
    return values
