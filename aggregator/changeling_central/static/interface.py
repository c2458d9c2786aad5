"""What a static mechanism is: a class of linear queries, to which a price is put before anything is released.

A dataset is its histogram over the items 0..x-1, or one number where there is but one item; answers are integers in
multiples of 1/grain, so that they add up exactly over disjoint datasets and states hold no floats.
"""

from fractions import Fraction
from typing import Protocol, TypeVar

import numpy as np
from changeling_statistics.tallies import Counts

from ..errors import BadState
from ..noise import Noise

Data = TypeVar("Data", int, Counts)
"""A dataset, or answers: a number, or counts of shape (x,) and (q,)."""


class Priced(Protocol[Data]):
    """A static mechanism at its price.

    variance: of every answer, in units squared; None where answers are not the truth plus independent noise.
    """

    @property
    def variance(self) -> float | None: ...

    def release(self, data: Data, noise: Noise) -> Data:
        """Answers on this dataset: they cost the price, each time."""
        ...


class Static(Protocol[Data]):
    """Linear queries f(D) = Σ_{x in D} f(x), 0 <= f <= 1. Neighbours: datasets that differ by one item.

    items: how many items there are. grain: answers are in multiples of 1/grain.
    """

    @property
    def items(self) -> int: ...

    @property
    def grain(self) -> int: ...

    def gathered(self, items: list[int]) -> Data:
        """The dataset of these items."""
        ...

    def size(self, data: Data) -> int:
        """How many items the dataset holds."""
        ...

    def checked(self, data: Data) -> Data:
        """The dataset, if it is one. ValueError for anything else."""
        ...

    def zero(self) -> Data:
        """Answers on the empty dataset."""
        ...

    def truth(self, data: Data) -> Data:
        """Answers without noise, for tests and simulations."""
        ...

    def under(self, epsilon: Fraction, delta: Fraction) -> Priced[Data]:
        """The mechanism at (epsilon, delta). ValueError where it cannot be had at this price."""
        ...


def checked_price(epsilon: Fraction, delta: Fraction) -> None:
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ValueError(f"a price has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")


def as_plain(value: Data) -> int | list[int]:
    """A number, or a list of numbers, as a state writes it down."""
    return value if isinstance(value, int) else [int(one) for one in value]


def from_plain(plain: object, like: Data) -> Data:
    """What `as_plain` wrote, of the same shape as `like`. Raises BadState for anything else."""
    if isinstance(like, int):
        if type(plain) is int:
            return plain
    elif isinstance(plain, list) and len(plain) == len(like) and all(type(one) is int for one in plain):
        try:
            return np.array(plain, np.int64)
        except OverflowError:
            pass
    raise BadState("a saved dataset or answer is not of this mechanism's shape")
