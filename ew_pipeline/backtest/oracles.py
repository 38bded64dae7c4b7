"""Oracles for simulated chains: what a filter reaches that is told what no retailer knows.

An oracle is told the true expected demand of every pair and week, and parameters fitted to the truth. The
states, and which shelf is in which, it has to infer from sales (and the record) up to the week, as everybody
else. So its cost is the floor that other policies are measured against. No part of the product.

A hidden state says what a record is (healthy, wrong, known out of stock) and what share of the demand finds
goods. Given the state, sales are negative binomial around that share of the expected demand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import minimize
from scipy.special import betainc, gammaln

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.core.arrays import Bool, Float, Int64
from ew_pipeline.core.errors import UsageError
from ew_pipeline.simulate import ShelfChain, SimulatedChain

KEYS = ["store_id", "sku_id", "week"]
LOSS_EDGES = np.array([0.0, 0.02, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.97, 1.0])
HEALTHY, WRONG, OUT = range(3)
LEAST_LEFT = 0.003  # even an empty shelf sells a unit once in a while: a delivery came in between
FITTED_ROWS = 40_000  # weeks of pairs that the spread is fitted on
FIRST_DAYS = np.arange(1, 8) / 7  # share of its first week that an event of ``simulate_chain`` takes


@dataclass(frozen=True, eq=False)
class Told:
    """What the oracle is told: S states of up to C equally likely shares of demand that is left.

    Attributes
    ----------
    kind : S; HEALTHY, WRONG or OUT.
    start, new : S; distribution in the first week of all, and in the first week of a pair launched later.
    move : S x S; probability of the next week's state, by row.
    repaired : S; distribution after a check, before the next week's move.
    left : S x C; shares of the expected demand that finds goods.
    spread : (a, b) of sales given their mean: 1 / size = a + b / expected demand.
    """

    kind: Int64
    start: Float
    new: Float
    move: Float
    repaired: Float
    left: Float
    spread: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Weeks:
    """A chain as pairs x weeks; NaN where not ranged (``expected``) or not reported (``units``).

    ``known_out``: the record was 0 or less at the week's end; None when the oracle must not see the record.
    ``checked``: somebody was at the shelf after the week and set the record right; None: it is not told.
    ``proneness``: factor per pair on the probability that its record goes wrong; None: all are alike.
    """

    store_ids: npt.NDArray[np.str_]
    sku_ids: npt.NDArray[np.str_]
    weeks: tuple[str, ...]
    units: Float
    expected: Float
    known_out: Bool | None = None
    checked: Bool | None = None
    proneness: Float | None = None


@dataclass(frozen=True, eq=False)
class Oracle:
    """A policy for one simulated chain: P(record wrong) of its pairs in its weeks."""

    name: str
    pairs: pd.MultiIndex
    weeks: tuple[str, ...]
    probability: Float

    def score(self, view: PastView) -> Score:
        panel = view.panel
        store = panel.store_ids[panel.store[view.pairs]]
        sku = panel.sku_ids[panel.sku[view.pairs]]
        return Score(self.of_week(view.week, store, sku))

    def of_week(self, week: str, store_ids: npt.NDArray[np.str_], sku_ids: npt.NDArray[np.str_]) -> Float:
        """Return P(record wrong) in ``week`` of the pairs named."""
        at = self.pairs.get_indexer(pd.MultiIndex.from_arrays([store_ids, sku_ids]))
        if week not in self.weeks or (at < 0).any():
            raise UsageError(
                f"the oracle knows another chain: {week}, {int((at < 0).sum())} unknown pairs",
                "make it from the chain whose sales are scored.",
            )
        return np.asarray(self.probability[at, self.weeks.index(week)], dtype=np.float64)


def oracle(
    chain: SimulatedChain | ShelfChain, *, on_hand: bool = False, checks: bool = False, by_sku: bool = False
) -> Oracle:
    """Return the oracle of a simulated chain.

    With ``on_hand`` it also sees whether the record is above 0; with ``checks`` which shelves were checked
    after earlier weeks; with ``by_sku`` how prone each SKU of a chain by shelves is. In a closed loop, make
    it again after every week: it keeps nothing.
    """
    if isinstance(chain, SimulatedChain):
        if on_hand:
            raise UsageError("simulate_chain has no record of stock", "use on_hand=False.")
        if by_sku:
            raise UsageError("all SKUs of simulate_chain are alike", "use by_sku=False.")
        told, weeks = tell_chain(chain, checks=checks)
    else:
        told, weeks = tell_shelves(chain, on_hand=on_hand, checks=checks)
        if by_sku:
            prone = chain.skus.set_index(chain.skus["sku_id"].astype("str"))["proneness"]
            weeks = replace(weeks, proneness=prone.reindex(weeks.sku_ids).to_numpy(dtype=np.float64))
    pairs = pd.MultiIndex.from_arrays([weeks.store_ids, weeks.sku_ids])
    name = "oracle-on-hand" if on_hand else "oracle"
    return Oracle(name, pairs, weeks.weeks, wrong_probability(weeks, told))


def wrong_probability(weeks: Weeks, told: Told) -> Float:
    """Return P(wrong | sales up to the week) as pairs x weeks, by one forward pass; 0 where not ranged."""
    pairs, n = weeks.units.shape
    found = np.zeros((pairs, n))
    belief = np.tile(told.start, (pairs, 1))
    wrong, out = told.kind == WRONG, told.kind == OUT
    before = np.zeros(pairs, dtype=np.bool_)
    for t in range(n):
        ranged = ~np.isnan(weeks.expected[:, t])
        if t:
            if weeks.checked is not None:
                belief[weeks.checked[:, t - 1]] = told.repaired
            belief = _next_week(belief, told, weeks.proneness)
            belief[ranged & ~before] = told.new
        seen = np.flatnonzero(ranged & ~np.isnan(weeks.units[:, t]))
        belief[seen] *= _likelihood(weeks.units[seen, t], weeks.expected[seen, t], told)
        if weeks.known_out is not None:
            belief[seen] *= out == weeks.known_out[seen, t, None]
        total = belief.sum(axis=1, keepdims=True)
        belief = np.where(total > 0, belief / np.where(total > 0, total, 1.0), told.start)
        found[ranged, t] = belief[ranged][:, wrong].sum(axis=1)
        before = ranged
    return found


def _next_week(belief: Float, told: Told, proneness: Float | None) -> Float:
    """Return the belief one week later; onsets are as probable as the pair is prone to them."""
    moved = belief @ told.move
    if proneness is None:
        return moved
    wrong = told.kind == WRONG
    onset = belief[:, ~wrong] @ told.move[np.ix_(~wrong, wrong)]
    moved[:, wrong] += (proneness[:, None] - 1) * onset
    others = moved[:, ~wrong]
    room = np.maximum(1 - moved[:, wrong].sum(axis=1, keepdims=True), 0)
    moved[:, ~wrong] = others * room / np.maximum(others.sum(axis=1, keepdims=True), 1e-300)
    return moved


def _likelihood(units: Float, expected: Float, told: Told) -> Float:
    """Return pairs x states: the density of sales, up to a factor that all states of a pair share."""
    mean, x = np.maximum(expected, 1e-6)[:, None, None], units[:, None, None]
    size = 1 / (told.spread[0] + told.spread[1] / mean)
    part = told.left * mean
    log_density = x * np.log(part) - (x + size) * np.log(part + size)
    log_density -= log_density.max(axis=(1, 2), keepdims=True)
    return np.asarray(np.exp(log_density).mean(axis=2))


def tell_shelves(chain: ShelfChain, *, on_hand: bool, checks: bool = False) -> tuple[Told, Weeks]:
    """Return what the truth of a chain by shelves says of states, moves and spread, and its weeks.

    A state is a kind of record and a bin of the share of demand that is lost; moves are counted where
    nobody checked.
    """
    truth = chain.truth.merge(chain.sales[[*KEYS, "units", "on_hand"]], on=KEYS, how="left")
    table = _Table(truth)
    kind = table.of(np.where(truth["known_out"], OUT, np.where(truth["wrong"], WRONG, HEALTHY)))
    loss = table.of(truth["lost_share"])
    expected, units = table.of(truth["expected_units"]), table.of(truth["units"])
    bins = LOSS_EDGES.size - 1
    place = np.clip(np.searchsorted(LOSS_EDGES, loss, side="right") - 1, 0, bins - 1)
    state = np.where(np.isnan(loss), -1, kind * bins + place).astype(np.int64)
    total = 3 * bins

    here, after = state[:, :-1].ravel(), state[:, 1:].ravel()
    checked = table.checked(chain.checks)
    both = (here >= 0) & (after >= 0) & ~checked[:, :-1].ravel()
    share = _shares(state[state >= 0], total)
    moves = np.bincount(here[both] * total + after[both], minlength=total**2).reshape(total, total)
    launched = (here < 0) & (after >= 0)
    lost = np.bincount(state[state >= 0], weights=loss[state >= 0], minlength=total)
    count = np.bincount(state[state >= 0], minlength=total)
    middle = np.tile((LOSS_EDGES[:-1] + LOSS_EDGES[1:]) / 2, 3)
    left = 1 - np.where(count > 0, lost / np.maximum(count, 1), middle)
    full = (kind == HEALTHY) & (place == 0)
    told = Told(
        kind=np.repeat([HEALTHY, WRONG, OUT], bins),
        start=_shares(state[:, 0][state[:, 0] >= 0], total),
        new=_shares(after[launched], total) if launched.any() else share,
        move=(moves + share) / (moves + share).sum(axis=1, keepdims=True),
        repaired=_shares(state[(state >= 0) & (kind != WRONG)], total),
        left=np.maximum(left, LEAST_LEFT)[:, None],
        spread=_fit_spread(units[full], expected[full]),
    )
    known_out = table.of(truth["on_hand"]) <= 0 if on_hand else None
    return told, table.weeks(units, expected, known_out, checked if checks else None)


def tell_chain(chain: SimulatedChain, *, checks: bool = False) -> tuple[Told, Weeks]:
    """Return the states of ``simulate_chain``: healthy, the first week of an event, and its later weeks.

    Onset and repair are counted in the truth; the losses follow the settings. Repairs by checks count as
    repairs unless the oracle is told of ``checks``.
    """
    truth = chain.truth.merge(chain.sales[[*KEYS, "units"]], on=KEYS, how="left")
    table = _Table(truth)
    phantom = table.of(truth["phantom"])
    here, after = phantom[:, :-1], phantom[:, 1:]
    both = ~np.isnan(here) & ~np.isnan(after)
    checked = table.checked(chain.checks) if checks else None
    if checked is not None:
        both &= ~checked[:, :-1]
    onset = float(after[both & (here == 0)].mean())
    stay = float(after[both & (here == 1)].mean()) if (both & (here == 1)).any() else 0.0
    weight, loss = _losses(float(chain.settings.by_week("phantom_depth").mean()))

    n = loss.size
    start, new = np.zeros((2, 1 + 2 * n))
    rate = float(np.nanmean(phantom[:, 0]))
    start[0], start[1 + n :] = 1 - rate, rate * weight
    new[0], new[1 : 1 + n] = 1 - onset, onset * weight
    move = np.zeros((1 + 2 * n, 1 + 2 * n))
    move[0] = new
    for k in range(n):
        for row in (1 + k, 1 + n + k):
            move[row] = (1 - stay) * np.eye(1 + 2 * n)[0]
            move[row, 1 + n + k] = stay
    first = 1 - FIRST_DAYS * loss[:, None]
    later = np.tile(1 - loss[:, None], FIRST_DAYS.size)
    told = Told(
        kind=np.repeat([HEALTHY, WRONG], [1, 2 * n]),
        start=start,
        new=new,
        move=move,
        repaired=np.eye(1 + 2 * n)[0],
        left=np.maximum(np.vstack([np.ones((1, FIRST_DAYS.size)), first, later]), LEAST_LEFT),
        spread=(float((1 / chain.settings.by_week("dispersion_size")).mean()), 0.0),
    )
    units, expected = table.of(truth["units"]), table.of(truth["expected_units"])
    return told, table.weeks(units, expected, checked=checked)


class _Table:
    """A long table of truth as pairs x weeks."""

    def __init__(self, truth: pd.DataFrame) -> None:
        pair = truth.groupby(["store_id", "sku_id"], observed=True, sort=True)
        self.row = pair.ngroup().to_numpy()
        self.column = truth["week"].cat.codes.to_numpy().astype(np.int64)
        first = np.unique(self.row, return_index=True)[1]
        self.store_ids = truth["store_id"].iloc[first].to_numpy(dtype=np.str_)
        self.sku_ids = truth["sku_id"].iloc[first].to_numpy(dtype=np.str_)
        self.labels = tuple(str(week) for week in truth["week"].cat.categories)

    def of(self, values: npt.ArrayLike) -> Float:
        table = np.full((self.store_ids.size, len(self.labels)), np.nan)
        table[self.row, self.column] = np.asarray(values, dtype=np.float64)
        return table

    def checked(self, checks: pd.DataFrame) -> Bool:
        """Return where somebody was at the shelf."""
        made = checks[checks["outcome"] != "not_checked"]
        pairs = pd.MultiIndex.from_arrays([self.store_ids, self.sku_ids])
        weeks = pd.Index(made["week"].astype("str"))
        asked = pd.MultiIndex.from_frame(made[["store_id", "sku_id"]].astype("str"))
        found = np.zeros((self.store_ids.size, len(self.labels)), dtype=np.bool_)
        found[pairs.get_indexer(asked), pd.Index(self.labels).get_indexer(weeks)] = True
        return found

    def weeks(
        self, units: Float, expected: Float, known_out: Bool | None = None, checked: Bool | None = None
    ) -> Weeks:
        return Weeks(self.store_ids, self.sku_ids, self.labels, units, expected, known_out, checked)


def _shares(states: Int64, total: int) -> Float:
    count = np.bincount(states, minlength=total).astype(np.float64)
    return np.asarray(count / count.sum())


def _losses(depth: float) -> tuple[Float, Float]:
    """Return probabilities and mean losses of the bins of Beta(depth, 1 - depth)."""
    if depth in (0.0, 1.0):
        return np.ones(1), np.full(1, depth)
    weight = np.diff(betainc(depth, 1 - depth, LOSS_EDGES))
    mean = depth * np.diff(betainc(depth + 1, 1 - depth, LOSS_EDGES)) / weight
    return weight, mean


def _fit_spread(units: Float, expected: Float) -> tuple[float, float]:
    """Return (a, b) of 1 / size = a + b / mean that maximise the likelihood of weeks without any loss."""
    known = np.flatnonzero(~np.isnan(units) & (expected > 0))
    known = known[:: max(1, known.size // FITTED_ROWS)]
    x, mean = units[known], expected[known]

    def loss(logs: Float) -> float:
        size = 1 / (np.exp(logs[0]) + np.exp(logs[1]) / mean)
        terms = gammaln(x + size) - gammaln(size) + size * np.log(size) + x * np.log(mean)
        return -float(np.mean(terms - (x + size) * np.log(mean + size)))

    a, b = np.exp(minimize(loss, np.log([0.2, 0.2]), method="Nelder-Mead", options={"maxiter": 80}).x)
    return float(a), float(b)
