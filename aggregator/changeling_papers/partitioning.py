"""Private partitioning: cuts a sparse stream into segments with about as many updates each, and releases per segment.

    SparseVector          which of a sequence of queries is the first above a threshold
    Partitioning          one sparse vector after another: where segments end
    PartitionedRelease    one infinite stream or several, of which a segment is one step; made by `sparse_release`, for
                          insertions only, and by `insertion_minus_deletion`, of which the difference is released

Guarantees: a partitioning costs epsilon for all ends of segments, for ever, as each segment is cut by a sparse vector
that sees no other segment (adaptive parallel composition, Qiu, Yi, theorem 6). What is released on the segments costs
its own epsilon besides. Neighbours: streams that differ by one update at one step. States hold true counts.
Sources: Dwork, Roth 2014, algorithm 1; Dwork, Naor, Reingold, Rothblum 2015; Qiu, Yi, algorithms 1 and 2, theorem 8.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite, log, pi
from typing import Generic

from changeling_central import BadState, BudgetExhausted, Guarantee, Mechanism, Noise, calibrated, check_left, whole

from .counters import NEIGHBOURS, InfiniteMechanism, InfiniteState
from .static import Data, Static, check_like


@dataclass(frozen=True, slots=True)
class SparseVectorState:
    """raised: the noise on the threshold, None before the first query. halted: "above" was answered."""

    raised: int | None = None
    halted: bool = False


@dataclass(frozen=True, slots=True)
class SparseVector(Mechanism[SparseVectorState, int, bool]):
    """The sparse vector technique: epsilon for all answers together, however many are "not above".

    The noisy threshold is θ + Lap(2/epsilon), drawn once; each query, an integer of sensitivity 1, gets Lap(4/epsilon).
    It halts once it has answered "above". The proof shifts the threshold by 1 and the last query by 2, which the
    discrete law does as the continuous one. threshold: θ, public, in the queries' unit.
    """

    neighbours = "datasets that differ by one item"
    source = "Dwork, Roth 2014, theorem 3.23"
    threshold: float
    epsilon: Fraction

    def __post_init__(self) -> None:
        if not isfinite(self.threshold) or self.epsilon <= 0:
            raise ValueError(f"needs a finite threshold and epsilon > 0, got {self.threshold} and {self.epsilon}")

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
    """The cutter of a stream. periods: T, or None for a stream without an end. failure: β, of the bound on segments.

    With probability 1 - β a segment holds O(log(t/β) / epsilon) updates, and there are O(n_t) segments by t (finite T),
    or O(n_t + log log t) (infinite). A segment also ends at a limit T_j whatever it holds, which is public.

        infinite:  T_1 = 2, then T_j = t²;  β_j = 6β / π²j²;  θ_j = (7/epsilon) ln(2 T_j / β_j)
        finite:    T_j = T;                 β_j = β / T;       the same θ_j
    """

    neighbours = "streams that differ by one update at one step"
    source = "Qiu, Yi, theorem 6 and lemma 7; of so many steps Dwork, Naor, Reingold, Rothblum 2015"
    epsilon: Fraction
    failure: float = 0.05
    periods: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 < self.failure < 1:
            raise ValueError(f"needs epsilon > 0 and 0 < failure < 1, got {self.epsilon} and {self.failure}")
        if self.periods is not None and self.periods < 1:
            raise ValueError(f"a stream has at least one step, got {self.periods}")

    def start(self) -> PartitionState:
        """Before the first step, in the first segment."""
        return PartitionState(0, 1, 2 if self.periods is None else self.periods, 0, SparseVectorState())

    def step(self, state: PartitionState, value: int, noise: Noise) -> tuple[PartitionState, bool]:
        """value: how many updates there were at one more step. Returns whether a segment ends with it.

        Raises BudgetExhausted after T steps, and ValueError for what is no number of updates; nothing is drawn then.
        """
        if self.periods is not None:
            check_left(state.time, self.periods)
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
class SegmentState(Generic[Data]):
    """pending: the true dataset of the open segment in each stream. streams: of segments that have ended."""

    partition: PartitionState
    pending: tuple[Data, ...]
    streams: tuple[InfiniteState[Data], ...]


@dataclass(frozen=True, slots=True)
class PartitionedRelease(Mechanism[SegmentState[Data], tuple[Data, ...], Data], Generic[Data]):
    """Streams of segments on one partitioning; between the ends of segments the last answers stand.

    release: what each stream is released by; an update is in one of them. signs: of each stream, 1 where its answers
    are added, -1 where they are taken away.
    """

    partitioning: Partitioning
    release: InfiniteMechanism[Data]
    signs: tuple[int, ...] = (1,)

    @property
    def guarantee(self) -> Guarantee:
        """The costs of the partitioning and of one stream, added up: an update is in one of the streams."""
        epsilon = self.partitioning.epsilon + self.release.epsilon
        source = "Qiu, Yi, theorem 8" if len(self.signs) == 1 else "Qiu, Yi, section 1.3"
        return Guarantee(epsilon, self.release.delta, NEIGHBOURS, source)

    def start(self) -> SegmentState[Data]:
        """Before the first step, in the first segment."""
        nothing, start = self.release.static.gathered([]), self.release.start()
        return SegmentState(self.partitioning.start(), (nothing,) * len(self.signs), (start,) * len(self.signs))

    def step(self, state: SegmentState[Data], value: tuple[Data, ...], noise: Noise) -> tuple[SegmentState[Data], Data]:
        """value: the items of one more step in each stream. Returns the answers on all items of ended segments.

        Raises BudgetExhausted and ValueError as its parts do; nothing is drawn then.
        """
        static = self.release.static
        data = [static.checked(items) for items in value]
        if len(data) != len(self.signs):
            raise ValueError(f"a step brings a dataset for each of {len(self.signs)} streams, got {len(data)}")
        partition, ended = self.partitioning.step(state.partition, sum(map(static.size, data)), noise)
        pending = tuple(before + items for before, items in zip(state.pending, data, strict=True))
        if not ended:
            after = SegmentState(partition, pending, state.streams)
        else:
            steps = [self.release.step(s, d, noise)[0] for s, d in zip(state.streams, pending, strict=True)]
            after = SegmentState(partition, self.start().pending, tuple(steps))
        answers = static.zero()  # the caller's own
        for sign, stream in zip(self.signs, after.streams, strict=True):
            answers = answers + sign * stream.answers
        return after, answers

    def check(self, state: SegmentState[Data]) -> None:
        """Raises BadState for parts that are not theirs, or that have seen different segments."""
        self.partitioning.check(state.partition)
        if not len(state.pending) == len(state.streams) == len(self.signs):
            raise BadState(f"the state is of {len(state.streams)} streams, not of {len(self.signs)}")
        check_like(self.release.static.gathered([]), *state.pending)
        for stream in state.streams:
            self.release.check(stream)
            if state.partition.segment != stream.time + 1:
                raise BadState("the state's streams have other segments than its partitioning")


def sparse_release(
    static: Static[Data],
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    periods: int | None = None,
    cutting: Fraction = Fraction(1, 4),
) -> PartitionedRelease[Data]:
    """The release of insertions only, and few, that costs at most (epsilon, delta) in all.

    cutting: the share of epsilon that the partitioning takes. periods: T, or None for a stream without an end.
    """
    partitioning, left = partitioned(epsilon, cutting, 0.05, periods)
    return PartitionedRelease(partitioning, InfiniteMechanism(static, left, delta))


def insertion_minus_deletion(
    static: Static[Data],
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    periods: int | None = None,
    cutting: Fraction = Fraction(1, 4),
) -> PartitionedRelease[Data]:
    """Two insertion-only streams, of which the difference answers for what is there; arguments as of `sparse_release`.

    The simple way that the fully dynamic mechanism is measured against: its error follows the number of updates N_t
    where the fully dynamic one's follows the size n_t. A step brings (items inserted, items deleted).
    """
    return replace(sparse_release(static, epsilon, delta, periods, cutting), signs=(1, -1))
