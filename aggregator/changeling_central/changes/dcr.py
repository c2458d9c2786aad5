"""DCR: a disjoint continual release, the noisy change of a linear query over each of a row of nodes.

Guarantee: (epsilon, delta) for the whole release, κ nodes of an entry composed, κ = k for at-most-k entries and
MostSpan(ends, B) for B-time-bounded ones; the first of them costs an appearance, the others a move. Neighbours:
changelogs of which one lacks an entry of the other, with all its mutations; the entry keeps to the constraint. An entry
that is in both and mutates otherwise is told apart by up to twice as much. Source: Pan 2023, theorems 4.1 and 4.2.
The sum of the first i changes estimates the query without bias; its variance grows linearly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from changeling_protocol import Constraint
from changeling_statistics import Counts

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..node_noise import Law, NodeNoise, calibrated
from ..noise import Noise
from .linear_query import LinearQuery

NEIGHBOURS = "changelogs of which one lacks an entry of the other, with all its mutations, which keep to the constraint"


@dataclass(frozen=True, slots=True)
class DcrState:
    """released: how many nodes are. Nothing else is remembered: a node's noise is drawn by the step that ends it."""

    released: int = 0


@dataclass(frozen=True, slots=True)
class Dcr(Mechanism[DcrState, Counts, Counts]):
    """Made by `disjoint_release`. bounds: of the nodes, rising Unix seconds; the first also holds what came before.

    noise: of every node. epsilon, delta: what this noise costs an entry over all nodes.
    """

    query: LinearQuery
    bounds: tuple[int, ...]
    noise: NodeNoise
    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        check_bounds(self.bounds)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for all nodes together."""
        return Guarantee(self.epsilon, self.delta, NEIGHBOURS, "Pan 2023, theorems 4.1 and 4.2")

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.bounds) - 1

    def start(self) -> DcrState:
        """No node is released."""
        return DcrState()

    def step(self, state: DcrState, value: Counts, noise: Noise) -> tuple[DcrState, Counts]:
        """value: the true change over the next node, shape (w,), in units. Returns the noisy one.

        Raises BudgetExhausted after the last node, and ValueError for a change that is not of the query.
        """
        if state.released >= self.nodes:
            raise BudgetExhausted(f"the guarantee covers {self.nodes} nodes, and all of them are released")
        true = checked_change(value, self.query.width)
        return DcrState(state.released + 1), true + self.noise.draw(noise, len(true))

    def check(self, state: DcrState) -> None:
        """Raises BadState for more nodes than there are."""
        if not 0 <= state.released <= self.nodes:
            raise BadState(f"the state is of {state.released} nodes, and the release has {self.nodes}")

    def variance(self, step: int) -> float:  # noqa: ARG002
        """Of each column of every node's change, in units squared."""
        return self.noise.variance


def disjoint_release(
    query: LinearQuery,
    bounds: Sequence[int],
    constraint: Constraint,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    law: Law = Law.LAPLACE,
) -> Dcr:
    """The DCR that costs an entry which keeps to the constraint at most (epsilon, delta) in all.

    bounds: of the nodes, rising Unix seconds. law: of the noise; Gaussian noise needs a delta above 0 (ValueError).
    """
    check_bounds(bounds)
    drawn = calibrated(query.shifts(constraint.most_nodes(bounds)), epsilon, delta, law)
    return Dcr(query, tuple(bounds), drawn, epsilon, delta)


def check_bounds(bounds: Sequence[int]) -> None:
    """ValueError unless there are at least two times, and they rise."""
    if len(bounds) < 2 or any(a >= b for a, b in pairwise(bounds)):
        raise ValueError(f"the bounds of a release rise, and there are at least two, got {list(bounds)[:10]}")


def checked_change(value: Counts, width: int) -> Counts:
    """A true change, int64 of shape (w,). ValueError for anything else."""
    change = np.asarray(value)
    if change.shape != (width,) or change.dtype.kind not in "iu":
        raise ValueError(f"a change is {width} integers, got shape {change.shape} of {change.dtype}")
    return change.astype(np.int64)
