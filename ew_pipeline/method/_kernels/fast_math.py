"""Logarithm and exponential in single precision, written so that LLVM turns them into SIMD code.

Used only for the *gradients* that steer the sampler's trajectories, and where an iteration comes to rest. A
trajectory is accepted or refused with the double-precision density, so an error here costs acceptance rate,
never correctness. Errors against libm: below 3e-6 (absolute, log) and 5e-6 (relative, exp). Tests hold them.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ew_pipeline.core.arrays import Float32, Int32
from ew_pipeline.core.kernels import njit_inline

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
