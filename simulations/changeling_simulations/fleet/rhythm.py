"""When devices are awake: a day's curve, with its peak and its quiet hours."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DAY_SECONDS = 86_400
Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How many devices are awake through the day: in proportion to 1 + swing·cos(2π(h - peak)/24).

    swing: from 0, which is the same at all hours, to 1, which is nobody in the quietest. peak: the busiest hour, UTC.
    """

    swing: float = 0.6
    peak: float = 18.0

    def __post_init__(self) -> None:
        if not 0 <= self.swing <= 1:
            raise ValueError(f"a day swings by 0 to 1 about its mean, got {self.swing}")

    def intensity(self, times: Times) -> Times:
        """How many are awake, beside the day's mean, which is 1. times: Unix seconds."""
        angle = 2 * np.pi * (times / DAY_SECONDS - self.peak / 24)
        curve: Times = 1 + self.swing * np.cos(angle)
        return curve

    def draw(self, after: Times, within: float, generator: np.random.Generator) -> Times:
        """For each device a moment at which it is awake, by the curve: in (after, after + within).

        after: Unix seconds, of any shape. within: seconds. Given how many devices there are, these are the arrivals of
        a Poisson process whose rate follows the curve.
        """
        drawn = after + within * generator.random(after.shape)
        left = np.ones(after.shape, bool)
        while left.any():
            left[left] = generator.random(int(left.sum())) * (1 + self.swing) > self.intensity(drawn[left])
            drawn[left] = after[left] + within * generator.random(int(left.sum()))
        return drawn
