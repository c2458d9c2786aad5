"""Insertions only, and few: a partitioning cuts the stream, and each segment is one step of a release.

Guarantee: the partitioning's epsilon and the release's (epsilon, delta), added up: an update moves both. Between the
ends of segments the last answers stand, so what arrived since is missing. Neighbours: streams that differ by one item
at one step. Source: Dwork, Naor, Reingold, Rothblum 2015; Qiu, Yi, theorem 8.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic

from ..errors import BadState
from ..mechanism import Guarantee
from ..noise import Noise
from ..static import Data, Static, as_plain, from_plain
from .binary import NEIGHBOURS
from .infinite import InfiniteMechanism, InfiniteState
from .partitioning import Partitioning, PartitionState, partitioned


@dataclass(frozen=True, slots=True)
class SparseState(Generic[Data]):
    """pending: the true dataset of the open segment."""

    partition: PartitionState
    pending: Data
    released: InfiniteState[Data]

    def as_fields(self) -> dict[str, Any]:
        return {
            "partition": self.partition.as_fields(),
            "pending": as_plain(self.pending),
            "released": self.released.as_fields(),
        }


@dataclass(frozen=True, slots=True)
class SparseRelease(Generic[Data]):
    """A finite or infinite partitioning before an infinite stream of segments."""

    partitioning: Partitioning
    release: InfiniteMechanism[Data]

    @property
    def guarantee(self) -> Guarantee:
        cut, released = self.partitioning.guarantee, self.release.guarantee
        return Guarantee(cut.epsilon + released.epsilon, released.delta, NEIGHBOURS, "Qiu, Yi, theorem 8")

    def start(self) -> SparseState[Data]:
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
            return SparseState(partition, pending, state.released), state.released.answers
        released, answers = self.release.step(state.released, pending, noise)
        return SparseState(partition, static.gathered([]), released), answers

    def resumed(self, fields: dict[str, Any]) -> SparseState[Data]:
        """The state that `as_fields` wrote. Raises BadState for anything else."""
        match fields:
            case {"partition": partition, "pending": pending, "released": dict(released), **rest} if not rest:
                state = PartitionState.from_fields(partition)
                resumed = self.release.resumed(released)
                if state.segment == resumed.time + 1:
                    return SparseState(state, from_plain(pending, self.release.static.gathered([])), resumed)
        raise BadState("not the state of a sparse release")


def sparse_release(
    static: Static[Data],
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    periods: int | None = None,
    cutting: Fraction = Fraction(1, 4),
    failure: float = 0.05,
) -> SparseRelease[Data]:
    """The sparse release that costs at most (epsilon, delta) in all. cutting: the share of epsilon that the
    partitioning takes; periods: T, or None for a stream without an end."""
    partitioning, left = partitioned(epsilon, cutting, failure, periods)
    return SparseRelease(partitioning, InfiniteMechanism(static, left, delta))
