"""Compiled parts of the filter: what one week's sales say of a pair's state, and the pass over the weeks.

A pair is healthy, or wrong with one of a few shares of its sales lost. One cell (a pair in a week) weighs the
states against each other; the week is a loop over its cells, the estimate of parameters a loop over pairs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ew_pipeline.core.arrays import Bool, Float, Float32, Int32, Int64
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._kernels.double_math import exp_inplace, log_into
from ew_pipeline.method.noise import nb_log_pmf

LEAST_LEVEL = 0.3  # a level that rests on less than this many units is no less certain than with them
LEAST_UNITS = 0.05  # what a level rests on at least
NEARLY_POISSON = 1e6  # from this size on, logarithms of ratios come from their series


class Law(NamedTuple):
    """The chain's parameters; ``first`` is the share wrong when the sales begin."""

    onset: float
    stay: float
    first: float
    inverse_size: float
    inverse_wide: float
    shock: float
    forgetting: float
    size: float
    start: float


class Grid(NamedTuple):
    """Losses and their weights; per share of the first week and loss: what is kept, and whether it counts
    as a deep loss. Shares come one after the other, the whole week first."""

    weights: Float
    kept: Float
    log_kept: Float
    deep: Float


class Work(NamedTuple):
    """Room for one cell: densities by share and loss, and the probabilities of staying and of beginning."""

    values: Float
    bits: Int64
    power: Float
    power_bits: Int64
    logs: Float
    stays: Float
    begins: Float


class Cells(NamedTuple):
    """The pairs that a week says something of: their rows, codes, sales and onset rates."""

    row: Int64
    store: Int32
    sku: Int32
    units: Float
    onset: Float


class State(NamedTuple):
    """Per pair: the level as Gamma(units, exposure), and P(wrong with each loss)."""

    units: Float32
    exposure: Float32
    wrong: Float32


class Found(NamedTuple):
    """Per cell of a week: P(wrong), P(deep loss), P(wrong since this week), share of
    shocks, log predictive."""

    wrong: Float
    deep: Float
    begun: Float
    shock: Float
    predictive: Float


class Pairs(NamedTuple):
    """Sales of some pairs over weeks, pairs x weeks: units, whether they say something, whether the record
    itself said there was none, and the factor of SKU and store; the level a pair begins with."""

    units: Float
    seen: Bool
    out: Bool
    factor: Float
    start: Float
    onset: Float


class Kept(NamedTuple):
    """What a pass keeps for looking back, pairs x weeks (x losses): P(wrong with the loss), and the densities
    of the sales by state over the week's predictive."""

    wrong: Float
    healthy: Float
    stays: Float
    begins: Float


@njit
def forget(units: float, forgetting: float) -> float:
    """What a week leaves of a level's weight: a level that rests on next to nothing keeps its place."""
    return forgetting if forgetting * units >= LEAST_UNITS else min(1.0, LEAST_UNITS / units)


@njit
def make_work(losses: int, columns: int) -> Work:
    """Room for cells with so many losses and columns of the grid."""
    values, power = np.empty(columns), np.empty(columns)
    bits, power_bits = values.view(np.int64), power.view(np.int64)
    return Work(values, bits, power, power_bits, np.empty(columns), np.empty(losses), np.empty(losses))


@njit_fast
def _densities(x: float, mean: float, size: float, columns: int, grid: Grid, work: Work) -> None:
    """NB(x; kept mean, size) over NB(x; mean, size) for the first columns of the grid into work.values."""
    share = mean / (size + mean)
    if size > NEARLY_POISSON:
        for k in range(columns):
            v = (1.0 - grid.kept[k]) * share
            work.logs[k] = -v * (1.0 + v * (0.5 + v / 3.0))
    else:
        for k in range(columns):
            work.values[k] = 1.0 - (1.0 - grid.kept[k]) * share
        log_into(work.values, work.bits, work.power, work.power_bits, work.logs, columns)
    for k in range(columns):
        work.values[k] = x * grid.log_kept[k] - (x + size) * work.logs[k]
    exp_inplace(work.values, work.power, work.power_bits, columns)


@njit
def weigh_cell(
    x: float,
    mean: float,
    spread: float,
    onset: float,
    partial: bool,
    wrong: Float,
    law: Law,
    grid: Grid,
    work: Work,
) -> tuple[float, float, float, float, float]:
    """(P(healthy | x), share of shocks in it, P(wrong since this week), P(deep loss), log predictive).

    ``spread`` is the squared coefficient of variation of the mean; ``wrong`` the belief after the week
    before. The belief by loss goes into work.stays and work.begins. With ``partial`` a record that went
    wrong this week may have done so within it.
    """
    losses = wrong.size
    columns = grid.kept.size if partial else losses
    inverse = law.inverse_size + spread
    size = 1.0 / max(inverse, 1e-12)
    base = nb_log_pmf(x, mean, size)
    _densities(x, mean, size, columns, grid, work)
    before = 0.0
    for k in range(losses):
        before += wrong[k]
    free = 1.0 - law.stay * before
    sound = free * (1.0 - onset)
    shocked = 0.0
    if law.shock > 0.0:
        wide = nb_log_pmf(x, mean, 1.0 / max(law.inverse_wide + spread, 1e-12))
        shocked = sound * law.shock * math.exp(min(wide - base, 600.0))
    total = sound * (1.0 - law.shock) + shocked
    healthy = total
    begun = 0.0
    deep = 0.0
    shares = columns // losses
    for k in range(losses):
        stays = law.stay * wrong[k] * work.values[k]
        each = free * onset * grid.weights[k] / shares
        begins = 0.0
        for u in range(shares):
            part = each * work.values[u * losses + k]
            begins += part
            deep += part * grid.deep[u * losses + k]
        deep += stays * grid.deep[k]
        work.stays[k] = stays
        work.begins[k] = begins
        begun += begins
        total += stays + begins
    for k in range(losses):
        work.stays[k] /= total
        work.begins[k] /= total
    return healthy / total, shocked / total, begun / total, deep / total, base + math.log(total)


@njit
def weigh_week(
    cells: Cells, mean: Float, state: State, law: Law, grid: Grid, partial: bool, found: Found
) -> None:
    """Weigh all cells of a week against the state before it, which stays as it is."""
    losses = state.wrong.shape[1]
    work = make_work(losses, grid.kept.size)
    before = np.empty(losses)
    for e in range(cells.row.size):
        p = cells.row[e]
        before[:] = state.wrong[p]
        spread = 1.0 / max(state.units[p], LEAST_LEVEL)
        found.wrong[e], found.shock[e], found.begun[e], found.deep[e], found.predictive[e] = weigh_cell(
            cells.units[e], mean[e], spread, cells.onset[e], partial, before, law, grid, work
        )
        found.wrong[e] = 1.0 - found.wrong[e]


@njit
def move_week(
    cells: Cells, mean: Float, factor: Float, state: State, law: Law, grid: Grid, partial: bool, found: Found
) -> None:
    """The same, and take belief and level of the cells over the week: ``factor`` is mean over level."""
    losses = state.wrong.shape[1]
    work = make_work(losses, grid.kept.size)
    before = np.empty(losses)
    for e in range(cells.row.size):
        p = cells.row[e]
        before[:] = state.wrong[p]
        x = cells.units[e]
        spread = 1.0 / max(state.units[p], LEAST_LEVEL)
        healthy, found.shock[e], found.begun[e], found.deep[e], found.predictive[e] = weigh_cell(
            x, mean[e], spread, cells.onset[e], partial, before, law, grid, work
        )
        found.wrong[e] = 1.0 - healthy
        for k in range(losses):
            state.wrong[p, k] = work.stays[k] + work.begins[k]
        weight = (healthy - 0.5 * found.shock[e]) * law.size / (law.size + mean[e])
        forgetting = forget(state.units[p], law.forgetting)
        state.units[p] = forgetting * state.units[p] + weight * x
        state.exposure[p] = forgetting * state.exposure[p] + weight * factor[e]


@njit
def skip_week(skipped: Int64, out: Bool, state: State, law: Law) -> None:
    """Pairs that the week says nothing of keep their state, times the share that nobody repairs; where the
    record itself said there was none (``out``), it was right."""
    for e in range(skipped.size):
        p = skipped[e]
        for k in range(state.wrong.shape[1]):
            state.wrong[p, k] = 0.0 if out[e] else law.stay * state.wrong[p, k]
        forgetting = forget(state.units[p], law.forgetting)
        state.units[p] *= forgetting
        state.exposure[p] *= forgetting


@njit
def fit_factors(
    cells: Cells, level: Float, weight: Float, sku_units: float, store_units: float, sku: Float, store: Float
) -> None:
    """Factors of SKUs and stores in the week by weighted sums, each drawn to 1 by so many units; in place."""
    above, below = np.empty(sku.size), np.empty(sku.size)
    store_above, store_below = np.empty(store.size), np.empty(store.size)
    for _ in range(2):
        above[:] = sku_units
        below[:] = sku_units
        for e in range(cells.row.size):
            above[cells.sku[e]] += weight[e] * cells.units[e]
            below[cells.sku[e]] += weight[e] * level[e] * store[cells.store[e]]
        sku[:] = above / below
        store_above[:] = store_units
        store_below[:] = store_units
        for e in range(cells.row.size):
            store_above[cells.store[e]] += weight[e] * cells.units[e]
            store_below[cells.store[e]] += weight[e] * level[e] * sku[cells.sku[e]]
        store[:] = store_above / store_below


@njit
def pass_pairs(pairs: Pairs, law: Law, grid: Grid, count_from: int, keep: bool, kept: Kept) -> float:
    """Take some pairs through all weeks with the factors as given; the sum of log predictives.

    A pair enters where its factor is first above zero. Weeks from ``count_from`` on are summed.
    """
    count, weeks = pairs.units.shape
    losses = grid.weights.size
    work = make_work(losses, grid.kept.size)
    wrong = np.empty(losses)
    total = 0.0
    for p in range(count):
        units, exposure = 0.0, 0.0
        wrong[:] = 0.0
        for t in range(weeks):
            if pairs.factor[p, t] > 0.0 and exposure == 0.0:
                units, exposure = law.start, law.start / pairs.start[p]
            if not pairs.seen[p, t] or exposure == 0.0:
                stays = 0.0 if pairs.out[p, t] else 1.0
                for k in range(losses):
                    wrong[k] *= law.stay * stays
                forgetting = forget(units, law.forgetting)
                units *= forgetting
                exposure *= forgetting
                if keep:
                    kept.healthy[p, t] = 1.0
                    kept.stays[p, t] = stays
                    kept.wrong[p, t] = wrong
                continue
            level = units / exposure
            mean = level * pairs.factor[p, t]
            x = pairs.units[p, t]
            rate = law.first if t == 0 else law.onset * pairs.onset[p]
            spread = 1.0 / max(units, LEAST_LEVEL)
            if keep:
                before = 0.0
                for k in range(losses):
                    before += wrong[k]
            healthy, shock, _, _, predictive = weigh_cell(
                x, mean, spread, rate, t > 0, wrong, law, grid, work
            )
            if t >= count_from:
                total += predictive
            if keep:
                free = 1.0 - law.stay * before
                kept.healthy[p, t] = healthy / (free * (1.0 - rate))
                for k in range(losses):
                    was = law.stay * wrong[k]
                    kept.stays[p, t, k] = work.stays[k] / was if was > 0.0 else 0.0
                    begins = free * rate * grid.weights[k]
                    kept.begins[p, t, k] = work.begins[k] / begins if begins > 0.0 else 0.0
            for k in range(losses):
                wrong[k] = work.stays[k] + work.begins[k]
                if keep:
                    kept.wrong[p, t, k] = wrong[k]
            weight = (healthy - 0.5 * shock) * law.size / (law.size + mean)
            forgetting = forget(units, law.forgetting)
            units = forgetting * units + weight * x
            exposure = forgetting * exposure + weight * pairs.factor[p, t]
    return total
