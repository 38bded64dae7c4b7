"""The inner loops of the alternating regressions: one half-sweep solves one small ridge problem per line
(row or column).

Written for speed where the reason does not show. Accumulating the r x r normal equations in an array is
4-6 times slower than in scalars, so the factors of up to ``CHUNK`` entries are first laid out direction
by direction; each element of the normal equations is then a dot product over the entries with a scalar
sum. The compiler vectorises that at any rank, so nothing is specialised (or compiled again) per rank.
Indices are unsigned, and divisions go through ``np.divide``, because the checks that numba adds for
negative indices and zero divisors keep a loop from being vectorised. Sums over a chunk have the precision
of the factors (single precision at national scale); the normal equations and their solution are double.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float, Int32, Int64, Real
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._layout import lay_out, padded
from ew_pipeline.method.entry_blocks import in_line_blocks

CHUNK = 256
# Not a power of two: rows of the buffer that lie 2^k bytes apart evict each other from the cache.
STRIDE = CHUNK + 8
# What is left of a direction that others explain up to rounding, as where one count is larger than all others
# together: the sums are of single precision, and it could come out negative.
LEAST_PIVOT = 1e-7


@dataclass(frozen=True)
class Variance:
    """How a count varies about its rate, which sets the weights of the regressions.

    Attributes
    ----------
    constant : where positive, every count weighs 1 / constant (least squares) and the rest is ignored.
    inverse_size : 1 / s0 of healthy counts, variance M + M^2 / s0; 0 is Poisson.
    alpha, inverse_shape : anomalous counts have mean alpha M and variance alpha M + (alpha M)^2 / s.
    """

    constant: float = 0.0
    inverse_size: float = 0.0
    alpha: float = 1.0
    inverse_shape: float = 0.0


@dataclass(frozen=True, eq=False)
class Lines:
    """Counts line by line. ``level`` and ``healthy`` may be empty: a level of one, all pairs healthy."""

    indptr: Int64
    others: Int32
    counts: Int32
    level: Real
    healthy: Real


@dataclass(frozen=True, eq=False)
class Prior:
    """What the factors of a line are before its counts are seen: Gaussian about a mean."""

    precision: Float
    mean: Float

    @classmethod
    def ridge(cls, rank: int, penalty: float) -> Prior:
        return cls(penalty * np.eye(rank), np.zeros(rank))


def half_sweep(
    lines: Lines,
    fixed: Real,
    current: Real,
    *,
    prior: Prior,
    floor: float,
    variance: Variance,
    inverses: Real | None = None,
    threads: int = 1,
) -> tuple[Real, Float]:
    """New factors of all lines given the factors of the other side, and the loss of each line.

    Line i takes one scoring step of the likelihood of its counts from its current u: it minimises
    sum_e w_e (y_e - u.v_e)^2 + (u - u0)' K (u - u0), K and u0 the prior's precision and mean, where at
    m = max(u.v, floor) and mu = L m

        c0 = 1 / (1 + mu / s0),  c1 = 1 / (1 + alpha mu / s)
        w   = (L / m) (f c0 + (1 - f) alpha c1)
        w y = (x / m) (f c0 + (1 - f) c1)

    and f is the probability that the entry is healthy. Poisson noise and f = 1 give w = L / m and
    y = x / L; with ``variance.constant`` w = L / constant. The loss is the weighted sum of squares at the
    new u. ``inverses``, if given, receives each line's (H + K)^-1, lower triangle by rows.
    """
    new = np.empty_like(current)
    loss = np.empty(len(current))
    kept = np.empty((0, 0), dtype=current.dtype) if inverses is None else inverses
    wide = padded(fixed)

    def block(first: int, end: int) -> None:
        solve_lines(
            first,
            end,
            lines.indptr,
            lines.others,
            lines.counts,
            lines.level,
            lines.healthy,
            wide,
            current,
            prior.precision,
            prior.precision @ prior.mean,
            floor,
            variance.constant,
            variance.inverse_size,
            variance.alpha,
            variance.inverse_shape,
            new,
            loss,
            kept,
        )

    in_line_blocks(block, lines.indptr, threads)
    return new, loss


@njit_fast
def solve_lines(
    first_line: int,
    end_line: int,
    indptr: Int64,
    others: Int32,
    counts: Int32,
    level: Real,
    healthy: Real,
    fixed: Real,
    current: Real,
    precision: Float,
    pull: Float,
    floor: float,
    constant: float,
    inverse_size: float,
    alpha: float,
    inverse_shape: float,
    new: Real,
    loss: Float,
    inverses: Real,
) -> None:
    """The lines from ``first_line`` to before ``end_line``; no line depends on another. ``fixed`` is
    ``padded``."""
    r = current.shape[1]
    even = (r + 2) // 2 * 2  # 1 + r, made even; a spare row stays zero
    A = np.zeros((fixed.shape[1] + 2, STRIDE), dtype=fixed.dtype)  # row 0: y; 1 + k: direction k
    w = np.empty(STRIDE, dtype=fixed.dtype)
    scratch = np.empty((2, STRIDE), dtype=fixed.dtype)
    G = np.empty((even, even))  # A diag(w) A^T, lower triangle
    u = np.empty(r)
    for i in range(first_line, end_line):
        normal_equations(
            i,
            indptr,
            others,
            counts,
            level,
            healthy,
            fixed,
            current,
            floor,
            constant,
            inverse_size,
            alpha,
            inverse_shape,
            A,
            w,
            scratch,
            G,
        )
        loss[i] = _solve(r, G, precision, pull, u)
        for k in range(r):
            new[i, k] = u[k]
        if inverses.size > 0:
            _invert(r, G, u, inverses, i)


@njit_fast
def normal_equations(
    i: int,
    indptr: Int64,
    others: Int32,
    counts: Int32,
    level: Real,
    healthy: Real,
    fixed: Real,
    current: Real,
    floor: float,
    constant: float,
    inverse_size: float,
    alpha: float,
    inverse_shape: float,
    A: Real,
    w: Real,
    scratch: Real,
    G: Float,
) -> None:
    """G = A diag(w) A^T over the entries of line i, lower triangle; ``A``, ``w``, ``scratch``: see there."""
    G[:] = 0.0
    for first in range(indptr[i], indptr[i + 1], CHUNK):
        size = min(CHUNK, indptr[i + 1] - first)
        lay_out(first, size, others, fixed, A)
        _weigh(
            first,
            size,
            counts,
            level,
            healthy,
            current,
            i,
            floor,
            constant,
            inverse_size,
            alpha,
            inverse_shape,
            A,
            w,
            scratch,
        )
        _accumulate(size, A, w, G)


@njit_fast
def part_of(first: int, size: int, values: Real, out: Real) -> None:
    """The values of some entries, or ones where there are none.

    Never choose inside the loop that computes with them: the compiled loop then asks whether the (empty)
    array overlaps its output, by addresses that differ from run to run, and rounds by the answer.
    """
    if values.size > 0:
        start = np.uint64(first)
        for c in range(size):
            out[c] = values[start + np.uint64(c)]
    else:
        out[:size] = 1


@njit_fast
def rates_of(size: int, current: Real, i: int, floor: float, A: Real, m: Real) -> None:
    """m = max(u.v, floor) of the entries laid out in ``A``."""
    low = m.dtype.type(floor)
    m[:size] = 0
    for k in range(current.shape[1]):
        u = current[i, k]
        for c in range(size):
            m[c] += u * A[k + 1, c]
    for c in range(size):
        m[c] = max(m[c], low)


@njit_fast
def _weigh(
    first: int,
    size: int,
    counts: Int32,
    level: Real,
    healthy: Real,
    current: Real,
    i: int,
    floor: float,
    constant: float,
    inverse_size: float,
    alpha: float,
    inverse_shape: float,
    A: Real,
    w: Real,
    scratch: Real,
) -> None:
    """y into row 0 of ``A`` and the weights into ``w``; ``scratch`` is two rows of working space."""
    start = np.uint64(first)
    one = w.dtype.type(1)
    for c in range(size):
        A[0, c] = counts[start + np.uint64(c)]
    if constant > 0.0:
        w[:size] = 1.0 / constant
    else:
        rates_of(size, current, i, floor, A, w)
        if healthy.size > 0 or inverse_size > 0.0:
            dispersion = w.dtype.type(inverse_size)
            a = w.dtype.type(alpha)
            spread = w.dtype.type(alpha * inverse_shape)
            part_of(first, size, level, scratch[0])
            part_of(first, size, healthy, scratch[1])
            for c in range(size):
                m = w[c]
                mu = m * scratch[0, c]
                f = scratch[1, c]
                keep = np.divide(f, one + mu * dispersion)
                lost = np.divide(one - f, one + mu * spread)
                trust = keep + a * lost
                A[0, c] *= np.divide(keep + lost, trust)
                w[c] = np.divide(trust, m)
        else:
            for c in range(size):
                w[c] = np.divide(one, w[c])
    if level.size > 0:
        for c in range(size):
            L = level[start + np.uint64(c)]
            A[0, c] = np.divide(A[0, c], L)
            w[c] *= L


@njit_fast
def _accumulate(size: int, A: Real, w: Real, G: Float) -> None:
    """G += A diag(w) A^T, lower triangle, in 2 x 2 blocks: four sums for four reads."""
    for k in range(0, G.shape[0], 2):
        for q in range(0, k + 1, 2):
            top_left = A.dtype.type(0)
            top_right = A.dtype.type(0)
            low_left = A.dtype.type(0)
            low_right = A.dtype.type(0)
            for c in range(size):
                a = w[c] * A[k, c]
                b = w[c] * A[k + 1, c]
                top_left += a * A[q, c]
                top_right += a * A[q + 1, c]
                low_left += b * A[q, c]
                low_right += b * A[q + 1, c]
            G[k, q] += top_left
            G[k, q + 1] += top_right
            G[k + 1, q] += low_left
            G[k + 1, q + 1] += low_right


@njit_fast
def _solve(r: int, G: Float, precision: Float, pull: Float, u: Float) -> float:
    """u = (H + K)^-1 (b + K u0) by Cholesky in place, H and b inside G; returns the loss at u.

    As (H + K) u = b + K u0, the loss G_00 - 2 u.b + u'Hu is G_00 - u.b + u.(K u0 - K u).
    """
    for k in range(1, r + 1):
        whole = G[k, k] + precision[k - 1, k - 1]
        pivot = whole
        for q in range(1, k):
            pivot -= G[k, q] * G[k, q]
        pivot = np.sqrt(max(pivot, LEAST_PIVOT * whole))
        G[k, k] = pivot
        inverse = np.divide(1.0, pivot)
        for below in range(k + 1, r + 1):
            total = G[below, k] + precision[below - 1, k - 1]
            for q in range(1, k):
                total -= G[below, q] * G[k, q]
            G[below, k] = total * inverse
    for k in range(1, r + 1):
        total = G[k, 0] + pull[k - 1]
        for q in range(1, k):
            total -= G[k, q] * u[q - 1]
        u[k - 1] = np.divide(total, G[k, k])
    for k in range(r, 0, -1):
        total = u[k - 1]
        for q in range(k + 1, r + 1):
            total -= G[q, k] * u[q - 1]
        u[k - 1] = np.divide(total, G[k, k])
    loss = float(G[0, 0])
    for k in range(r):
        shrink = pull[k] - G[k + 1, 0]
        for q in range(r):
            shrink -= precision[k, q] * u[q]
        loss += u[k] * shrink
    return max(0.0, loss)


@njit_fast
def _invert(r: int, G: Float, column: Float, inverses: Real, i: int) -> None:
    """inverses[i] = (H + K)^-1, lower triangle by rows, from the Cholesky factor in G."""
    for c in range(r):
        for k in range(c, r):
            total = 1.0 if k == c else 0.0
            for q in range(c, k):
                total -= G[k + 1, q + 1] * column[q]
            column[k] = np.divide(total, G[k + 1, k + 1])
        for k in range(r - 1, c - 1, -1):
            total = column[k]
            for q in range(k + 1, r):
                total -= G[q + 1, k + 1] * column[q]
            column[k] = np.divide(total, G[k + 1, k + 1])
        for k in range(c, r):
            inverses[i, k * (k + 1) // 2 + c] = column[k]


@njit
def gram(factor: Real) -> Float:
    """factor' factor in double precision, rows added in their order."""
    n, r = factor.shape
    out = np.zeros((r, r))
    for i in range(n):
        for k in range(r):
            a = float(factor[i, k])
            for q in range(k + 1):
                out[k, q] += a * factor[i, q]
    for k in range(r):
        for q in range(k):
            out[q, k] = out[k, q]
    return out


@njit
def turned(factor: Real, turn: Float) -> Real:
    """factor @ turn, row by row in double precision, kept in the factor's own."""
    n, r = factor.shape
    out = np.empty_like(factor)
    for i in range(n):
        for k in range(r):
            total = 0.0
            for q in range(r):
                total += factor[i, q] * turn[q, k]
            out[i, k] = total
    return out


@njit
def line_sums(indptr: Int64, values: Real | Int32) -> Float:
    """The sum of each line's values."""
    out = np.zeros(indptr.size - 1)
    for i in range(out.size):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += values[e]
        out[i] = total
    return out
