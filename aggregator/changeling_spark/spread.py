"""Over which buckets a run's ids are spread: by a hash under numbers that are drawn for the run.

All closings with one id of one period are in one bucket, and those of one period in all of them: so no node, however
many report on it, is more work for one task than for another. Who sends uploads does not know the numbers, and cannot
choose ids that meet in one bucket.
"""

import secrets
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Spread:
    """A hash of ids and periods.

    buckets: how many. high, low, period: odd numbers below 2^64, by which the two halves of an id and its period are
    multiplied.
    """

    buckets: int
    high: int
    low: int
    period: int

    def __post_init__(self) -> None:
        if not 1 <= self.buckets < 2**31:
            raise ValueError(f"ids are spread over 1 to 2^31 - 1 buckets, got {self.buckets}")

    @classmethod
    def drawn(cls, buckets: int) -> "Spread":
        """Over so many buckets, with fresh numbers."""
        high, low, period = (secrets.randbits(64) | 1 for _ in range(3))
        return cls(buckets, high, low, period)

    def bucket(self, high: NDArray[np.uint64], low: NDArray[np.uint64], period: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of each closing, by its id's halves and its period."""
        mixed = high.astype(np.uint64) * np.uint64(self.high) + low.astype(np.uint64) * np.uint64(self.low)
        mixed += period.astype(np.uint64) * np.uint64(self.period)
        return ((mixed >> np.uint64(33)) * np.uint64(self.buckets) >> np.uint64(31)).astype(np.int64)
