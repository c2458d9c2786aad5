"""Noise for tests: none, fast and seeded, counted, or forbidden."""

import numpy as np


class NoNoise:
    """Every draw is 0, so that a release is the truth."""

    def laplace(self, scale, size):  # noqa: ARG002
        return np.zeros(size, np.int64)

    gaussian = laplace


class FastNoise:
    """The same laws as OpenDP's, from a seeded float generator: for audits only."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def laplace(self, scale, size):
        stop = -np.expm1(-1 / scale)
        return self.random.geometric(stop, size) - self.random.geometric(stop, size)

    def gaussian(self, scale, size):
        return np.rint(self.random.normal(0, scale, size)).astype(np.int64)


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
