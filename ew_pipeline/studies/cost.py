"""What a set of flags costs when the truth is known (section 2.1), and its regret against the ideal.

Flagging a healthy pair costs ``cost_false_alarm`` (c0), missing an anomaly costs ``cost_missed`` (c1). We
follow Eq. (cost-pi-pre) of section 3; the formula for c_ij in section 2.1 has the two swapped.

All arrays run over the same pairs. ``healthy_probability`` is the true f* = P(no anomaly | X): conditioned
on the sales, so that the cost of a policy carries no noise from the realised anomalies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import UsageError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Cost = float | FloatArray


def expected_cost(
    flags: BoolArray, healthy_probability: FloatArray, cost_false_alarm: Cost, cost_missed: Cost
) -> float:
    """Mean expected cost per observed pair: c0 f* where flagged, c1 (1 - f*) where not."""
    flags = np.asarray(flags)
    if flags.dtype != np.bool_ or flags.shape != np.shape(healthy_probability) or flags.size == 0:
        raise UsageError(
            f"flags must be a boolean array with one value for each of the"
            f" {np.size(healthy_probability)} pairs, not {flags.dtype} of shape {flags.shape}",
            next_step="pass the flags of the observed entries in row-major order",
        )
    f = healthy_probability
    return float(np.mean(np.where(flags, cost_false_alarm * f, cost_missed * (1 - f))))


def ideal_flags(healthy_probability: FloatArray, cost_false_alarm: Cost, cost_missed: Cost) -> BoolArray:
    """The policy pi*: flag iff c1/(c0 + c1) >= f* (Eq. (decision-rule), section 3.1).

    Written f* c0 <= (1 - f*) c1, which also answers when both costs are zero.
    """
    f = healthy_probability
    return np.asarray(f * cost_false_alarm <= (1 - f) * cost_missed, dtype=np.bool_)


def regret(
    flags: BoolArray, healthy_probability: FloatArray, cost_false_alarm: Cost, cost_missed: Cost
) -> float:
    """Expected cost above that of the ideal policy: cost(pi) - cost(pi*), as in Table 1."""
    ideal = ideal_flags(healthy_probability, cost_false_alarm, cost_missed)
    return expected_cost(flags, healthy_probability, cost_false_alarm, cost_missed) - expected_cost(
        ideal, healthy_probability, cost_false_alarm, cost_missed
    )
