"""Fully dynamic: linear queries on a database under insertion and deletion; the error follows its present size.

A partitioning cuts the updates into segments; the interval tree takes segment after segment.
Guarantee: the partitioning's epsilon and the tree's (epsilon, delta), added up. Neighbours, either
- update: streams that differ by one update (the paper's); an entry with two updates is then protected by twice as much;
- entry: streams that differ by one entry, which is inserted once and deleted at most once. The tree costs no more for
  it, as the insertion and the deletion meet the same nodes; the partitioning counts both, so it runs on half its share.
Items carry the name of their entry: with the paper's "if x is in D(v)" one deletion would hit every copy of an item.
Source: Qiu, Yi, theorem 11. The state holds the database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Generic, NamedTuple

from ..counters.partitioning import Partitioning, PartitionState, partitioned
from ..errors import BadState, ConstraintBroken, UnusableChangelog
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..static import Data, Static
from ..whole import whole
from .interval_tree import Born, IntervalTree, Segment, TreeState
from .layered import Key, Layered


class Protects(StrEnum):
    """What neighbours differ in."""

    UPDATE = "update"
    ENTRY = "entry"


class Update(NamedTuple):
    """The insertion of an entry with its item, or its deletion: item None."""

    entry: int | str
    item: int | None


@dataclass(frozen=True, slots=True)
class DynamicState(Generic[Data]):
    """held: the item and segment of each entry, as of the last segment's end; None for one that is gone for good.

    pending: the item that the open segment has given an entry, None where it was deleted. partition: of the updates.
    tree: of the segments that have ended.
    """

    partition: PartitionState
    held: Layered[Born]
    pending: Layered[int]
    tree: TreeState[Data]


@dataclass(frozen=True, slots=True)
class FullyDynamic(Mechanism[DynamicState[Data], Sequence[Update], Data], Generic[Data]):
    """Made by `fully_dynamic`. partitioning: cuts the updates. tree: answers. protects: what neighbours differ in."""

    partitioning: Partitioning
    tree: IntervalTree[Data]
    protects: Protects = Protects.UPDATE

    @property
    def guarantee(self) -> Guarantee:
        """What the partitioning and the tree cost, added up; an entry's partitioning counts twice."""
        cuts = 1 if self.protects is Protects.UPDATE else 2
        epsilon = cuts * self.partitioning.epsilon + self.tree.epsilon
        return Guarantee(epsilon, self.tree.delta, f"streams that differ by one {self.protects}", "Qiu, Yi, theorem 11")

    def start(self) -> DynamicState[Data]:
        """An empty database, before the first step."""
        return DynamicState(self.partitioning.start(), Layered(), Layered(), self.tree.start())

    def step(self, state: DynamicState[Data], value: Sequence[Update], noise: Noise) -> tuple[DynamicState[Data], Data]:
        """value: the updates of one more step, in their order. Returns the answers as of the last segment's end.

        Raises UnusableChangelog for the insertion of what is there and the deletion of what is not, and
        ConstraintBroken for an entry inserted again that is protected as a whole; the update is named.
        """
        pending = self._checked(state, value)
        partition, ended = self.partitioning.step(state.partition, len(value), noise)
        if not ended:
            return DynamicState(partition, state.held, pending, state.tree), self.tree.answers(state.tree)
        held, segment = self._settled(state.held, pending, state.tree.segments + 1)
        tree, answers = self.tree.step(state.tree, segment, noise)
        return DynamicState(partition, held, Layered(), tree), answers

    def _checked(self, state: DynamicState[Data], updates: Sequence[Update]) -> Layered[int]:
        """What is pending after these updates."""
        fresh: dict[Key, int | None] = {}
        items, step = self.tree.static.items, state.partition.time + 1
        for number, (entry, given) in enumerate(updates, 1):
            where = f"update {number} of step {step}"
            item = None if given is None else whole(given)
            touched = entry in fresh or entry in state.pending
            born = None if touched else state.held.get(entry)
            now = fresh[entry] if entry in fresh else state.pending.get(entry) if touched else born and born.item
            if given is None and now is None:
                raise UnusableChangelog(f"{where}: deletes an entry that is not there")
            if given is not None:
                if item is None or not 0 <= item < items:
                    raise ValueError(f"{where}: an item is one of 0 to {items - 1}")
                if now is not None:
                    raise UnusableChangelog(f"{where}: inserts an entry that is there already")
                if self.protects is Protects.ENTRY and (touched or entry in state.held):
                    raise ConstraintBroken(f"{where}: inserts an entry again, which the guarantee does not count with")
            fresh[entry] = item
        return state.pending.over(fresh)

    def _settled(self, held: Layered[Born], pending: Layered[int], segment: int) -> tuple[Layered[Born], Segment]:
        """The database after the segment, and what the segment does to it.

        An entry in `pending` that was there has been deleted, whatever came then.
        """
        inserted: list[int] = []
        deleted: list[Born] = []
        fresh: dict[Key, Born | None] = {}
        for entry, item in pending.items():
            born = held.get(entry)
            if born is not None:
                deleted.append(born)
            if item is not None:
                inserted.append(item)
                fresh[entry] = Born(item, segment)
            elif born is not None or self.protects is Protects.ENTRY:
                fresh[entry] = None
        return held.over(fresh, forget=self.protects is Protects.UPDATE), Segment(inserted, deleted)

    def check(self, state: DynamicState[Data]) -> None:
        """Raises BadState for parts that have seen different segments, and for items or segments that there are not."""
        self.partitioning.check(state.partition)
        self.tree.check(state.tree)
        if state.partition.segment != state.tree.segments + 1:
            raise BadState("the state's tree has other segments than its partitioning")
        there = [born for _, born in state.held.items() if born]
        items = [born.item for born in there]
        items += [item for _, item in state.pending.items() if item is not None]
        if any(not 0 <= item < self.tree.static.items for item in items):
            raise BadState(f"the state holds an item that is none of 0 to {self.tree.static.items - 1}")
        if any(not 1 <= born.segment <= state.tree.segments for born in there):
            raise BadState("the state holds an entry of a segment that has not ended")


def fully_dynamic(
    static: Static[Data],
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
    periods: int | None = None,
    protects: Protects = Protects.UPDATE,
    cutting: Fraction = Fraction(1, 4),
    failure: float = 0.05,
) -> FullyDynamic[Data]:
    """The dynamic release that costs at most (epsilon, delta) in all.

    periods: T, or None for a stream without an end. protects: what neighbours differ in. cutting: the share of epsilon
    that the partitioning takes. failure: β, of the partitioning and of each node.
    """
    counted = 1 if protects is Protects.UPDATE else 2
    partitioning, left = partitioned(epsilon, cutting, failure, periods, counted)
    return FullyDynamic(partitioning, IntervalTree(static, left, delta, failure), protects)
