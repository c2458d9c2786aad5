"""Insertions only, and few: a partitioning cuts the stream, and each segment is one step of a release.

Guarantee: the partitioning's epsilon and the release's (epsilon, delta), added up: an update moves both. Between the
ends of segments the last answers stand, so what arrived since is missing. Neighbours: streams that differ by one item
at one step. Source: Dwork, Naor, Reingold, Rothblum 2015; Qiu, Yi, theorem 8.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..static import Data, Static, check_data
from .binary import NEIGHBOURS
from .infinite import InfiniteMechanism, InfiniteState
from .partitioning import Partitioning, PartitionState, partitioned


@dataclass(frozen=True, slots=True)
class SparseState(Generic[Data]):
    """pending: the true dataset of the open segment. released: the stream of segments that have ended."""

    partition: PartitionState
    pending: Data
    released: InfiniteState[Data]


@dataclass(frozen=True, slots=True)
class SparseRelease(Mechanism[SparseState[Data], Data, Data], Generic[Data]):
    """A finite or infinite partitioning before an infinite stream of segments."""

    partitioning: Partitioning
    release: InfiniteMechanism[Data]

    @property
    def guarantee(self) -> Guarantee:
        """What the partitioning and the release cost, added up."""
        cut, released = self.partitioning.guarantee, self.release.guarantee
        return Guarantee(cut.epsilon + released.epsilon, released.delta, NEIGHBOURS, "Qiu, Yi, theorem 8")

    def start(self) -> SparseState[Data]:
        """Before the first step, in the first segment."""
        return SparseState(self.partitioning.start(), self.release.static.gathered([]), self.release.start())

    def step(self, state: SparseState[Data], value: Data, noise: Noise) -> tuple[SparseState[Data], Data]:
        """value: the items of one more step. Returns the answers on all items of ended segments, in units of 1/grain.

        Raises BudgetExhausted and ValueError as its parts do; nothing is drawn then.
        """
        static = self.release.static
        data = static.checked(value)
        partition, ended = self.partitioning.step(state.partition, static.size(data), noise)
        pending = state.pending + data
        if not ended:
            again = state.released.answers + static.zero()  # the caller's own
            return SparseState(partition, pending, state.released), again
        released, answers = self.release.step(state.released, pending, noise)
        return SparseState(partition, static.gathered([]), released), answers

    def check(self, state: SparseState[Data]) -> None:
        """Raises BadState for parts that are not theirs, or that have seen different segments."""
        self.partitioning.check(state.partition)
        self.release.check(state.released)
        check_data(self.release.static, state.pending)
        if state.partition.segment != state.released.time + 1:
            raise BadState("the state's release has other segments than its partitioning")


def sparse_release(
    static: Static[Data],
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    periods: int | None = None,
    cutting: Fraction = Fraction(1, 4),
    failure: float = 0.05,
) -> SparseRelease[Data]:
    """The sparse release that costs at most (epsilon, delta) in all.

    cutting: the share of epsilon that the partitioning takes. periods: T, or None for a stream without an end.
    failure: β of the partitioning.
    """
    partitioning, left = partitioned(epsilon, cutting, failure, periods)
    return SparseRelease(partitioning, InfiniteMechanism(static, left, delta))
