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

from changeling_statistics import Counts

from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
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
    """each: the state of every algebra, in the mechanism's order."""

    each: tuple[SigmaState, ...]


@dataclass(frozen=True, slots=True)
class Grouped(Mechanism[GroupedState, Table, tuple[Counts, ...]]):
    """Made by `grouped`. algebras: with a budget each, the largest first.

    Algebras differ in variance, so `variance` states none and each answer states its own.
    """

    algebras: tuple[SigmaCounting, ...]
    _noise: tuple[tuple[int, float], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if any(counting.epsilon < following.epsilon for counting, following in pairwise(self.algebras)):
            raise ValueError("algebras come by falling budgets")
        noise = tuple((counting.algebra.bits, counting.noise.variance) for counting in self.algebras)
        object.__setattr__(self, "_noise", noise)

    @property
    def guarantee(self) -> Guarantee:
        """What the algebras cost, added up."""
        epsilon = sum((counting.epsilon for counting in self.algebras), Fraction(0))
        return Guarantee(epsilon, Fraction(0), ADDED_OR_REMOVED, "sigma-counting, algorithm 3")

    def start(self) -> GroupedState:
        """Nothing is drawn for any algebra."""
        return GroupedState(tuple(counting.start() for counting in self.algebras))

    def check(self, state: GroupedState) -> None:
        """Raises BadState for another number of algebras, or for a state that is not its algebra's."""
        if len(state.each) != len(self.algebras):
            raise BadState(f"the state is of {len(state.each)} algebras, not {len(self.algebras)}")
        for mechanism, of_algebra in zip(self.algebras, state.each, strict=True):
            mechanism.check(of_algebra)

    def step(self, state: GroupedState, value: Table, noise: Noise) -> tuple[GroupedState, tuple[Counts, ...]]:
        """value: the table. Returns the noisy counts of each algebra's atoms, drawn once.

        Raises BudgetExhausted for a second table.
        """
        before = zip(self.algebras, state.each, strict=True)
        steps = [mechanism.step(old, value, noise) for mechanism, old in before]
        return GroupedState(tuple(after for after, _ in steps)), tuple(noisy for _, noisy in steps)

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
        """The answer of the algebra with the least variance, which costs nothing; None where no algebra holds it."""
        place = self.place(query)
        return None if place is None else self.algebras[place[0]].summed(state.each[place[0]], place[1])


def grouped(queries: Sequence[Query], epsilon: Fraction) -> Grouped:
    """The mechanism that answers these queries at epsilon in all, and whatever else its algebras hold.

    Clusters the queries, and splits the budget for the least mean variance of their answers.
    ValueError for a budget of 0 or less, and for no queries.
    """
    if epsilon <= 0:
        raise ValueError(f"a budget has epsilon > 0, got {epsilon}")
    clusters = sorted(clustered(queries), key=lambda cluster: -cluster.root)
    roots = sum(cluster.root for cluster in clusters)
    shares = [Fraction(int(PARTS * cluster.root / roots), PARTS) for cluster in clusters]
    return Grouped(
        tuple(SigmaCounting(cluster.algebra, epsilon * share) for cluster, share in zip(clusters, shares, strict=True))
    )
