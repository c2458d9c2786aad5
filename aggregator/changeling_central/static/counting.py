"""Basic counting: how many items a dataset holds.

Guarantee: epsilon (Laplace, whatever delta is allowed), or (epsilon, delta) (Gaussian), each time it is released.
Neighbours: datasets that differ by one item. Source: Dwork, McSherry, Nissim, Smith 2006; Qiu, Yi, appendix A.1.
"""

from dataclasses import dataclass
from fractions import Fraction

from ..node_noise import Law, NodeNoise, calibrated
from ..noise import Noise
from .concentrated import concentrated_budget, gaussian_scale
from .interface import checked_price


@dataclass(frozen=True, slots=True)
class PricedCount:
    drawn: NodeNoise

    @property
    def variance(self) -> float:
        return self.drawn.variance

    def release(self, data: int, noise: Noise) -> int:
        return data + int(self.drawn.draw(noise, 1)[0])


@dataclass(frozen=True, slots=True)
class BasicCounting:
    """The number of items, of which there is one kind: a dataset is its size."""

    law: Law = Law.LAPLACE
    items: int = 1
    grain: int = 1

    def __post_init__(self) -> None:
        if self.items != 1 or self.grain != 1:
            raise ValueError(f"basic counting knows one item and grain 1, got {self.items} and {self.grain}")

    def gathered(self, items: list[int]) -> int:
        return len(items)

    def size(self, data: int) -> int:
        return data

    def checked(self, data: int) -> int:
        if type(data) is not int:
            raise ValueError(f"the dataset of basic counting is a whole number, got a {type(data).__name__}")
        return data

    def zero(self) -> int:
        return 0

    def truth(self, data: int) -> int:
        return data

    def under(self, epsilon: Fraction, delta: Fraction) -> PricedCount:
        checked_price(epsilon, delta)
        if self.law is Law.LAPLACE:
            return PricedCount(calibrated({1: 1}, epsilon))
        return PricedCount(NodeNoise(Law.GAUSSIAN, gaussian_scale(1, concentrated_budget(epsilon, delta))))
