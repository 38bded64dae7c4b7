"""Factors of the entries of a line, laid out direction by direction.

A line's entries point all over the other side's factors. Copied number by number they cost more than all the
arithmetic on them, so eight entries are taken at a time: eight short rows are loaded whole and turned into
eight-wide columns in registers. numba cannot say that, so the instruction is written in LLVM's own terms;
it only copies, and so is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ew_pipeline.core.arrays import Int32, Real
from ew_pipeline.core.kernels import njit_fast

WIDE = 8
CACHE_LINE = 64  # bytes


def padded(factor: Real) -> Real:
    """A copy with a whole number of eights of directions, zeros in those that are added, of which no eight
    lies across two cache lines."""
    n, r = factor.shape
    width = -(-r // WIDE) * WIDE
    space = np.zeros(n * width + CACHE_LINE // factor.itemsize, dtype=factor.dtype)
    first = -space.ctypes.data % CACHE_LINE // factor.itemsize
    out = space[first : first + n * width].reshape(n, width)
    out[:, :r] = factor
    return out


@intrinsic
def _turn_eight(
    typing: Any, fixed: Any, others: Any, entry: Any, direction: Any, A: Any, row: Any, at: Any
) -> Any:
    """A[row + k, at + e] = fixed[others[entry + e], direction + k] for e, k = 0..7."""
    signature = types.void(fixed, others, entry, direction, A, row, at)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        source, index, target = (
            context.make_array(kind)(context, builder, value)
            for kind, value in ((fixed, args[0]), (others, args[1]), (A, args[4]))
        )
        word = ir.IntType(64)
        element = context.get_data_type(fixed.dtype)
        vector = ir.VectorType(element, WIDE)
        size = context.get_abi_sizeof(element)

        def wide(number: Any, kind: Any) -> Any:
            return context.cast(builder, number, kind, types.intp)

        first, start, top, left = (wide(args[k], sig.args[k]) for k in (2, 3, 5, 6))
        length, stride = (builder.extract_value(array.shape, 1) for array in (source, target))

        def place(base: Any, offset: Any) -> Any:
            return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())

        rows = []
        for e in range(WIDE):
            where = builder.load(builder.gep(index.data, [builder.add(first, word(e))]))
            offset = builder.add(builder.mul(builder.sext(where, word), length), start)
            rows.append(builder.load(place(source.data, offset), align=size))
        for k, column in enumerate(_transposed(builder, rows)):
            offset = builder.add(builder.mul(builder.add(top, word(k)), stride), left)
            builder.store(column, place(target.data, offset), align=size)
        return context.get_dummy_value()

    return signature, generate


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """Eight vectors of eight, transposed in three rounds of two-vector shuffles."""
    mask = ir.VectorType(ir.IntType(32), WIDE)

    def shuffle(a: Any, b: Any, lanes: list[int]) -> Any:
        return builder.shuffle_vector(a, b, ir.Constant(mask, lanes))

    halves = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
    low = [[0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]]
    pairs = [[0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]]
    crossed = [
        [shuffle(rows[e], rows[e + 4], lanes) for e in range(4)] for lanes in halves
    ]  # directions 0..3 and 4..7 of entries e and e + 4
    columns = []
    for a, b, c, d in crossed:
        ab = [shuffle(a, b, lanes) for lanes in low]
        cd = [shuffle(c, d, lanes) for lanes in low]
        columns += [shuffle(ab[half], cd[half], lanes) for half in (0, 1) for lanes in pairs]
    return columns


@njit_fast
def lay_out(first: int, size: int, others: Int32, fixed: Real, A: Real) -> None:
    """Row 1 + k of ``A``: direction k of the (``padded``) factors of the entries' other sides."""
    eights = size // WIDE * WIDE
    for k in range(0, fixed.shape[1], WIDE):
        for c in range(0, eights, WIDE):
            _turn_eight(fixed, others, first + c, k, A, k + 1, c)  # type: ignore[call-arg]  # no context
    start = np.uint64(first)
    for c in range(eights, size):
        other = np.uint64(others[start + np.uint64(c)])
        for k in range(fixed.shape[1]):
            A[k + 1, c] = fixed[other, k]
