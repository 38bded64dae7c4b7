"""Level and belief of every pair in one forward pass over the weeks, and what is believed of the newest.

Every pair is healthy, or wrong with a share of its sales lost, until somebody repairs the record. A level is
drifting, and is taught by a week as far as the pair is believed healthy in it, so that it neither follows a
wrong record down nor is frozen by it. Factors of SKUs and stores in the week keep weather and seasons out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc

from ew_pipeline.core.arrays import Bool, Float, Float32, Int64
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.infer.kernels import (
    LEAST_LEVEL,
    Cells,
    Found,
    Grid,
    Law,
    State,
    fit_factors,
    move_week,
    skip_week,
    weigh_week,
)
from ew_pipeline.intake.panel import Panel

LOSSES = (0.45, 0.6, 0.75, 0.85, 0.93, 0.98, 0.998)  # deep ones only: level changes look like small losses
SHARES = (1.0, 0.6, 0.25)  # of the first wrong week; the whole week first, as ``kernels.Grid`` has it
MOST_FIRST = 0.5


@dataclass(frozen=True)
class StateParameters:
    """One set for the chain.

    Attributes
    ----------
    onset : h, the probability that a right record goes wrong within a week.
    stay : r, the probability that a wrong one is still wrong a week later.
    depth, concentration : of the Beta law of the share of sales lost, between the least loss and all.
    size : s0 of the negative binomial noise.
    shock, wide : e, the share of weeks with a shock of their own, and the size of the noise in them.
    forgetting : share of a level's weight that a week leaves.
    start : units that the first guess of a new pair's level is worth.
    strength : K, expected onsets that the chain's rate is worth against a SKU's own; infinite: all alike.
    """

    onset: float
    stay: float = 0.75
    depth: float = 0.8
    concentration: float = 2.0
    size: float = 5.0
    shock: float = 0.02
    wide: float = 1.0
    forgetting: float = 0.95
    start: float = 3.0
    strength: float = float("inf")

    def __post_init__(self) -> None:
        shares = (self.onset, self.stay, self.depth, self.shock, self.forgetting)
        if not all(0.0 <= share < 1.0 for share in shares):
            raise UsageError(f"a parameter of the state is no share: {self}.")
        if not min(self.size, self.wide, self.concentration, self.start, self.strength) > 0.0:
            raise UsageError(f"a size or strength of the state is not above 0: {self}.")

    @property
    def share_wrong(self) -> float:
        """p_A, the share of records that are wrong once onsets and repairs are in balance."""
        return self.onset / (self.onset + 1.0 - self.stay)

    @property
    def alpha(self) -> float:
        """The mean share of its sales that a wrong record leaves."""
        return float(1.0 - self.weights @ np.array(LOSSES))

    @property
    def weights(self) -> Float:
        """Probabilities of the losses."""
        losses = np.array(LOSSES)
        middle = (losses[1:] + losses[:-1]) / 2.0
        ends = np.concatenate([[0.0], (middle - LOSSES[0]) / (1.0 - LOSSES[0]), [1.0]])
        a = max(self.depth, 1e-3) * self.concentration
        return np.diff(betainc(a, (1.0 - self.depth) * self.concentration, ends))

    def law(self) -> Law:
        """The scalars as kernels take them."""
        return Law(
            onset=self.onset,
            stay=self.stay,
            first=min(self.onset / (1.0 - self.stay), MOST_FIRST),
            inverse_size=1.0 / self.size,
            inverse_wide=1.0 / self.wide,
            shock=self.shock,
            forgetting=self.forgetting,
            size=self.size,
            start=self.start,
        )


def make_grid(
    losses: tuple[float, ...], weights: Float, threshold: float = 0.0, shares: tuple[float, ...] = SHARES
) -> Grid:
    """The losses by the share of the week that they take; a deep one is ``threshold`` or more of the week."""
    lost = np.outer(shares, losses).ravel()
    kept = 1.0 - lost
    deep = (lost >= threshold).astype(np.float64)
    return Grid(np.ascontiguousarray(weights, dtype=np.float64), kept, np.log(kept), deep)


def grid_of(parameters: StateParameters, threshold: float = 0.0) -> Grid:
    """The grid of a chain's parameters."""
    return make_grid(LOSSES, parameters.weights, threshold)


ROUNDS = 3  # factors and beliefs of a week, in turn; two cost .007 of doing nothing where weeks are few
START_ROUNDS = 3  # levels of SKUs and stores, in turn
SKU_UNITS, STORE_UNITS = 4.0, 20.0  # units that draw a week's factor to 1
LEAST_MEAN = 1e-3


@dataclass(frozen=True, eq=False)
class Followed:
    """Where the pass stands at the end of a week; arrays are read-only.

    Attributes
    ----------
    weeks : how many are behind it.
    level_units, level_exposure : per pair the Gamma law of its level; exposure 0 where it was never seen.
    wrong : pairs x losses, P(the record is wrong and loses this share).
    sku_onsets, sku_expected : per SKU the onsets so far, as believed, and as expected of the chain's rate.
    start : per pair the level it began with.
    predictive : the sum of log predictives of each week.
    sku_factor, store_factor : per week, of SKUs and stores.
    """

    weeks: int
    level_units: Float32
    level_exposure: Float32
    wrong: Float32
    sku_onsets: Float
    sku_expected: Float
    start: Float32
    predictive: Float
    sku_factor: Float32
    store_factor: Float32

    def __post_init__(self) -> None:
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
                array.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Of the pairs observed in a week, in the panel's order.

    Attributes
    ----------
    pairs : rows of the panel.
    mean : expected sales of a healthy pair.
    wrong : P(the record is wrong); the paper's 1 - f, given all weeks.
    deep : P(the week lost the asked share of its sales, or more).
    weeks_wrong : expected weeks that the record is wrong if nobody is sent, this one included.
    known_out : the record itself says there was none.
    """

    pairs: Int64
    mean: Float
    wrong: Float
    deep: Float
    weeks_wrong: Float
    known_out: Bool


@dataclass(frozen=True, eq=False)
class _Week:
    """One week, weighed: the cells that say something, their levels and factors, and what was found."""

    cells: Cells
    level: Float
    sku: Float
    store: Float
    start: Float32
    state: State
    skipped: Int64
    out: Bool

    @property
    def factor(self) -> Float:
        return self.sku[self.cells.sku] * self.store[self.cells.store]

    @property
    def mean(self) -> Float:
        return np.maximum(self.level * self.factor, LEAST_MEAN)


def before_all(panel: Panel) -> Followed:
    """Nothing is known yet."""
    n, m = panel.n_pairs, panel.sku_ids.size
    return Followed(
        weeks=0,
        level_units=np.zeros(n, dtype=np.float32),
        level_exposure=np.zeros(n, dtype=np.float32),
        wrong=np.zeros((n, len(LOSSES)), dtype=np.float32),
        sku_onsets=np.zeros(m),
        sku_expected=np.zeros(m),
        start=np.ones(n, dtype=np.float32),
        predictive=np.zeros(0),
        sku_factor=np.zeros((0, m), dtype=np.float32),
        store_factor=np.zeros((0, panel.store_ids.size), dtype=np.float32),
    )


def follow(
    panel: Panel,
    parameters: StateParameters,
    past: Followed | None = None,
    until: int | None = None,
    on_hand: Float32 | None = None,
) -> Followed:
    """The pass from where ``past`` stands to week ``until`` (by default the last) included.

    ``on_hand``: the recorded stock, pairs x weeks, NaN where not known. At zero or below, the record itself
    says that there was nothing to sell: the week teaches nothing, and the record is right.
    """
    now = before_all(panel) if past is None else past
    last = panel.n_weeks - 1 if until is None else until
    if now.weeks > last + 1 or now.wrong.shape[0] != panel.n_pairs:
        raise DataError("the pass stands beyond the week, or was made for other pairs.")
    for t in range(now.weeks, last + 1):
        now = _move(panel, t, now, parameters, on_hand)
    return now


def infer(
    panel: Panel,
    past: Followed,
    parameters: StateParameters,
    threshold: float = 0.0,
    on_hand: Float32 | None = None,
) -> Beliefs:
    """What is believed of the week after ``past``; ``threshold``: the share of a week's sales that is a deep
    loss. A pair on promotion has the belief of the weeks before."""
    t = past.weeks
    law = parameters.law()
    week = _weigh(panel, t, past, parameters, on_hand)
    grid = grid_of(parameters, threshold)
    found = _room(week.cells.row.size)
    weigh_week(week.cells, week.mean, week.state, law, grid, t > 0, found)
    pairs = np.flatnonzero(panel.observed[:, t])
    mean, wrong, deep = (np.zeros(panel.n_pairs) for _ in range(3))
    out = np.zeros(panel.n_pairs, dtype=np.bool_)
    out[week.skipped] = week.out
    begun = week.state.exposure > 0
    known = week.skipped[begun[week.skipped] & ~week.out]
    level = week.state.units[known] / week.state.exposure[known].astype(np.float64)
    mean[known] = level * week.sku[panel.sku[known]] * week.store[panel.store[known]]
    lost = law.stay * week.state.wrong[known].astype(np.float64)
    fresh = law.first if t == 0 else law.onset
    wrong[known] = fresh + (1.0 - fresh) * lost.sum(axis=1)
    losses = lost.shape[1]
    deep[known] = lost @ grid.deep[:losses] + fresh * (1.0 - lost.sum(axis=1)) * (
        grid.weights @ grid.deep[:losses]
    )
    at = week.cells.row
    mean[at], wrong[at], deep[at] = week.mean, found.wrong, found.deep
    return Beliefs(pairs, mean[pairs], wrong[pairs], deep[pairs], wrong[pairs] / (1.0 - law.stay), out[pairs])


def _move(
    panel: Panel, t: int, past: Followed, parameters: StateParameters, on_hand: Float32 | None
) -> Followed:
    """The pass one week further."""
    law = parameters.law()
    week = _weigh(panel, t, past, parameters, on_hand)
    cells, state, factor = week.cells, week.state, week.factor
    before = np.ones(cells.row.size) - law.stay * state.wrong[cells.row].sum(axis=1, dtype=np.float64)
    found = _room(cells.row.size)
    move_week(cells, week.mean, factor, state, law, grid_of(parameters), t > 0, found)
    skip_week(week.skipped, week.out, state, law)
    onsets, expected = past.sku_onsets, past.sku_expected
    if t > 0:  # what was wrong when the sales begin is old
        m = panel.sku_ids.size
        onsets = onsets + np.bincount(cells.sku, found.begun, m)
        expected = expected + np.bincount(cells.sku, before * law.onset, m)
    return Followed(
        weeks=t + 1,
        level_units=state.units,
        level_exposure=state.exposure,
        wrong=state.wrong,
        sku_onsets=onsets,
        sku_expected=expected,
        start=week.start,
        predictive=np.append(past.predictive, found.predictive.sum()),
        sku_factor=np.vstack([past.sku_factor, week.sku.astype(np.float32)]),
        store_factor=np.vstack([past.store_factor, week.store.astype(np.float32)]),
    )


def _weigh(
    panel: Panel, t: int, past: Followed, parameters: StateParameters, on_hand: Float32 | None
) -> _Week:
    """Levels of new pairs, and the week's factors with beliefs in turn."""
    seen, out = cells_of(panel, t, on_hand)
    state = State(past.level_units.copy(), past.level_exposure.copy(), past.wrong.copy())
    row = np.flatnonzero(seen)
    law = parameters.law()
    cells = Cells(
        row,
        np.ascontiguousarray(panel.store[row]),
        np.ascontiguousarray(panel.sku[row]),
        panel.units[row, t].astype(np.float64),
        np.full(row.size, law.first)
        if t == 0
        else np.minimum(law.onset * sku_rates(past, parameters)[panel.sku[row]], 0.5),
    )
    start = _start_new(panel, cells, past, state, law.start)
    level = state.units[row].astype(np.float64) / state.exposure[row]
    sku, store = np.ones(panel.sku_ids.size), np.ones(panel.store_ids.size)
    skipped = np.flatnonzero(~seen)
    week = _Week(cells, level, sku, store, start, state, skipped, out[skipped])
    if past.weeks == 0 or not row.size:  # the levels have just been made from the week itself
        return week
    wrong = law.stay * state.wrong[row].sum(axis=1, dtype=np.float64)
    spread = law.inverse_size + 1.0 / np.maximum(state.units[row], LEAST_LEVEL)
    grid = grid_of(parameters)
    found = _room(row.size)
    for count in range(ROUNDS):
        weight = (1.0 - wrong) / (1.0 + week.mean * spread)
        fit_factors(cells, level, weight, SKU_UNITS, STORE_UNITS, sku, store)
        if count < ROUNDS - 1:
            weigh_week(cells, week.mean, state, law, grid, True, found)
            wrong = found.wrong
    return week


def sku_rates(past: Followed, parameters: StateParameters) -> Float:
    """Onset rate of every SKU over the chain's: its onsets so far over those expected, drawn to 1."""
    worth = 1.0 / parameters.strength
    return (past.sku_onsets * worth + 1.0) / (past.sku_expected * worth + 1.0)


def cells_of(panel: Panel, t: int, on_hand: Float32 | None = None) -> tuple[Bool, Bool]:
    """(pairs whose sales of the week say something, pairs that the record itself said were out of stock)."""
    seen = panel.observed[:, t].copy()
    out = np.zeros(panel.n_pairs, dtype=np.bool_)
    if on_hand is not None:
        out = np.asarray(on_hand[:, t] <= 0)  # False where it is not known
        seen &= ~out
    if panel.promo is not None:
        seen &= ~panel.promo[:, t]
    return seen, out


def _start_new(panel: Panel, cells: Cells, past: Followed, state: State, worth: float) -> Float32:
    """Levels of pairs seen for the first time, into ``state``: what the SKU sells times what the store sells
    of what it has. From pairs with a level, and for SKUs without one from the week itself.

    ``worth``: units that such a guess is worth.
    """
    new = state.exposure[cells.row] == 0
    if not new.any():
        return past.start
    n_stores, n_skus = panel.store_ids.size, panel.sku_ids.size
    old = np.flatnonzero(state.exposure > 0)
    led = np.bincount(panel.sku[old], minlength=n_skus) > 0
    fresh = new & ~led[cells.sku]
    units = np.concatenate([state.units[old].astype(np.float64) / state.exposure[old], cells.units[fresh]])
    store = np.concatenate([panel.store[old], cells.store[fresh]])
    sku = np.concatenate([panel.sku[old], cells.sku[fresh]])
    usual = max(float(units.mean()), LEAST_MEAN)
    by_store, by_sku = np.ones(n_stores), np.full(n_skus, usual)
    sold, sold_of = np.bincount(store, units, n_stores), np.bincount(sku, units, n_skus)
    for _ in range(START_ROUNDS):
        by_sku = (sold_of + usual) / (np.bincount(sku, by_store[store], n_skus) + 1.0)
        by_store = (sold + usual) / (np.bincount(store, by_sku[sku], n_stores) + usual)
    at = cells.row[new]
    start = past.start.copy()
    start[at] = np.maximum(by_sku[cells.sku[new]] * by_store[cells.store[new]], LEAST_MEAN)
    state.units[at] = worth
    state.exposure[at] = worth / start[at]
    return start


def _room(cells: int) -> Found:
    return Found(*(np.empty(cells) for _ in Found._fields))
