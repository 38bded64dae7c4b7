"""What a chain learns about itself while it warms up: step size and theta's scales."""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float

TARGET_ACCEPTANCE = 0.75
THETA_SCALES = np.array([0.5, 0.2, 0.2, 0.5])
CLEAR_DISPERSION = 0.05  # 1 / s0
SIZE_INFORMATION = 60.0  # entries over the inverse square of its coordinate's scale


def first_scales(n_entries: int, inverse_size: float) -> Float:
    """Where theta's scales start.

    Overdispersed data know s0 the better the more there are; steps too long for it would be refused until the
    scales have been learnt.
    """
    scales = THETA_SCALES.copy()
    if inverse_size > CLEAR_DISPERSION:
        scales[0] = min(scales[0], math.sqrt(SIZE_INFORMATION / n_entries))
    return np.asarray(scales)


class StepSize:
    """Dual averaging towards the target acceptance (Hoffman and Gelman 2014, section 3.2)."""

    def __init__(self, first: float):
        self.log_step = self.log_average = math.log(first)
        self.centre = math.log(2.0 * first)
        self.gap = 0.0
        self.count = 0

    def learn(self, probability: float) -> None:
        self.count += 1
        weight = 1.0 / (self.count + 5)
        self.gap = (1.0 - weight) * self.gap + weight * (TARGET_ACCEPTANCE - probability)
        self.log_step = min(self.centre - math.sqrt(self.count) / 0.2 * self.gap, math.log(1.2))
        eta = self.count**-0.75
        self.log_average = eta * self.log_step + (1.0 - eta) * self.log_average

    def value(self, warming: bool) -> float:
        return math.exp(self.log_step if warming else self.log_average)


class ThetaSpread:
    """Running standard deviations of theta's coordinates, shrunk to the starting scales."""

    def __init__(self, first: Float) -> None:
        self.first = first
        self.count = 0
        self.mean = np.zeros(THETA_SCALES.size)
        self.squares = np.zeros(THETA_SCALES.size)

    def add(self, t: Float) -> None:
        self.count += 1
        delta = t - self.mean
        self.mean += delta / self.count
        self.squares += delta * (t - self.mean)

    def scales(self) -> Float:
        if self.count < 10:
            return self.first
        return np.asarray(1.2 * np.sqrt((self.squares + 0.05) / (self.count + 5)))
