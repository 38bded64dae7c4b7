"""Single-precision numbers that become doubles in their place.

A large fit works in single precision and ends with doubles. As arrays of their own these would be as much
memory again, and at 1e7 pairs getting it from the system takes longer than any pass over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float, Float32

CHUNK = 1 << 16  # entries that are doubled at a time, by way of a copy in a near cache


@dataclass(frozen=True, eq=False)
class Widening:
    """``space`` is of doubles; its first half holds the single-precision numbers."""

    space: Float

    @classmethod
    def of(cls, size: int) -> Widening:
        return cls(np.empty(size))

    @property
    def single(self) -> Float32:
        return self.space.view(np.float32)[: self.space.size]

    def doubled(self) -> Float:
        """The same numbers as doubles. What was ``single`` means nothing afterwards."""
        single = self.single
        # from the end on: no double is written where a number is that has not been read
        for first in range((self.space.size - 1) // CHUNK * CHUNK, -1, -CHUNK):
            part = slice(first, first + CHUNK)
            self.space[part] = single[part].copy()
        return self.space
