"""Noise for benchmarks: OpenDP's laws from a seeded generator, much faster and repeatable. Never for releases."""

import numpy as np
from changeling_statistics import Counts


class SeededNoise:
    """Discrete Laplace as a difference of two geometric variables; discrete Gaussian as a rounded normal one, whose law
    is the same to 1e-8 at scales of 2 and above."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def laplace(self, scale: float, size: int) -> Counts:
        stop = -np.expm1(-1 / scale)
        drawn: Counts = self._random.geometric(stop, size) - self._random.geometric(stop, size)
        return drawn

    def gaussian(self, scale: float, size: int) -> Counts:
        variance = scale**2 - 1 / 12
        drawn: Counts = np.rint(self._random.normal(0, np.sqrt(variance), size)).astype(np.int64)
        return drawn
