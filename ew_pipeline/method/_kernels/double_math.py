"""Logarithm and exponential in double precision, written so that LLVM turns them into SIMD code.

The mathematical library takes one number at a time. These take a stretch of them, four to an instruction,
with errors that tests hold: 1e-15 relative for the logarithm, 1e-13 for the exponential.
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float, Int64
from ew_pipeline.core.kernels import njit_fast

LOG_2 = math.log(2.0)
PER_LOG_2 = 1.0 / LOG_2
ROOT_HALF = math.sqrt(0.5)
LARGEST_POWER = 708.0  # exp beyond this is no normal double
MANTISSA, EXPONENT_OF_ONE = (1 << 52) - 1, 1023 << 52


@njit_fast
def log_into(values: Float, bits: Int64, work: Float, work_bits: Int64, out: Float, n: int) -> None:
    """out = log(values) for positive, normal values; ``bits`` and ``work_bits`` view ``values`` and ``work``.

    With values = 2^k z, z in [1/sqrt 2, sqrt 2) and t = (z - 1) / (z + 1):
    log = k log 2 + 2 t (1 + t^2 / 3 + t^4 / 5 + ...).
    """
    for e in range(n):
        work_bits[e] = (bits[e] & MANTISSA) | EXPONENT_OF_ONE
        out[e] = np.float64(np.int32(bits[e] >> 52) - np.int32(1023))
    for e in range(n):
        z = work[e] * 0.5  # in [1/2, 1)
        small = 1.0 if z < ROOT_HALF else 0.0
        z += z * small
        k = out[e] + 1.0 - small
        t = np.divide(z - 1.0, z + 1.0)
        s = t * t
        series = 1.0 / 19.0 + s * (1.0 / 21.0)
        series = 1.0 / 15.0 + s * (1.0 / 17.0 + s * series)
        series = 1.0 / 11.0 + s * (1.0 / 13.0 + s * series)
        series = 1.0 / 7.0 + s * (1.0 / 9.0 + s * series)
        series = 1.0 / 3.0 + s * (1.0 / 5.0 + s * series)
        out[e] = k * LOG_2 + 2.0 * t * (1.0 + s * series)


@njit_fast
def exp_inplace(values: Float, power: Float, power_bits: Int64, n: int) -> None:
    """values = exp(values), limited to normal doubles; ``power_bits`` views ``power``, working space.

    2^k exp(w) with |w| <= log(2) / 2, the latter by its Taylor series.
    """
    for e in range(n):
        v = min(max(values[e], -LARGEST_POWER), LARGEST_POWER)
        k = np.int32(v * PER_LOG_2 + 1024.5) - np.int32(1024)
        power_bits[e] = np.int64(k + np.int32(1023)) << 52
        w = v - k * LOG_2
        series = 1.0 / 39916800.0 + w * (1.0 / 479001600.0)
        series = 1.0 / 362880.0 + w * (1.0 / 3628800.0 + w * series)
        series = 1.0 / 5040.0 + w * (1.0 / 40320.0 + w * series)
        series = 1.0 / 120.0 + w * (1.0 / 720.0 + w * series)
        series = 1.0 / 6.0 + w * (1.0 / 24.0 + w * series)
        values[e] = 1.0 + w * (1.0 + w * (0.5 + w * series))
    for e in range(n):
        values[e] *= power[e]
