"""The optimiser behind the likelihood of theta: damped scoring on an unbounded scale.

A parameter in [low, high] is u = logit of its place in the range, stretched so that u = -EDGE and EDGE
are the bounds exactly: an estimate on a bound is *on* it, and intervals never leave the range.

Why not a library's quasi-Newton: on the likelihoods at hand (two components that nearly coincide, one
parameter on a ridge) L-BFGS-B jumps to a bound in its first line search and stays there, and needs twice
the evaluations. The outer product of the per-entry scores is a good curvature from the first step on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float

EDGE = 7.0
DIFFERENCE = 1e-4
LONGEST_STEP = 2.0
GOOD_ENOUGH = 1e-4  # a step that promises a smaller gain in log-likelihood is not taken
CRAWL = 1e-3  # two gains in a row below this are a plateau, on which no place is better than another
MAX_STEPS = 100
MAX_DAMPING = 1e8

_AT_EDGE = 1.0 / (1.0 + math.exp(EDGE))


@dataclass(frozen=True, eq=False)
class Top:
    """Where a climb ended, on the unbounded scale."""

    where: Float
    log_likelihood: float
    converged: bool
    n_evaluations: int


def climb(
    terms_at: Callable[[Float], Float], weights: Float, start: Float, free: tuple[int, ...] | None = None
) -> Top:
    """Maximise the weighted sum of ``terms_at(u)`` from ``start``.

    Scores are differences of the terms, so that any model that can be evaluated will do.
    ``free`` names the coordinates to move; the others stay at the start.
    """
    moving = tuple(range(start.size)) if free is None else free
    u = np.clip(start, -EDGE, EDGE)
    terms = terms_at(u)
    value = weighted_sum(weights, terms)
    n_evaluations, damping, bend, crawls = 1, 1e-3, 1.0, 0
    for _ in range(MAX_STEPS):
        scores = score_matrix(terms_at, u, terms, moving)
        n_evaluations += len(moving)
        gradient = np.array([weighted_sum(weights, score) for score in scores])
        inside = [k for k in moving if abs(u[k]) < EDGE or u[k] * gradient[k] < 0.0]
        if not inside:
            return Top(u, value, True, n_evaluations)
        g = gradient[inside]
        outer = weighted_gram(scores[inside], weights)
        low = np.maximum(-LONGEST_STEP, -EDGE - u[inside])
        high = np.minimum(LONGEST_STEP, EDGE - u[inside])
        ridge = np.diag(np.diag(outer) + 1e-9)
        while True:
            move = _boxed_step(bend * outer + damping * ridge, g, low, high)
            promised = float(g @ move)
            # Below zero the walls have turned the step downhill: it will be refused and damped, not the end.
            if 0.0 <= promised < GOOD_ENOUGH or damping > MAX_DAMPING:
                return Top(u, value, damping <= MAX_DAMPING, n_evaluations)
            candidate = u.copy()
            candidate[inside] += move
            candidate_terms = terms_at(candidate)
            gain = weighted_sum(weights, candidate_terms) - value
            n_evaluations += 1
            if gain > 0.0:
                break
            damping *= 10.0
        # How much the likelihood really bends along the step, against what the scores say.
        bend = min(max(2.0 * (promised - gain) / float(move @ outer @ move), 0.25), 4.0)
        damping = max(damping / 10.0, 1e-6)
        u, terms, value = candidate, candidate_terms, value + gain
        crawls = crawls + 1 if gain < CRAWL else 0
        if crawls == 2:
            return Top(u, value, True, n_evaluations)
    return Top(u, value, False, n_evaluations)


def _boxed_step(curvature: Float, gradient: Float, low: Float, high: Float) -> Float:
    """The Newton step inside a box. The coordinate that would leave it by most stops at the wall and the
    others are solved again with it there, so that one that runs for its bound neither drags nor holds
    back the rest."""
    step = np.zeros(gradient.size)
    free = np.ones(gradient.size, dtype=bool)
    while np.any(free):
        rest = gradient[free] - curvature[np.ix_(free, ~free)] @ step[~free]
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], rest)
        excess = np.where(free, np.abs(step - np.clip(step, low, high)), 0.0)
        worst = int(np.argmax(excess))
        if excess[worst] == 0.0:
            break
        step[worst] = min(max(step[worst], low[worst]), high[worst])
        free[worst] = False
    return step


def from_unbounded(u: float, bounds: tuple[float, float]) -> float:
    """The parameter at u."""
    share = (1.0 / (1.0 + math.exp(-u)) - _AT_EDGE) / (1.0 - 2.0 * _AT_EDGE)
    return bounds[0] + (bounds[1] - bounds[0]) * min(max(share, 0.0), 1.0)


def to_unbounded(value: float, bounds: tuple[float, float]) -> float:
    """The u of a parameter; outside its bounds, the u of the nearer one."""
    share = min(max((value - bounds[0]) / (bounds[1] - bounds[0]), 0.0), 1.0)
    stretched = share * (1.0 - 2.0 * _AT_EDGE) + _AT_EDGE
    return math.log(stretched / (1.0 - stretched))


def score_matrix(
    terms_at: Callable[[Float], Float], u: Float, terms: Float, moving: tuple[int, ...]
) -> Float:
    scores = np.zeros((u.size, terms.size))
    for k in moving:
        step = -DIFFERENCE if u[k] > 0.0 else DIFFERENCE  # towards the inside
        shifted = u.copy()
        shifted[k] += step
        scores[k] = (terms_at(shifted) - terms) / step
    return scores


# Not BLAS, whose sums over many terms depend on how many threads it has, and which wakes them for these few.


def weighted_sum(weights: Float, terms: Float) -> float:
    return float(np.einsum("e,e->", weights, terms))


def weighted_gram(scores: Float, weights: Float) -> Float:
    """scores diag(weights) scores'."""
    return np.asarray(np.einsum("ie,je->ij", scores * weights, scores))
