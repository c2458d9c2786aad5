"""Sigma-counting: many counting queries of one table, of which nested ones are never out of order.

    Benchmark        every query gets its own noise and pays its own part of the budget (algorithm 1)
    SigmaCounting    noise once for each atom of the queries' sigma-algebra, then any union of atoms is added (2)
    Evolving         a count of a table that changes; private only under assumptions that its caller states (5)

Guarantee: epsilon for all answers together. Neighbours: tables that differ by one row added or removed; a row that is
replaced costs twice (`under_replacement`), except of the benchmark. What is asked, and when, counts as public.
Source: sigma-counting, algorithms 1, 2 and 5, theorems 1 and 5; algorithms 3 and 4 are in `grouped`.

>>> from fractions import Fraction
>>> from changeling_central import OpenDPNoise
>>> from changeling_papers import Algebra, Domain, Query, SigmaCounting
>>> domain = Domain.of(age=range(121), city=["Paris", "Rome", "elsewhere"])
>>> adults, romans = Query.of(domain, "age >= 18"), Query.of(domain, "18 <= age < 65 and city == 'Rome'")
>>> counting = SigmaCounting(Algebra.of([adults, romans]), Fraction(1))
>>> table = domain.table({"age": [12, 30, 44, 80], "city": ["Rome", "Rome", "Paris", "Rome"]})
>>> state, _ = counting.step(counting.start(), table, OpenDPNoise())
>>> counting.answer(state, romans).value <= counting.answer(state, adults).value
True
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import sqrt

import numpy as np
from changeling_central import (
    BadState,
    BudgetExhausted,
    Guarantee,
    Mechanism,
    NodeNoise,
    Noise,
    calibrated,
    check_counts,
    check_left,
    interval,
)
from changeling_protocol import log_ratio
from changeling_statistics import Counts

from .queries import Algebra, Atoms, Query, Table
from .static import Odometer

ADDED_OR_REMOVED = "tables that differ by one row added or removed"
REPLACED = "tables that differ in one row replaced"


@dataclass(frozen=True, slots=True)
class NoisyCount:
    """The number of rows that satisfy a query, with noise.

    value: never out of order among nested queries, where the mechanism promises that. estimate: without bias, before
    anything is clipped. atoms: how many draws of `noise` the estimate adds up.
    """

    value: int
    estimate: int
    atoms: int
    noise: NodeNoise

    @property
    def standard_error(self) -> float:
        """The standard error of the estimate, in rows."""
        return sqrt(self.atoms * self.noise.variance)

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the estimate's 95% interval; exactly 0 for a query that no row satisfies."""
        return interval(self.estimate, self.standard_error) if self.atoms else (0.0, 0.0)


def under_replacement(guarantee: Guarantee) -> Guarantee:
    """The guarantee where one row is replaced, which is a removal and an addition: twice the epsilon (group privacy).

    guarantee: about one row added or removed; ValueError for other neighbours.
    """
    if guarantee.neighbours != ADDED_OR_REMOVED:
        raise ValueError(f"this guarantee speaks of {guarantee.neighbours}")
    return Guarantee(2 * guarantee.epsilon, Fraction(0), REPLACED, guarantee.source)


@dataclass(frozen=True, slots=True)
class BenchmarkState:
    """spent: the epsilon of all answers so far, whatever each of them cost when it was given."""

    spent: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Benchmark(Mechanism[BenchmarkState, tuple[Table, Query], NoisyCount]):
    """Answers to one query a step. epsilon: the budget of all answers. each: what one of them costs (ValueError)."""

    neighbours = ADDED_OR_REMOVED
    source = "sigma-counting, algorithm 1"
    epsilon: Fraction
    each: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.each <= self.epsilon:
            raise ValueError(f"one answer costs more than 0 and at most {self.epsilon}, got {self.each}")

    @property
    def noise(self) -> NodeNoise:
        """The noise on one answer."""
        return calibrated({1: 1}, self.each)

    def start(self) -> BenchmarkState:
        """Nothing is spent."""
        return BenchmarkState()

    def step(
        self, state: BenchmarkState, value: tuple[Table, Query], noise: Noise
    ) -> tuple[BenchmarkState, NoisyCount]:
        """value: a table, and the query of it that is answered.

        Raises BudgetExhausted before the answer that would cost more than is left.
        """
        odometer = Odometer(self.epsilon, spent_epsilon=state.spent).charged(self.each)
        table, query = value
        true, law = query.count(table), self.noise
        noisy = true + int(law.draw(noise, 1)[0])
        return BenchmarkState(odometer.spent_epsilon), NoisyCount(noisy, noisy, 1, law)

    def check(self, state: BenchmarkState) -> None:
        """Raises BadState where less than nothing is spent."""
        if state.spent < 0:
            raise BadState("what is spent is not negative")

    def identity(self) -> str:
        """The same for any benchmark: the state says itself what is spent, whatever an answer costs."""
        return "Benchmark"

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every answer, in rows squared."""
        return self.noise.variance


@dataclass(frozen=True, slots=True, eq=False)
class SigmaState:
    """The atoms' counts with noise. Holds no true count.

    noisy: the atoms' counts with noise, not clipped, shape (atoms,); None before they are drawn.

    algebra: its key, so that no other's atoms are ever taken for these. epsilon: what they cost, for the same reason.
    """

    algebra: bytes
    epsilon: Fraction
    noisy: Counts | None = None


@dataclass(frozen=True, slots=True)
class SigmaCounting(Mechanism[SigmaState, Table, Counts]):
    """All queries of an algebra, over one table: one step draws for all atoms, then answers are free.

        value(Q) = Σ max(0, |atom| + Lap(1/epsilon)) over the atoms of Q         estimate(Q): the same, not clipped

    Atoms are disjoint, so epsilon covers all of them (parallel composition). Empty atoms get noise like the others, so
    clipping adds p/(1 - p²), p = e^-epsilon, about 1/(2·epsilon), to the expected value for each empty atom; estimates
    are free of that, and may be out of order.
    """

    neighbours = ADDED_OR_REMOVED
    source = "sigma-counting, algorithm 2"
    algebra: Algebra
    epsilon: Fraction
    noise: NodeNoise = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", calibrated({1: 1}, self.epsilon))

    def start(self) -> SigmaState:
        """Nothing is drawn."""
        return SigmaState(self.algebra.key, self.epsilon)

    def check(self, state: SigmaState) -> None:
        """Raises BadState for another algebra's state, other noise's, or another number of atoms."""
        if state.algebra != self.algebra.key or state.epsilon != self.epsilon:
            raise BadState("the state is of another algebra, or of other noise")
        if state.noisy is not None:
            check_counts(state.noisy, (self.algebra.atoms,))

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every atom's count, in rows squared. An answer states its own, of all the atoms it adds up."""
        return self.noise.variance

    def step(self, state: SigmaState, value: Table, noise: Noise) -> tuple[SigmaState, Counts]:
        """value: the table. Returns the noisy counts of its atoms, shape (atoms,), drawn once.

        Raises BudgetExhausted for a second table.
        """
        if state.noisy is not None:
            raise BudgetExhausted("the atoms' noise is drawn, and the budget spent: another table needs another budget")
        true = self.algebra.count(value)
        noisy = true + self.noise.draw(noise, self.algebra.atoms)
        return replace(state, noisy=noisy), noisy.copy()

    def answer(self, state: SigmaState, query: Query) -> NoisyCount | None:
        """The answer to a query of the algebra, which costs nothing more; None for any other query.

        ValueError before the noise is drawn.
        """
        atoms = self.algebra.members(query)
        return None if atoms is None else self.summed(state, atoms)

    def summed(self, state: SigmaState, atoms: Atoms) -> NoisyCount:
        """The answer to the union of these atoms. ValueError before the noise is drawn."""
        if state.noisy is None:
            raise ValueError("there is nothing to answer from yet: draw first (`step`)")
        held = state.noisy[atoms]
        return NoisyCount(int(np.maximum(held, 0).sum()), int(held.sum()), len(atoms), self.noise)


@dataclass(frozen=True, slots=True)
class Assumed:
    """A statement of the caller about the data, which nobody can check.

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
        """The cost of the true differences of so many steps: (steps - 1)·ln(1 + (1 - p)(e^η - 1)) nats, rounded up."""
        growth = 1 + (1 - self.survival) * (self.spread - 1)
        return (steps - 1) * Fraction(log_ratio(growth.numerator, growth.denominator))


@dataclass(frozen=True, slots=True)
class EvolvingState:
    """The value that was released last, and the count it stands for, which is not public.

    steps: how many values are released. query: its key, first: what the noise cost, so that it never serves another
    query, or a lower promise.
    """

    query: bytes
    first: Fraction
    steps: int = 0
    before: int = 0
    true: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Evolving(Mechanism[EvolvingState, Table, int]):
    """One query over T tables in a row: noise once, then the true differences. Not private but by assumption.

        value_1 = n_1 + Lap(1/ε₁)          value_t = value_{t-1} + n_t - n_{t-1}

    The differences are exact, and deterministic ones are not private: who knows the other rows sees an entry come and
    go. Only where the others' coming and going is itself random noise, and assumed to be, is anything hidden: so this
    is not made without an `Assumed`, which nobody can check. The sound alternative is a release of changes
    (`changeling_central.hierarchy`, `sliding_windows`).

    Guarantee, under the assumptions alone: ε₁ + (T - 1)·ln(1 + (1 - p)(e^η - 1)) for all T values. Neighbours:
    histories that differ in one entry, which is in the count or not as `Assumed` says, against its absence. Proof: a
    path of the entry with J changes of membership costs ε₁ + Jη, as each moves one difference by 1; averaged over
    paths, E e^{ηJ} <= (1 + (1 - p)(e^η - 1))^{T-1}, and E e^{-ηJ} is no farther from 1. Theorem 5's assumptions
    (independent increments, survival p) do not suffice: where the others stand still, the entry's leaving is seen for
    certain, so η is asked for as well.

    epsilon: the budget of all values.
    """

    neighbours = "histories that differ in one entry, if all that is assumed of the data holds"
    source = "sigma-counting, algorithm 5, under `Assumed`"
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
                "(`hierarchy`)"
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
        """The same for any evolving count: the state says itself of which query it is, and at what cost."""
        return "Evolving"

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Variance of every value, in rows squared: the first one's noise stands in all of them."""
        return self.noise.variance

    def step(self, state: EvolvingState, value: Table, noise: Noise) -> tuple[EvolvingState, int]:
        """value: the next table. Returns the noisy count of it. Raises BudgetExhausted after the last step."""
        check_left(state.steps, self.steps, "values")
        true = self.query.count(value)
        noisy = state.before - state.true if state.steps else int(self.noise.draw(noise, 1)[0])
        released = true + noisy
        return replace(state, steps=state.steps + 1, before=released, true=true), released
