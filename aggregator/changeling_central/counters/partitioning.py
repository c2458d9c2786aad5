"""Private partitioning: cuts a sparse stream into segments with about as many updates each, on line.

Guarantee: epsilon for all ends of segments, for ever: each segment is cut by a sparse vector of its own that sees no
other segment (adaptive parallel composition, Qiu, Yi, theorem 6). Neighbours: streams that differ by one update at one
step.
With probability 1 - β: a segment holds O(log(t/β) / epsilon) updates, and there are O(n_t) segments by t (finite T), or
O(n_t + log log t) (infinite). A segment also ends at a limit T_j whatever it holds, which is public.

    infinite:  T_1 = 2, then T_j = t²;  β_j = 6β / π²j²;  θ_j = (7/epsilon) ln(2 T_j / β_j)
    finite:    T_j = T;                 β_j = β / T;       the same θ_j

What is released on the segments costs its own epsilon besides. Source: Dwork, Naor, Reingold, Rothblum 2015 (finite);
Qiu, Yi, algorithm 2 (infinite).
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import log, pi

from ..errors import BadState, BudgetExhausted
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..whole import whole
from .sparse_vector import SparseVector, SparseVectorState


@dataclass(frozen=True, slots=True)
class PartitionState:
    """time: how many steps were taken. segment: the number of the open one, from 1 on.

    limit: T_j, the step with which it ends at the latest. held: its updates so far, a true count. vector: what cuts it.
    """

    time: int
    segment: int
    limit: int
    held: int
    vector: SparseVectorState


@dataclass(frozen=True, slots=True)
class Partitioning(Mechanism[PartitionState, int, bool]):
    """The cutter of a stream. periods: T, or None for a stream without an end. failure: β, of the bound on segments."""

    epsilon: Fraction
    failure: float = 0.05
    periods: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 < self.failure < 1:
            raise ValueError(f"needs epsilon > 0 and 0 < failure < 1, got {self.epsilon} and {self.failure}")
        if self.periods is not None and self.periods < 1:
            raise ValueError(f"a stream has at least one step, got {self.periods}")

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for the ends of all segments together."""
        source = "Qiu, Yi, theorem 6 and lemma 7" if self.periods is None else "Dwork, Naor, Reingold, Rothblum 2015"
        return Guarantee(self.epsilon, Fraction(0), "streams that differ by one update at one step", source)

    def start(self) -> PartitionState:
        """Before the first step, in the first segment."""
        return PartitionState(0, 1, 2 if self.periods is None else self.periods, 0, SparseVectorState())

    def step(self, state: PartitionState, value: int, noise: Noise) -> tuple[PartitionState, bool]:
        """value: how many updates there were at one more step. Returns whether a segment ends with it.

        Raises BudgetExhausted after T steps, and ValueError for what is no number of updates; nothing is drawn then.
        """
        if self.periods is not None and state.time >= self.periods:
            raise BudgetExhausted(f"the guarantee covers {self.periods} steps, and all of them are released")
        updates = whole(value)
        if updates is None or updates < 0:
            raise ValueError("a step of a partitioning is the number of its updates, 0 or more")
        time, held = state.time + 1, state.held + updates
        vector, ends = state.vector, time >= state.limit
        if not ends:
            vector, ends = self._cutter(state).step(vector, held, noise)
        if not ends:
            return replace(state, time=time, held=held, vector=vector), False
        limit = time**2 if self.periods is None else self.periods
        return PartitionState(time, state.segment + 1, limit, 0, SparseVectorState()), True

    def check(self, state: PartitionState) -> None:
        """Raises BadState for counts below zero, or for more steps than T."""
        if min(state.time, state.held) < 0 or min(state.segment, state.limit) < 1:
            raise BadState("the state of a partitioning holds a count below zero, or no segment")
        if self.periods is not None and state.time > self.periods:
            raise BadState(f"the state is of {state.time} steps, and the partitioning has {self.periods}")
        self._cutter(state).check(state.vector)

    def threshold(self, segment: int, limit: int) -> float:
        """θ_j of the segment j that ends at T_j = `limit` at the latest."""
        share = 6 / (pi * segment) ** 2 if self.periods is None else 1 / self.periods
        return 7 / float(self.epsilon) * log(2 * limit / (self.failure * share))

    def _cutter(self, state: PartitionState) -> SparseVector:
        return SparseVector(self.threshold(state.segment, state.limit), self.epsilon)


def partitioned(
    epsilon: Fraction, cutting: Fraction, failure: float, periods: int | None, counted: int = 1
) -> tuple[Partitioning, Fraction]:
    """A partitioning at its share of epsilon, `cutting`, and the epsilon that is left for what is released with it.

    cutting: above 0 and below 1. failure: β. periods: T, or None for a stream without an end. counted: how many of an
    entry's updates the partitioning must protect together. ValueError for a share that leaves nothing to either.
    """
    if not 0 < cutting < 1:
        raise ValueError(f"the share of the partitioning lies between 0 and 1, got {cutting}")
    return Partitioning(epsilon * cutting / counted, failure, periods), epsilon * (1 - cutting)
