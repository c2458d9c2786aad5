"""Sigma-counting: noise once for each atom, then any number of queries by adding; nested ones are never out of order.

    value(Q) = Σ max(0, |atom| + Lap(1/epsilon)) over the atoms of Q         estimate(Q): the same, not clipped

Guarantee: epsilon for all answers there can be, as atoms are disjoint (parallel composition). Neighbours: tables that
differ by one row added or removed; one row replaced moves two atoms, 2·epsilon. Empty atoms get noise like the others,
so clipping adds p/(1 - p²), p = e^-epsilon, about 1/(2·epsilon), to the expected value for each empty atom;
estimates are free of that, and may be out of order. Source: sigma-counting, algorithm 2 and theorem 1.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import exp

import numpy as np
from changeling_statistics import Counts

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..node_noise import NodeNoise, calibrated
from ..noise import Noise
from ..states import check_counts
from .algebra import Algebra, Atoms
from .answer import ADDED_OR_REMOVED, Answer
from .domain import Table
from .query import Query


@dataclass(frozen=True, slots=True, eq=False)
class SigmaState:
    """What was drawn, and of what. Holds no true count.

    noisy: the atoms' counts with noise, not clipped, shape (atoms,); None before they are drawn.

    algebra: its key, so that no other's atoms are ever taken for these. epsilon: what they cost, for the same reason.
    """

    algebra: bytes
    epsilon: Fraction
    noisy: Counts | None = None


@dataclass(frozen=True, slots=True)
class SigmaCounting(Mechanism[SigmaState, Table, Counts]):
    """All queries of an algebra, over one table: one step draws for all atoms, then answers are free."""

    algebra: Algebra
    epsilon: Fraction
    noise: NodeNoise = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", calibrated({1: 1}, self.epsilon))

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all answers there can be: atoms are disjoint."""
        return Guarantee(self.epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 2")

    @property
    def clipping_bias(self) -> float:
        """What clipping adds to the expected value for each empty atom, in rows; less for others."""
        p = exp(-1 / self.noise.scale)
        return p / (1 - p * p)

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
        """Of every atom's count, in rows squared. An answer states its own, of all the atoms it adds up."""
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

    def answer(self, state: SigmaState, query: Query) -> Answer | None:
        """The answer to a query of the algebra, which costs nothing more; None for any other query.

        ValueError before the noise is drawn.
        """
        atoms = self.algebra.members(query)
        return None if atoms is None else self.summed(state, atoms)

    def summed(self, state: SigmaState, atoms: Atoms) -> Answer:
        """The answer to the union of these atoms. ValueError before the noise is drawn."""
        if state.noisy is None:
            raise ValueError("there is nothing to answer from yet: draw first (`step`)")
        held = state.noisy[atoms]
        return Answer(int(np.maximum(held, 0).sum()), int(held.sum()), len(atoms), self.noise)
