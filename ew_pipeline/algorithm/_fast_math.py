"""Logarithm and exponential, written so that LLVM turns them into SIMD code.

In single precision they are used only for the *gradients* that steer the sampler's trajectories, and where an
iteration comes to rest. A trajectory is accepted or refused with the double-precision density, so an
error costs acceptance rate, never correctness. Errors against libm are below 3e-6 (absolute, log) and 5e-6
(relative, exp). In double precision they are below 2e-13, for likelihoods. Tests hold all of them.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ew_pipeline.algorithm._numba import njit_inline
from ew_pipeline.algorithm.types import Float, Float32, Int32, Int64

# Least squares at 400 Chebyshev nodes, near minimax. As numbers, because a solver would round them
# differently on different processors.
# log(z) / (z - 1) on [1, 2) keeps the logarithm exact at 1, where our arguments 1 + mu / s0 gather.
L0, L1, L2, L3, L4, L5, L6 = (
    np.float32(c) for c in (2.2963653, -2.8834543, 2.8120968, -1.782824, 0.6954172, -0.151805, 0.0142028257)
)
# 2^w on [-1/2, 1/2]
E0, E1, E2, E3, E4, E5 = (
    np.float32(c) for c in (1.0000001, 0.6931472, 0.24022107, 0.05550327, 0.009676037, 0.0013400433)
)
LOG_2 = np.float32(math.log(2.0))
PER_LOG_2 = np.float32(1.0 / math.log(2.0))
ONE = np.float32(1.0)
EXP2_LIMIT = np.float32(60.0)
ROUND = np.float32(64.5)
# In double precision: mantissas in [sqrt(1/2), sqrt(2)), log z = 2 atanh((z - 1) / (z + 1)) and 2^w by their
# series, cut where the next term is below 1e-15.
MANTISSA = np.int64(0x000FFFFFFFFFFFFF)
ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)
TO_ONE = np.int64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
LOG_2_DOUBLE = math.log(2.0)
EXP2_LIMIT_DOUBLE = 1020.0
P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11 = (LOG_2_DOUBLE**k / math.factorial(k) for k in range(1, 12))


@njit_inline
def log_into(bits: Int32, mantissa_bits: Int32, mantissa: Float32, out: Float32, n: int) -> None:
    """out = log(y) for y > 0 given as its int32 view ``bits``; ``mantissa`` views ``mantissa_bits``."""
    for t in range(n):
        b = bits[t]
        out[t] = np.float32((b >> 23) - 127) * LOG_2
        mantissa_bits[t] = (b & 0x7FFFFF) | 0x3F800000
    for t in range(n):
        z = mantissa[t]
        out[t] += (z - ONE) * (L0 + z * (L1 + z * (L2 + z * (L3 + z * (L4 + z * (L5 + z * L6))))))


@njit_inline
def exp_inplace(values: Float32, power_bits: Int32, power: Float32, n: int) -> None:
    """values = exp(values), limited to 2^-60 .. 2^60; ``power`` views ``power_bits``."""
    for t in range(n):
        v = min(max(values[t] * PER_LOG_2, -EXP2_LIMIT), EXP2_LIMIT)
        k = numba.int32(v + ROUND) - numba.int32(64)
        power_bits[t] = (k + 127) << 23
        w = v - np.float32(k)
        values[t] = E0 + w * (E1 + w * (E2 + w * (E3 + w * (E4 + w * E5))))
    for t in range(n):
        values[t] *= power[t]


@njit_inline
def log_double(bits: Int64, mantissa_bits: Int64, mantissa: Float, out: Float, n: int) -> None:
    """out = log(y) for y > 0 given as its int64 view ``bits``; ``mantissa`` views ``mantissa_bits``."""
    for t in range(n):
        b = bits[t] + TO_ONE
        out[t] = (numba.int32(b >> 52) - 1023) * LOG_2_DOUBLE
        mantissa_bits[t] = (b & MANTISSA) + ROOT_HALF
    for t in range(n):
        z = mantissa[t]
        w = (z - 1.0) / (z + 1.0)
        s = w * w
        tail = 1 / 11 + s * (1 / 13 + s * (1 / 15 + s * (1 / 17 + s / 19)))
        series = 1 / 3 + s * (1 / 5 + s * (1 / 7 + s * (1 / 9 + s * tail)))
        out[t] += 2.0 * w * (1.0 + s * series)


@njit_inline
def exp_double(values: Float, power_bits: Int64, power: Float, n: int) -> None:
    """values = exp(values), limited to 2^-1020 .. 2^1020; ``power`` views ``power_bits``."""
    for t in range(n):
        v = min(max(values[t] * (1.0 / LOG_2_DOUBLE), -EXP2_LIMIT_DOUBLE), EXP2_LIMIT_DOUBLE)
        k = numba.int32(v + 2048.5) - numba.int32(2048)
        power_bits[t] = numba.int64(k + numba.int32(1023)) << 52
        w = v - k
        tail = P6 + w * (P7 + w * (P8 + w * (P9 + w * (P10 + w * P11))))
        values[t] = 1.0 + w * (P1 + w * (P2 + w * (P3 + w * (P4 + w * (P5 + w * tail)))))
    for t in range(n):
        values[t] *= power[t]
