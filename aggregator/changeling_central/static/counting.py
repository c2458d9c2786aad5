"""Basic counting: how many items a dataset holds.

Guarantee: epsilon (Laplace, whatever delta is allowed), or (epsilon, delta) (Gaussian), each time it is released.
Neighbours: datasets that differ by one item. Source: Dwork, McSherry, Nissim, Smith 2006; Qiu, Yi, appendix A.1.
"""

from dataclasses import dataclass
from fractions import Fraction

from ..concentrated import concentrated_budget, gaussian_scale
from ..node_noise import Law, NodeNoise, calibrated
from ..noise import Noise
from ..whole import whole
from .interface import check_price


@dataclass(frozen=True, slots=True)
class PricedCount:
    """Basic counting with noise of a certain scale, `drawn`."""

    drawn: NodeNoise

    @property
    def variance(self) -> float:
        """Of the count, in items squared."""
        return self.drawn.variance

    def release(self, data: int, noise: Noise) -> int:
        """The size with noise; it may be negative."""
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

    @property
    def source(self) -> str:
        """Where the guarantee is proved."""
        return "Dwork, McSherry, Nissim, Smith 2006; Qiu, Yi, appendix A.1"

    def gathered(self, items: list[int]) -> int:
        """How many items these are."""
        return len(items)

    def size(self, data: int) -> int:
        """The dataset itself."""
        return data

    def checked(self, data: int) -> int:
        """The dataset. ValueError for what is no whole number."""
        size = whole(data)
        if size is None:
            raise ValueError(f"the dataset of basic counting is a whole number, got a {type(data).__name__}")
        return size

    def zero(self) -> int:
        """The answer on no items: 0."""
        return 0

    def truth(self, data: int) -> int:
        """The size."""
        return data

    def under(self, epsilon: Fraction, delta: Fraction) -> PricedCount:
        """Counting at (epsilon, delta). ValueError for Gaussian noise without a delta."""
        check_price(epsilon, delta)
        if self.law is Law.LAPLACE:
            return PricedCount(calibrated({1: 1}, epsilon))
        return PricedCount(NodeNoise(Law.GAUSSIAN, gaussian_scale(1, concentrated_budget(epsilon, delta))))
