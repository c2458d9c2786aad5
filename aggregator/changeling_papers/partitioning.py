"""The sparse vector technique: which of a sequence of queries is the first above a threshold.

Guarantee: epsilon for all answers together, however many are "not above"; it answers "above" once and halts. The noisy
threshold is θ + Lap(2/epsilon), drawn once; each query gets Lap(4/epsilon). Queries are integers and of sensitivity 1.
Neighbours: datasets that differ by one item. Source: Dwork, Roth 2014, algorithm 1; Qiu, Yi, algorithm 1; the proof
shifts the threshold by 1 and the last query by 2, which the discrete law does as the continuous one.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite, log, pi
from typing import Generic

from changeling_central import BadState, BudgetExhausted, Guarantee, Mechanism, Noise, calibrated, whole

from .counters import NEIGHBOURS, InfiniteMechanism, InfiniteState
from .static import Data, Static, check_data


@dataclass(frozen=True, slots=True)
class SparseVectorState:
    """raised: the noise on the threshold, None before the first query. halted: "above" was answered."""

    raised: int | None = None
    halted: bool = False


@dataclass(frozen=True, slots=True)
class SparseVector(Mechanism[SparseVectorState, int, bool]):
    """threshold: θ, public, in the queries' unit. It halts once it has answered "above": more steps cost more."""

    threshold: float
    epsilon: Fraction

    def __post_init__(self) -> None:
        if not isfinite(self.threshold) or self.epsilon <= 0:
            raise ValueError(f"needs a finite threshold and epsilon > 0, got {self.threshold} and {self.epsilon}")

    @property
    def guarantee(self) -> Guarantee:
        """epsilon for all answers together, up to the one that is "above"."""
        return Guarantee(
            self.epsilon, Fraction(0), "datasets that differ by one item", "Dwork, Roth 2014, theorem 3.23"
        )

    def start(self) -> SparseVectorState:
        """Before the first query."""
        return SparseVectorState()

    def step(self, state: SparseVectorState, value: int, noise: Noise) -> tuple[SparseVectorState, bool]:
        """value: the true answer of the next query. Returns whether it is above the threshold, more or less.

        Raises BudgetExhausted once it has halted, and ValueError for what is no whole number; nothing is drawn then.
        """
        if state.halted:
            raise BudgetExhausted("a sparse vector answers 'above' once: start another, on other data or more budget")
        asked = whole(value)
        if asked is None:
            raise ValueError(f"a query of the sparse vector is a whole number, got a {type(value).__name__}")
        raised = state.raised
        if raised is None:
            raised = int(calibrated({1: 1}, self.epsilon / 2).draw(noise, 1)[0])
        answer = asked + int(calibrated({2: 1}, self.epsilon / 2).draw(noise, 1)[0])
        above = answer - raised > self.threshold  # the sum θ + noise would be rounded
        return SparseVectorState(raised, above), above

    def check(self, state: SparseVectorState) -> None:
        """Raises BadState for one that halted before its threshold was drawn."""
        if state.halted and state.raised is None:
            raise BadState("the state is of a sparse vector that halted before its first query")


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
