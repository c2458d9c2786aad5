"""Insertion minus deletion: two insertion-only streams on one partitioning; their difference answers for what is there.

The simple way that the fully dynamic mechanism is measured against: its error follows the number of updates N_t where
the static mechanism's follows the size of its dataset.
Guarantee: the partitioning's epsilon and that of each stream, an update being in one of the two. Neighbours: streams
that differ by one update. Source: Qiu, Yi, section 1.3. The state holds true sums.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic

from ..counters.infinite import InfiniteMechanism, InfiniteState
from ..counters.partitioning import Partitioning, PartitionState, partitioned
from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..static import Data, Static, check_data


@dataclass(frozen=True, slots=True)
class DifferenceState(Generic[Data]):
    """coming, going: the true datasets of the open segment. inserted, deleted: the streams."""

    partition: PartitionState
    coming: Data
    going: Data
    inserted: InfiniteState[Data]
    deleted: InfiniteState[Data]


@dataclass(frozen=True, slots=True)
class InsertionMinusDeletion(Mechanism[DifferenceState[Data], tuple[Data, Data], Data], Generic[Data]):
    """Made by `insertion_minus_deletion`. partitioning: cuts the updates. stream: of insertions, and of deletions."""

    partitioning: Partitioning
    stream: InfiniteMechanism[Data]

    @property
    def guarantee(self) -> Guarantee:
        """What the partitioning and one of the streams cost: an update is in one of the two."""
        epsilon = self.partitioning.epsilon + self.stream.epsilon
        return Guarantee(epsilon, self.stream.delta, "streams that differ by one update", "Qiu, Yi, section 1.3")

    def start(self) -> DifferenceState[Data]:
        """Before the first step, in the first segment."""
        nothing, start = self.stream.static.gathered([]), self.stream.start()
        return DifferenceState(self.partitioning.start(), nothing, nothing, start, start)

    def step(
        self, state: DifferenceState[Data], value: tuple[Data, Data], noise: Noise
    ) -> tuple[DifferenceState[Data], Data]:
        """value: the items inserted and deleted at one more step. Returns the answers as of the last segment's end.

        Raises BudgetExhausted and ValueError as its parts do; nothing is drawn then.
        """
        static = self.stream.static
        came, went = static.checked(value[0]), static.checked(value[1])
        partition, ended = self.partitioning.step(state.partition, static.size(came) + static.size(went), noise)
        coming, going = state.coming + came, state.going + went
        if not ended:
            after = DifferenceState(partition, coming, going, state.inserted, state.deleted)
            return after, after.inserted.answers - after.deleted.answers
        inserted, plus = self.stream.step(state.inserted, coming, noise)
        deleted, minus = self.stream.step(state.deleted, going, noise)
        nothing = static.gathered([])
        return DifferenceState(partition, nothing, nothing, inserted, deleted), plus - minus

    def check(self, state: DifferenceState[Data]) -> None:
        """Raises BadState for parts that are not theirs, or that have seen different segments."""
        self.partitioning.check(state.partition)
        self.stream.check(state.inserted)
        self.stream.check(state.deleted)
        check_data(self.stream.static, state.coming)
        check_data(self.stream.static, state.going)
        if not state.partition.segment == state.inserted.time + 1 == state.deleted.time + 1:
            raise BadState("the state's streams have other segments than its partitioning")


def insertion_minus_deletion(
    static: Static[Data],
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    periods: int | None = None,
    cutting: Fraction = Fraction(1, 4),
    failure: float = 0.05,
) -> InsertionMinusDeletion[Data]:
    """The release that costs at most (epsilon, delta) in all.

    periods: T, or None for a stream without an end. cutting: the share of epsilon that the partitioning takes.
    failure: β of the partitioning.
    """
    partitioning, left = partitioned(epsilon, cutting, failure, periods)
    return InsertionMinusDeletion(partitioning, InfiniteMechanism(static, left, delta))
