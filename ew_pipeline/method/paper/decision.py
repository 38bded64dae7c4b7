"""Step 4: which pairs to flag (Eq. (decision-rule), section 3.1), and which when checks are scarce.

Everything here reads ``healthy_probability`` = f = P(no anomaly | sales): **lower is more suspicious**. All
arrays run over the observed entries in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Bool, Float, Int64
from ew_pipeline.core.errors import NAMED_OFFENDERS, DataError, UsageError, name_some
from ew_pipeline.method.costs import Costs


@dataclass(frozen=True, eq=False)
class CappedDecision:
    """The best flags when each store can walk to a limited number of shelves.

    Attributes
    ----------
    flags : True where the pair is to be checked.
    value_of_one_more : per store, the expected saving that one check above the cap would add; 0 where the
        cap does not bind.
    expected_saving_total : summed over the flagged pairs, against flagging nothing.
    """

    flags: Bool
    value_of_one_more: Float
    expected_saving_total: float


def flag_by_cost(healthy_probability: ArrayLike, costs: Costs) -> Bool:
    """Flag iff c1 / (c0 + c1) >= f, written f c0 <= (1 - f) c1 so that no division can fail.

    A tie is flagged, as in the paper. We deviate where c1 = 0: the paper's rule would flag a certain anomaly
    (f = 0), and every pair when c0 is 0 too, to save nothing; such a pair is never flagged.
    """
    f = checked_probability(healthy_probability)
    c0, c1 = costs.broadcast(f.size)
    return _frozen((f * c0 <= (1 - f) * c1) & (c1 > 0))


def expected_saving(healthy_probability: ArrayLike, costs: Costs) -> Float:
    """(1 - f) c1 - f c0: what flagging the pair saves on average against leaving it alone.

    The coefficient of P(A = 0 | X) in the cost as section 3.1 rewrites it: c1 - (c0 + c1) f.
    """
    f = checked_probability(healthy_probability)
    c0, c1 = costs.broadcast(f.size)
    saving = (1 - f) * c1 - f * c0
    saving.setflags(write=False)
    return saving


def flag_with_cap(
    healthy_probability: ArrayLike,
    costs: Costs,
    groups: ArrayLike,
    cap: int | ArrayLike,
    *,
    n_groups: int | None = None,
) -> CappedDecision:
    """Maximise the total expected saving with at most ``cap`` flags per store.

    The stores do not interact, so the best choice is each store's largest positive savings, up to its cap.
    Equal savings go to the more likely anomaly, then to the earlier entry. A pair that saves exactly
    nothing is not flagged: unlike a tie in `flag_by_cost`, it would take up a check.

    Parameters
    ----------
    groups : the store of each entry, counted from 0.
    cap : checks per store, one number for all stores or one per store.
    n_groups : how many stores there are; by default the length of ``cap`` or the highest store seen. Pass
        it when the last stores may have no observed entry.
    """
    f = checked_probability(healthy_probability)
    limits, store = _caps_and_stores(cap, groups, f.size, n_groups)
    saving = expected_saving(f, costs)

    flags = saving > 0
    wanted = np.bincount(store[flags], minlength=limits.size)
    binds = wanted > limits
    value = np.zeros(limits.size)
    if binds.any():
        # Only stores that want more than they can have need sorting.
        rival = np.flatnonzero(flags & binds[store])
        order = np.lexsort((f[rival], -saving[rival], store[rival]))  # stable: entry order settles the rest
        rival = rival[order]
        held = np.where(binds, wanted, 0)
        first = np.cumsum(held) - held
        place = np.arange(rival.size) - np.repeat(first, held)
        flags[rival[place >= np.repeat(limits, held)]] = False
        value[binds] = saving[rival[first[binds] + limits[binds]]]
    value.setflags(write=False)
    return CappedDecision(_frozen(flags), value, float(saving[flags].sum()))


def checked_probability(values: ArrayLike, name: str = "healthy_probability") -> Float:
    """``values`` as a 1-D float array in [0, 1], or an error that names the entries outside."""
    p = np.asarray(values, dtype=np.float64)
    if p.ndim != 1:
        raise UsageError(
            f"{name} has shape {p.shape}; it must be 1-D.", "pass the observed entries in row-major order."
        )
    if p.size and not (p.min() >= 0 and p.max() <= 1):  # False for NaN as well
        wrong = np.flatnonzero(~((p >= 0) & (p <= 1)))
        named = name_some((f"entry {e} = {p[e]}" for e in wrong[:NAMED_OFFENDERS]), wrong.size)
        raise DataError(
            f"{wrong.size} of {p.size} values of {name} lie outside [0, 1]: {named}.",
            "pass probabilities; a score of another scale cannot be priced.",
        )
    return p


def _caps_and_stores(
    cap: int | ArrayLike, groups: ArrayLike, n_entries: int, n_groups: int | None
) -> tuple[Int64, Int64]:
    store, limits = np.asarray(groups), np.asarray(cap)
    if store.shape != (n_entries,) or (store.dtype.kind not in "iu" and n_entries):
        raise UsageError(
            f"groups is {store.dtype} of shape {store.shape}; it must hold the store of each of"
            f" {n_entries} entries.",
            "pass the row of each observed entry (SalesMatrix.rows).",
        )
    if limits.ndim > 1 or limits.dtype.kind not in "iu" or (limits < 0).any():
        raise UsageError(f"cap is {cap!r}; it must be whole and not negative.", "pass checks per store.")
    seen = int(store.max()) + 1 if n_entries else 0
    size = n_groups if n_groups is not None else (limits.size if limits.ndim else seen)
    if seen > size or (n_entries and store.min() < 0) or (limits.ndim and limits.size != size):
        raise UsageError(
            f"stores run from {store.min() if n_entries else 0} to {seen - 1} for {size} stores and "
            f"{limits.size} cap{'s' if limits.size != 1 else ''}.",
            "count stores from 0 and pass one cap for all, or one per store.",
        )
    return np.broadcast_to(limits, (size,)).astype(np.int64), store.astype(np.int64, copy=False)


def _frozen(flags: Bool) -> Bool:
    flags.setflags(write=False)
    return flags
