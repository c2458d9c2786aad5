"""Noise for tests: none, counted, or forbidden. Fast and seeded is `SeededNoise`, the benchmarks'."""

import numpy as np


class NoNoise:
    """Every draw is 0, so that a release is the truth."""

    def laplace(self, scale, size):  # noqa: ARG002
        return np.zeros(size, np.int64)

    gaussian = laplace


class CountedNoise(NoNoise):
    """Remembers how many draws were asked for."""

    def __init__(self):
        self.drawn = 0

    def laplace(self, scale, size):
        self.drawn += size
        return super().laplace(scale, size)

    gaussian = laplace


class Forbidden:
    """Fails the test when anything is drawn."""

    def laplace(self, scale, size):
        raise AssertionError(f"drew {size} at scale {scale}")

    gaussian = laplace


class Scales(NoNoise):
    """Remembers the laws and scales that were asked for."""

    def __init__(self):
        self.asked = []

    def laplace(self, scale, size):
        self.asked.append(("laplace", scale, size))
        return np.zeros(size, np.int64)

    def gaussian(self, scale, size):
        self.asked.append(("gaussian", scale, size))
        return np.zeros(size, np.int64)
