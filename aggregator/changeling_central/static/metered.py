"""A static mechanism asked again and again, on data that change or stay, until its odometer refuses.

Guarantee: (epsilon, delta) for everything that is ever released, the prices of the steps added up (basic composition).
Neighbours: datasets that differ by one item, at every step at once. Source: the static mechanism's.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..odometer import Odometer
from .interface import NEIGHBOURS, Data, Static


@dataclass(frozen=True, slots=True)
class Metered(Mechanism[Odometer, Data, Data], Generic[Data]):
    """The answers of `static` on one dataset after another, each at the price (each, each_delta).

    epsilon, delta: the budget of all steps. ValueError where the answers cannot be had at this price, or not once.
    """

    static: Static[Data]
    epsilon: Fraction
    each: Fraction
    delta: Fraction = Fraction(0)
    each_delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        self.static.under(self.each, self.each_delta)
        if self.each > self.epsilon or self.each_delta > self.delta:
            raise ValueError(
                f"one step costs epsilon {self.each}, delta {self.each_delta}, more than the budget of {self.epsilon} "
                f"and {self.delta}"
            )

    @property
    def guarantee(self) -> Guarantee:
        """The budget, for all steps together."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, self.static.source)

    def start(self) -> Odometer:
        """Nothing is spent."""
        return Odometer(self.epsilon, self.delta)

    def step(self, state: Odometer, value: Data, noise: Noise) -> tuple[Odometer, Data]:
        """value: the dataset. Returns the answers on it, in multiples of 1/grain.

        Raises BudgetExhausted where the step costs more than what is left, and ValueError for what is no dataset.
        """
        data = self.static.checked(value)
        after = state.charged(self.each, self.each_delta)
        return after, self.static.under(self.each, self.each_delta).release(data, noise)

    def check(self, state: Odometer) -> None:
        """Raises BadState for another budget, or for what so many whole steps do not spend."""
        steps = state.spent_epsilon / self.each
        spent = self.each_delta * steps
        if (state.epsilon, state.delta) != (self.epsilon, self.delta) or steps.denominator != 1:
            raise BadState(f"the state is of a budget of {state.epsilon}, of which {state.spent_epsilon} are spent")
        if not 0 <= state.spent_epsilon <= self.epsilon or not state.spent_delta == spent <= self.delta:
            raise BadState(f"the state has spent epsilon {state.spent_epsilon} and delta {state.spent_delta}")

    def variance(self, step: int) -> float | None:  # noqa: ARG002
        """Of every answer, in multiples of 1/grain squared."""
        return self.static.under(self.each, self.each_delta).variance
