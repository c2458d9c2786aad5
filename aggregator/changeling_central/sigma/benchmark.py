"""The benchmark: every query gets its own noise and pays its own part of the budget, until the budget is spent.

Guarantee: epsilon for all answers together, epsilon/n each. Neighbours: tables that differ by one row added or
removed; of one replaced the same, as it moves a count by 1 as well. Nested queries may come out in the wrong order, and
a query asked twice pays twice. Source: sigma-counting, algorithm 1; sequential composition.
"""

from dataclasses import dataclass
from fractions import Fraction

from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
from ..node_noise import NodeNoise, calibrated
from ..noise import Noise
from ..odometer import Odometer
from .answer import ADDED_OR_REMOVED, Answer
from .domain import Table
from .query import Query


@dataclass(frozen=True, slots=True)
class BenchmarkState:
    """spent: the epsilon of all answers so far, whatever each of them cost when it was given."""

    spent: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Benchmark(Mechanism[BenchmarkState, tuple[Table, Query], Answer]):
    """Answers to one query a step. epsilon: the budget of all answers. each: what one of them costs (ValueError)."""

    epsilon: Fraction
    each: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.each <= self.epsilon:
            raise ValueError(f"one answer costs more than 0 and at most {self.epsilon}, got {self.each}")

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all answers together."""
        return Guarantee(self.epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 1")

    @property
    def noise(self) -> NodeNoise:
        """The noise on one answer."""
        return calibrated({1: 1}, self.each)

    def start(self) -> BenchmarkState:
        """Nothing is spent."""
        return BenchmarkState()

    def step(self, state: BenchmarkState, value: tuple[Table, Query], noise: Noise) -> tuple[BenchmarkState, Answer]:
        """value: a table, and the query of it that is answered.

        Raises BudgetExhausted before the answer that would cost more than is left.
        """
        odometer = Odometer(self.epsilon, spent_epsilon=state.spent).charged(self.each)
        table, query = value
        true, law = query.count(table), self.noise
        noisy = true + int(law.draw(noise, 1)[0])
        return BenchmarkState(odometer.spent_epsilon), Answer(noisy, noisy, 1, law)

    def check(self, state: BenchmarkState) -> None:
        """Raises BadState where less than nothing is spent."""
        if state.spent < 0:
            raise BadState("what is spent is not negative")

    def identity(self) -> str:
        """Of any benchmark: the state says itself what is spent, whatever an answer costs."""
        return "Benchmark"

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of every answer, in rows squared."""
        return self.noise.variance
