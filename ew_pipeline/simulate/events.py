"""What goes wrong and what is found: phantom-inventory events and store checks, one week at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.simulate.population import BoolArray, IntArray
from ew_pipeline.simulate.settings import FloatArray

DAYS = 7
LEVEL_WEIGHT = 0.3  # of the newest week in the trailing level
FLAG_FRACTION = 0.5
OUTCOMES = ("confirmed", "healthy", "not_checked")
CONFIRMED, HEALTHY, NOT_CHECKED = range(3)
SOURCES = ("flag", "random")


@dataclass(frozen=True, eq=False)
class Phantoms:
    """Per ranged pair: is an event active, and what share of its sales it takes."""

    active: BoolArray
    loss: FloatArray

    @classmethod
    def none(cls, pairs: int) -> Phantoms:
        return cls(np.zeros(pairs, dtype=np.bool_), np.zeros(pairs))


def step_phantoms(
    before: Phantoms,
    on_sale: IntArray,
    *,
    first_week: bool,
    target_share: float,
    depth: float,
    mean_weeks: float,
    rng: np.random.Generator,
) -> tuple[Phantoms, FloatArray]:
    """One week on: some events are repaired overnight, others start on a random day.

    The start probability makes the expected share of active pairs ``target_share``. Returns the new state
    and, for the pairs ``on_sale``, the share of the week's sales that is left.
    """
    repaired_draw, start_draw, day_draw = rng.random((3, on_sale.size))
    stays = before.active[on_sale] & (repaired_draw >= 1 / mean_weeks)
    room = stays.size - int(stays.sum())
    start_probability = max(0.0, target_share * stays.size - (stays.size - room)) / max(room, 1)
    starts = ~stays & (start_draw < start_probability)

    loss = before.loss[on_sale]
    loss[starts] = _draw_losses(depth, int(starts.sum()), rng)
    affected = stays.astype(np.float64)
    # Events of the first week are taken to be under way already: the chain is older than our data.
    affected[starts] = 1.0 if first_week else (DAYS - np.floor(DAYS * day_draw[starts])) / DAYS
    active = stays | starts
    after = Phantoms(np.zeros_like(before.active), before.loss.copy())
    after.active[on_sale] = active
    after.loss[on_sale] = loss
    return after, 1 - affected * loss


def repair(phantoms: Phantoms, pairs: IntArray) -> Phantoms:
    """The records of these pairs are put right."""
    active = phantoms.active.copy()
    active[pairs] = False
    return Phantoms(active, phantoms.loss)


def _draw_losses(depth: float, count: int, rng: np.random.Generator) -> FloatArray:
    """Beta(depth, 1 - depth): mean depth, mass near 0 and 1; a constant at both ends."""
    if depth in (0.0, 1.0):
        return np.full(count, depth)
    return rng.beta(depth, 1 - depth, size=count)


@dataclass(frozen=True, eq=False)
class Checks:
    """The checks of one week: position of the pair, codes of outcome and source, and who (0-based)."""

    pair: IntArray
    outcome: IntArray
    source: IntArray
    clerk: IntArray


def draw_checks(
    pair: IntArray,
    store: IntArray,
    units: IntArray,
    level: FloatArray,
    active: BoolArray,
    *,
    flags_per_store: int,
    random_per_store: int,
    skipped_share: float,
    rng: np.random.Generator,
) -> Checks:
    """Checks among the reported pairs of a week (arrays of equal length).

    Flags follow what a retailer does today: units at most half of the trailing level, the least
    against the level first, among the zeros the highest level.
    A check that is made finds the truth.
    """
    luck = rng.random(pair.size)
    suspect = np.flatnonzero((level >= 1) & (units <= FLAG_FRACTION * level))
    share_of_level = units[suspect] / level[suspect]
    flagged = suspect[_first_of_each(store[suspect], (share_of_level, -level[suspect]), flags_per_store)]
    rest = np.setdiff1d(np.arange(pair.size), flagged, assume_unique=True)
    audited = rest[_first_of_each(store[rest], (luck[rest],), random_per_store)]
    chosen = np.concatenate([flagged, audited])
    source = np.repeat([0, 1], [flagged.size, audited.size])
    outcome = np.where(active[chosen], CONFIRMED, HEALTHY)
    outcome[(source == 0) & (rng.random(chosen.size) < skipped_share)] = NOT_CHECKED
    clerk = rng.integers(0, 5, size=chosen.size)
    order = np.argsort(pair[chosen])
    return Checks(pair[chosen][order], outcome[order], source[order], clerk[order])


def _first_of_each(group: IntArray, keys: tuple[FloatArray, ...], count: int) -> IntArray:
    """Positions of the first ``count`` of every group, ordered by the keys (the first one leads)."""
    order = np.lexsort((*reversed(keys), group))
    grouped = group[order]
    first = np.searchsorted(grouped, grouped, side="left")
    return order[np.arange(order.size) - first < count]


def update_level(level: FloatArray, units: IntArray) -> FloatArray:
    """Trailing level after one more week; it begins with the first week seen (before: NaN)."""
    return np.where(np.isnan(level), units, level + LEVEL_WEIGHT * (units - level))
