"""Grouped sigma-counting: queries that constrain the same columns share an algebra, and algebras share the budget.

Guarantee: epsilon for all answers there can be, Σ ε_g over the algebras (sequential composition), ε_g ∝ A_g^(1/3) for
A_g atoms of the queries known (see `clusters`). Clusters come from the queries alone. Neighbours: tables that differ
by one row added or removed; one replaced costs twice. Order is kept among answers that come from one algebra, not
between two.
Source: sigma-counting, algorithm 3 and theorem 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Any

from ..errors import BadState
from ..mechanism import Guarantee
from ..noise import Noise
from .algebra import Atoms
from .answer import ADDED_OR_REMOVED, Answer
from .clusters import clustered
from .domain import Table
from .query import Query
from .sigma_counting import SigmaCounting, SigmaState

PARTS = 10**9


@dataclass(frozen=True, slots=True)
class GroupedState:
    """Of every algebra."""

    each: tuple[SigmaState, ...]

    def as_fields(self) -> dict[str, Any]:
        return {"each": [state.as_fields() for state in self.each]}


@dataclass(frozen=True, slots=True)
class Grouped:
    """algebras: with a budget each, the largest first."""

    algebras: tuple[SigmaCounting, ...]
    _noise: tuple[tuple[int, float], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if any(one.epsilon < next_.epsilon for one, next_ in pairwise(self.algebras)):
            raise ValueError("algebras come by falling budgets")
        noise = tuple((one.algebra.bits, one.noise.variance) for one in self.algebras)
        object.__setattr__(self, "_noise", noise)

    @property
    def guarantee(self) -> Guarantee:
        epsilon = sum((one.epsilon for one in self.algebras), Fraction(0))
        return Guarantee(epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 3")

    def start(self) -> GroupedState:
        return GroupedState(tuple(one.start() for one in self.algebras))

    def resumed(self, fields: Any) -> GroupedState:
        match fields:
            case {"each": list(each), **rest} if not rest and len(each) == len(self.algebras):
                states = (one.resumed(state) for one, state in zip(self.algebras, each, strict=True))
                return GroupedState(tuple(states))
        raise BadState("not the state of a grouped sigma-counting")

    def step(self, state: GroupedState, value: Table, noise: Noise) -> tuple[GroupedState, None]:
        """Draws the noise of every atom of every algebra, once. Raises BudgetExhausted for a second table."""
        drawn = tuple(one.step(old, value, noise)[0] for one, old in zip(self.algebras, state.each, strict=True))
        return GroupedState(drawn), None

    def place(self, query: Query) -> tuple[int, Atoms] | None:
        """Which algebra answers it with the least variance, and its atoms there; None where none holds it."""
        best: tuple[int, Atoms] | None = None
        least = inf
        for at, (bits, variance) in enumerate(self._noise):
            if variance >= least:  # and so are all that follow
                break
            if query.bits & ~bits:
                continue
            atoms = self.algebras[at].algebra.members(query)
            if atoms is not None and len(atoms) * variance < least:
                best, least = (at, atoms), len(atoms) * variance
        return best

    def answer(self, state: GroupedState, query: Query) -> Answer | None:
        """The answer with the least variance, free; None where no algebra holds the query."""
        place = self.place(query)
        return None if place is None else self.algebras[place[0]].summed(state.each[place[0]], place[1])


def grouped(queries: Sequence[Query], epsilon: Fraction) -> Grouped:
    """Clusters the queries, and splits the budget for the least mean variance of their answers."""
    if epsilon <= 0:
        raise ValueError(f"a budget has epsilon > 0, got {epsilon}")
    clusters = sorted(clustered(queries), key=lambda cluster: -cluster.root)
    roots = sum(cluster.root for cluster in clusters)
    shares = [Fraction(int(PARTS * cluster.root / roots), PARTS) for cluster in clusters]
    return Grouped(
        tuple(SigmaCounting(one.algebra, epsilon * share) for one, share in zip(clusters, shares, strict=True))
    )
