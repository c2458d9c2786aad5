"""A count of a table that changes: noise once, then the true differences, added up. Not private but by assumption.

    value_1 = n_1 + Lap(1/ε₁)          value_t = value_{t-1} + n_t - n_{t-1}

The differences are exact: who knows the other rows sees an entry come and go. Only where the others' coming and going
is itself random noise, and assumed to be, is anything hidden: this mechanism is not made without an `Assumed`, which
nobody can check. The sound alternative is a release of changes (`changes.hdcr`, `changes.swcr`).

Guarantee, under the assumptions alone: ε₁ + (T - 1)·ln(1 + (1 - p)(e^η - 1)) for all T values. Neighbours: histories
that differ in one entry, which is in the count or not as `Assumed` says, against its absence. Proof: a path of the
entry with J changes of membership costs ε₁ + Jη, as each moves one difference by 1; averaged over paths,
E e^{ηJ} <= (1 + (1 - p)(e^η - 1))^{T-1}, and E e^{-ηJ} is no farther from 1. Source: sigma-counting, algorithm 5 and
theorem 5, whose assumptions (independent increments, survival p) do not suffice: where the others stand still, the
entry's leaving is seen for certain, so η is asked for as well.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from changeling_protocol import log_ratio

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..node_noise import NodeNoise, calibrated
from ..noise import Noise
from .domain import Table
from .query import Query


@dataclass(frozen=True, slots=True)
class Assumed:
    """What the caller states of the data, as nobody can check it.

    Without the entry, the changes of the count from one step to the next are independent of each other, of the first
    count (whose noise hides a row, and not a thousand: it may give them away) and of the entry, and each is distributed
    so that Pr(d + 1) and Pr(d) are within a factor `spread` = e^η for every d. The entry stays in the count, or out of
    it, from one step to the next with probability at least `survival`, whatever was.
    """

    spread: Fraction
    survival: Fraction

    def __post_init__(self) -> None:
        if not self.spread >= 1 or not 0 <= self.survival <= 1:
            raise ValueError(f"needs spread >= 1 and 0 <= survival <= 1, got {self.spread} and {self.survival}")

    def loss(self, steps: int) -> Fraction:
        """What the true differences of so many steps cost: (steps - 1)·ln(1 + (1 - p)(e^η - 1)) nats, rounded up."""
        growth = 1 + (1 - self.survival) * (self.spread - 1)
        return (steps - 1) * Fraction(log_ratio(growth.numerator, growth.denominator))


@dataclass(frozen=True, slots=True)
class EvolvingState:
    """What was released last, and what it stands for.

    steps: how many values are released. before: the last one, which is public. true: the count it stands for, which is
    not.

    query: its key, first: what the noise cost, so that it never serves another query, or a lower promise.
    """

    query: bytes
    first: Fraction
    steps: int = 0
    before: int = 0
    true: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Evolving(Mechanism[EvolvingState, Table, int]):
    """One query over T tables in a row. epsilon: the budget of all values, under the assumptions."""

    query: Query
    steps: int
    epsilon: Fraction
    assumed: Assumed

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"a count is released at least once, got {self.steps} steps")
        if not isinstance(self.assumed, Assumed):
            raise ValueError(
                "true differences are not private: state what is assumed of the data (`Assumed`), or release changes "
                "(`changes.hdcr`)"
            )
        if self.first <= 0:
            raise ValueError(
                f"what is assumed costs {float(self.assumed.loss(self.steps)):g} over {self.steps} steps: "
                f"nothing of {self.epsilon} is left for the first value"
            )

    @property
    def first(self) -> Fraction:
        """ε₁: what is left of epsilon for the first value."""
        return self.epsilon - self.assumed.loss(self.steps)

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all values together, if what is assumed holds."""
        told = "histories that differ in one entry, if all that is assumed of the data holds"
        return Guarantee(self.epsilon, Fraction(0), told, "sigma-counting, algorithm 5, under `Assumed`")

    @property
    def noise(self) -> NodeNoise:
        """The noise on the first value, the only one that is drawn."""
        return calibrated({1: 1}, self.first)

    def start(self) -> EvolvingState:
        """Before the first value."""
        return EvolvingState(self.query.key, self.first)

    def check(self, state: EvolvingState) -> None:
        """Raises BadState for another query's state, or other noise's."""
        if state.query != self.query.key or state.first != self.first:
            raise BadState("the state is of another query, or of other noise")
        if state.steps < 0:
            raise BadState(f"the state is of {state.steps} values")

    def identity(self) -> str:
        """Of any evolving count: the state says itself of which query it is, and at what cost."""
        return "Evolving"

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of every value, in rows squared: the first one's noise stands in all of them."""
        return self.noise.variance

    def step(self, state: EvolvingState, value: Table, noise: Noise) -> tuple[EvolvingState, int]:
        """value: the next table. Returns the noisy count of it. Raises BudgetExhausted after the last step."""
        if state.steps >= self.steps:
            raise BudgetExhausted(f"the guarantee covers {self.steps} values, and all of them are released")
        true = self.query.count(value)
        noisy = state.before - state.true if state.steps else int(self.noise.draw(noise, 1)[0])
        released = true + noisy
        return replace(state, steps=state.steps + 1, before=released, true=true), released
