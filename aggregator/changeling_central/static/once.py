"""A static mechanism as one of a single step: a dataset in, its answers out, and the budget is spent.

Guarantee: the static mechanism's own, for one dataset. Neighbours: datasets that differ by one item. Source: the
static mechanism's.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

from ..errors import BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from .interface import NEIGHBOURS, Data, Static


@dataclass(frozen=True, slots=True)
class OnceState:
    """released: whether the answers are out."""

    released: bool = False


@dataclass(frozen=True, slots=True)
class Once(Mechanism[OnceState, Data, Data], Generic[Data]):
    """The answers of `static` on one dataset, at (epsilon, delta). ValueError where it cannot be had at this price."""

    static: Static[Data]
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self.static.under(self.epsilon, self.delta)

    @property
    def guarantee(self) -> Guarantee:
        """The price, for one dataset."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, self.static.source)

    def start(self) -> OnceState:
        """The answers are not yet out."""
        return OnceState()

    def step(self, state: OnceState, value: Data, noise: Noise) -> tuple[OnceState, Data]:
        """value: the dataset. Returns the answers on it, in multiples of 1/grain.

        Raises BudgetExhausted for a second dataset, and ValueError for what is no dataset.
        """
        if state.released:
            raise BudgetExhausted("the answers are released, and the budget is spent: more data need more budget")
        data = self.static.checked(value)
        return OnceState(True), self.static.under(self.epsilon, self.delta).release(data, noise)

    def check(self, state: OnceState) -> None:
        """Any such state is one of this mechanism's."""

    def variance(self, step: int) -> float | None:  # noqa: ARG002
        """Of every answer, in multiples of 1/grain squared."""
        return self.static.under(self.epsilon, self.delta).variance
