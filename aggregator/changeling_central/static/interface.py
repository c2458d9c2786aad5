"""What a static mechanism is: a class of linear queries, to which a price is put before anything is released.

A dataset is its histogram over the items 0..x-1, or one number where there is but one item; answers are integers in
multiples of 1/grain, so that they add up exactly over disjoint datasets and states hold no floats.
"""

from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeVar

from changeling_statistics import Counts

from ..errors import BadState
from ..noise import Noise
from ..states import check_counts

if TYPE_CHECKING:
    Data = TypeVar("Data", int, Counts)
    """A dataset, or answers: a number, or counts of shape (x,) and (q,)."""
else:
    Data = TypeVar("Data")  # msgspec reads states by their types, and knows no constraints

NEIGHBOURS = "datasets that differ by one item"


class Priced(Protocol[Data]):
    """A static mechanism at its price.

    variance: of every answer, in units squared; None where answers are not the truth plus independent noise.
    """

    @property
    def variance(self) -> float | None:
        """Of every answer, in units squared, or None."""
        ...

    def release(self, data: Data, noise: Noise) -> Data:
        """Answers on this dataset, in multiples of 1/grain. Every call costs the price."""
        ...


class Static(Protocol[Data]):
    """Linear queries f(D) = Σ_{x in D} f(x), 0 <= f <= 1. Neighbours: datasets that differ by one item.

    items: how many items there are. grain: answers are in multiples of 1/grain. source: where the guarantee is proved.
    """

    @property
    def items(self) -> int:
        """How many items there are."""
        ...

    @property
    def grain(self) -> int:
        """Answers are in multiples of 1/grain."""
        ...

    @property
    def source(self) -> str:
        """Where the guarantee is proved."""
        ...

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


def check_price(epsilon: Fraction, delta: Fraction) -> None:
    """ValueError unless epsilon > 0 and 0 <= delta < 1."""
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ValueError(f"a price has epsilon > 0 and 0 <= delta < 1, got {epsilon} and {delta}")


def check_data(static: Static[Data], data: Data) -> None:
    """Raises BadState unless a state's dataset has the shape of this mechanism's datasets."""
    _check_like(data, static.gathered([]))


def check_answers(static: Static[Data], answers: Data) -> None:
    """Raises BadState unless a state's answers have the shape of this mechanism's answers."""
    _check_like(answers, static.zero())


def _check_like(value: Data, like: Data) -> None:
    if isinstance(like, int):
        if type(value) is not int:
            raise BadState(f"the state holds a {type(value).__name__} where a whole number belongs")
    elif isinstance(value, int) or not hasattr(value, "dtype"):
        raise BadState(f"the state holds a {type(value).__name__} where an array belongs")
    else:
        check_counts(value, like.shape)
