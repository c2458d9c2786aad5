"""Fully dynamic: linear queries on a database under insertion and deletion; the error follows its present size.

    DeletingNode    a dataset from which items are only deleted, restarted when about half of them are gone
    IntervalTree    of such nodes: a database under insertion and deletion, segment by segment
    FullyDynamic    a partitioning that cuts updates into segments, before a tree; made by `fully_dynamic`

Guarantee: the partitioning's epsilon and the tree's (epsilon, delta), added up. Neighbours are streams that differ
- by one update (the paper's); an entry with two updates is then protected by twice as much; or
- by one entry, which is inserted once and deleted at most once. The tree costs no more for it, as the insertion and the
  deletion meet the same nodes; the partitioning counts both, so it runs on half its share.
Items carry the name of their entry: with the paper's "if x is in D(v)" one deletion would hit every copy of an item.
Source: Qiu, Yi, section 4: algorithm 3, lemmas 9 and 10, theorem 11. The state holds the database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import log, log1p, pi
from typing import Generic, NamedTuple

from changeling_central import BadState, ConstraintBroken, Guarantee, Mechanism, Noise, UnusableChangelog, whole

from .counters import InfiniteMechanism, InfiniteState, block_of
from .partitioning import Partitioning, PartitionState, partitioned
from .static import BasicCounting, Data, Odometer, Static, check_like

BASEL = Fraction(6079271018540266, 10**16)
"""6/π², rounded down: BASEL · Σ 1/r² < 1."""


@dataclass(frozen=True, slots=True)
class NodeState(Generic[Data]):
    """round: r, from 1 on. remaining: the true D by now. size: n~, noisy. answers: on D as the round began, noisy.

    deleted, number: the streams of what was deleted since, and of how many that were. halted: it answers 0 for ever.
    """

    round: int
    remaining: Data
    size: int
    answers: Data
    deleted: InfiniteState[Data]
    number: InfiniteState[int]
    halted: bool = False


@dataclass(frozen=True, slots=True)
class DeletingNode(Generic[Data]):
    """A dataset from which items are only deleted, at (epsilon, delta) for ever.

        round r:  n~ = |D| + Lap(1/ε_r); Q(D) by the static mechanism; infinite streams of deletions and their number
        restart:  once deletions~ > n~/2 + 2γ, with what is left as D; halt, answering 0 for ever, if then n~ < 2γ

    Four mechanisms a round at ε_r = 3ε/2π²r², three of them with δ_r = 2δ/π²r², and Σ 6/π²r² = 1 (taken a little below
    6/π², to be a fraction). γ bounds the error of the number of deletions with probability 1 - β/π²r². Neighbours: an
    item more at first, or deleted once more, or both.

    failure: β. counting: the static mechanism for sizes; it gets no delta, so it is one of pure epsilon.
    """

    static: Static[Data]
    epsilon: Fraction
    delta: Fraction
    failure: float
    counting: Static[int] = BasicCounting()  # noqa: RUF009 frozen

    def begun(self, data: Data, noise: Noise, round_: int = 1) -> NodeState[Data]:
        """The state of a round that begins on this dataset; releases its size and its answers. round_: from 1 on."""
        return self._answered(data, self._sized(data, round_, noise), round_, noise)

    def _answered(self, data: Data, size: int, r: int, noise: Noise) -> NodeState[Data]:
        answers = self.static.under(*self.round_share(r)).release(data, noise)
        return NodeState(r, data, size, answers, self.stream(r).start(), self._number(r).start())

    def step(self, state: NodeState[Data], deleted: Data, noise: Noise) -> NodeState[Data]:
        """The state after one more segment. deleted: the items of D that it deletes."""
        remaining = state.remaining - deleted
        if state.halted:
            return replace(state, remaining=remaining)
        r = state.round
        after_q, _ = self.stream(r).step(state.deleted, deleted, noise)
        after_n, gone = self._number(r).step(state.number, self.static.size(deleted), noise)
        wide = self._error_bound(r, after_n.time)
        if gone <= state.size / 2 + 2 * wide:
            return replace(state, remaining=remaining, deleted=after_q, number=after_n)
        size = self._sized(remaining, r + 1, noise)
        if size < 2 * self._error_bound(r + 1, after_n.time):
            zero = self.static.zero()
            return replace(state, round=r + 1, remaining=remaining, size=size, answers=zero, halted=True)
        return self._answered(remaining, size, r + 1, noise)

    def answers(self, state: NodeState[Data]) -> Data:
        """On D by now: the round's answers less the deletions since, or 0."""
        return self.static.zero() if state.halted else state.answers - state.deleted.answers

    def round_share(self, r: int) -> tuple[Fraction, Fraction]:
        """(ε_r, δ_r) of each mechanism of round r."""
        return self.epsilon * BASEL / (4 * r**2), self.delta * BASEL / (3 * r**2)

    def stream(self, r: int) -> InfiniteMechanism[Data]:
        """The stream of what is deleted during round r."""
        return InfiniteMechanism(self.static, *self.round_share(r))

    def check(self, state: NodeState[Data]) -> None:
        """Raises BadState for a state that no node at this price reaches, as far as its shape tells."""
        if state.round < 1:
            raise BadState(f"the rounds of a node are counted from 1, and the state is of round {state.round}")
        check_like(self.static.gathered([]), state.remaining)
        check_like(self.static.zero(), state.answers)
        self.stream(state.round).check(state.deleted)
        self._number(state.round).check(state.number)

    def _number(self, r: int) -> InfiniteMechanism[int]:
        return InfiniteMechanism(self.counting, self.round_share(r)[0])

    def _sized(self, data: Data, r: int, noise: Noise) -> int:
        return self.counting.under(self.round_share(r)[0], Fraction(0)).release(self.static.size(data), noise)

    def _error_bound(self, r: int, time: int) -> float:
        i, inside = block_of(time + 1)
        return error_bound(i, (inside - 1).bit_count(), self.failure / (pi * r) ** 2) / float(self.round_share(r)[0])


@lru_cache(maxsize=4096)
def error_bound(blocks: int, nodes: int, failure: float) -> float:
    """γ·ε: the error of an infinite counter of Laplace noise that adds so many blocks and nodes, not exceeded with
    probability 1 - failure.

    Chernoff: the least (ln(2/failure) - Σ ln(1 - s²b²)) / s, over i blocks of b = 2 and nodes of b = 2i, at ε = 1.
    """
    scales = [2.0] * blocks + [2.0 * blocks] * nodes or [2.0]
    widest = max(scales)
    bound = float("inf")
    for tenth in range(1, 100):
        s = tenth / 100 / widest
        bound = min(bound, (log(2 / failure) - sum(log1p(-((s * b) ** 2)) for b in scales)) / s)
    return bound


class Born(NamedTuple):
    """An item that is deleted, and the segment that inserted it."""

    item: int
    segment: int


class StreamSegment(NamedTuple):
    """The changes of one segment, in the end: an item that comes and goes within it is not mentioned."""

    inserted: Sequence[int] = ()
    deleted: Sequence[Born] = ()


@dataclass(frozen=True, slots=True)
class TreeState(Generic[Data]):
    """segments: how many have ended. nodes: (j, v_j) of the union, left to right.

    rounds: of each level the most of any node's rounds so far, for which an item may have been charged.
    """

    segments: int
    nodes: tuple[tuple[int, NodeState[Data]], ...]
    rounds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IntervalTree(Mechanism[TreeState[Data], StreamSegment, Data], Generic[Data]):
    """The tree at (epsilon, delta) for ever, given the segments. Neighbours: one item inserted or deleted once more.

    Node v_j is built as segment j ends. It holds what was inserted after its nearest left ancestor, j - lowbit(j), and
    is still there; its level is 1 + the trailing zeros of j. The dataset at q is the disjoint union of v_q and its
    ancestors on the left: q with its lowest binary ones struck off, one after another (lemma 9). An item lies in at
    most one node of each level ℓ, which costs 6ε/π²ℓ², 6δ/π²ℓ².

    failure: β of each node. counting: the static mechanism for the nodes' sizes. ValueError unless it takes pure
    epsilon.
    """

    neighbours = "streams that differ by one item"
    source = "Qiu, Yi, theorem 11"
    static: Static[Data]
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    failure: float = 0.05
    counting: Static[int] = BasicCounting()  # noqa: RUF009 frozen

    def __post_init__(self) -> None:
        if not 0 < self.failure < 1:
            raise ValueError(f"needs 0 < failure < 1, got {self.failure}")
        epsilon, delta = self.at_level(1).round_share(1)
        self.static.under(epsilon, delta)
        self.counting.under(epsilon, Fraction(0))

    def start(self) -> TreeState[Data]:
        """An empty database, before the first segment."""
        return TreeState(0, (), ())

    def step(self, state: TreeState[Data], value: StreamSegment, noise: Noise) -> tuple[TreeState[Data], Data]:
        """value: what one more segment does. Returns the answers on what is there.

        Raises ValueError for the deletion of an item of a segment to come, before anything is drawn.
        """
        if any(not 1 <= born.segment <= state.segments for born in value.deleted):
            raise ValueError("an item is deleted in a later segment than it was inserted in")
        j = state.segments + 1
        left = left_ancestor(j)
        level = (j - left).bit_length()
        self._afford(state, level)
        nodes: list[tuple[int, NodeState[Data]]] = []
        merged = self.static.gathered(list(value.inserted))
        for i, node in state.nodes:
            gone = self.static.gathered([b.item for b in value.deleted if left_ancestor(i) < b.segment <= i])
            if i > left:
                merged = merged + node.remaining - gone
            else:
                nodes.append((i, self.at_level(level_of(i)).step(node, gone, noise)))
        nodes.append((j, self.at_level(level).begun(merged, noise)))
        after = TreeState(j, tuple(nodes), _most_rounds(state.rounds, nodes))
        return after, self.answers(after)

    def answers(self, state: TreeState[Data]) -> Data:
        """The sum over the nodes of the union; what was last released."""
        total = self.static.zero()
        for i, node in state.nodes:
            total = total + self.at_level(level_of(i)).answers(node)
        return total

    def odometer(self, state: TreeState[Data]) -> Odometer:
        """The most that the releases so far have cost an item. Raises BudgetExhausted where there is not as much."""
        spent = Odometer(self.epsilon, self.delta)
        for level, rounds in enumerate(state.rounds, 1):
            for r in range(1, rounds + 1):
                epsilon, delta = self.at_level(level).round_share(r)
                spent = spent.charged(4 * epsilon, 3 * delta)
        return spent

    def at_level(self, level: int) -> DeletingNode[Data]:
        """The nodes of a level at their share of the budget. level: from 1 on."""
        share = BASEL / level**2
        return DeletingNode(self.static, self.epsilon * share, self.delta * share, self.failure, self.counting)

    def check(self, state: TreeState[Data]) -> None:
        """Raises BadState for nodes or rounds that are not those of its segments."""
        if state.segments < 0 or [j for j, _ in state.nodes] != left_path(state.segments):
            raise BadState(f"the nodes of the state are not those of {state.segments} segments")
        possible = all(1 <= rounds <= state.segments for rounds in state.rounds)
        if len(state.rounds) != state.segments.bit_length() or not possible:
            raise BadState("the state does not say of every level how many rounds it has had")
        for j, node in state.nodes:
            self.at_level(level_of(j)).check(node)

    def _afford(self, state: TreeState[Data], level: int) -> None:
        """Raise BudgetExhausted, before anything is drawn, unless every node may restart and a new one be built."""
        rounds = [r + 1 for r in state.rounds] + [1] * (level - len(state.rounds))
        self.odometer(TreeState(state.segments, (), tuple(rounds)))


def left_ancestor(j: int) -> int:
    """The nearest ancestor of v_j on its left; 0 where there is none."""
    return j - (j & -j)


def left_path(j: int) -> list[int]:
    """v_j and its ancestors on the left, from left to right.

    >>> left_path(13)
    [8, 12, 13]
    """
    path: list[int] = []
    while j > 0:
        path.append(j)
        j = left_ancestor(j)
    return path[::-1]


def level_of(j: int) -> int:
    """1 at the leaves."""
    return (j & -j).bit_length()


def _most_rounds(before: tuple[int, ...], nodes: Sequence[tuple[int, NodeState[Data]]]) -> tuple[int, ...]:
    most = dict(enumerate(before, 1))
    for i, node in nodes:
        most[level_of(i)] = max(most.get(level_of(i), 0), node.round)
    return tuple(most[level] for level in sorted(most))


Key = int | str


class Protects(StrEnum):
    """The difference between neighbours."""

    UPDATE = "update"
    ENTRY = "entry"


class Update(NamedTuple):
    """The insertion of an entry with its item, or its deletion: item None."""

    entry: int | str
    item: int | None


@dataclass(frozen=True, slots=True)
class DynamicState(Generic[Data]):
    """held: the item and segment of each entry, as of the last segment's end; None for one that is gone.

    It is held in parts, each over the one before it, so that a segment need not copy what is there.

    pending: the item that the open segment has given an entry, None where it was deleted. partition: of the updates.
    tree: of the segments that have ended.
    """

    partition: PartitionState
    held: tuple[Mapping[Key, Born | None], ...]
    pending: Mapping[Key, int | None]
    tree: TreeState[Data]


@dataclass(frozen=True, slots=True)
class FullyDynamic(Mechanism[DynamicState[Data], Sequence[Update], Data], Generic[Data]):
    """Made by `fully_dynamic`. partitioning: cuts the updates. tree: answers. protects: what neighbours differ in."""

    partitioning: Partitioning
    tree: IntervalTree[Data]
    protects: Protects = Protects.UPDATE

    @property
    def guarantee(self) -> Guarantee:
        """The costs of the partitioning and the tree, added up; an entry's partitioning counts twice."""
        cuts = 1 if self.protects is Protects.UPDATE else 2
        epsilon = cuts * self.partitioning.epsilon + self.tree.epsilon
        return Guarantee(epsilon, self.tree.delta, f"streams that differ by one {self.protects}", "Qiu, Yi, theorem 11")

    def start(self) -> DynamicState[Data]:
        """An empty database, before the first step."""
        return DynamicState(self.partitioning.start(), (), {}, self.tree.start())

    def step(self, state: DynamicState[Data], value: Sequence[Update], noise: Noise) -> tuple[DynamicState[Data], Data]:
        """value: the updates of one more step, in their order. Returns the answers as of the last segment's end.

        Raises UnusableChangelog for the insertion of what is there and the deletion of what is not, and
        ConstraintBroken for an entry inserted again that is protected as a whole; the update is named.
        """
        pending = self._checked(state, value)
        partition, ended = self.partitioning.step(state.partition, len(value), noise)
        if not ended:
            return DynamicState(partition, state.held, pending, state.tree), self.tree.answers(state.tree)
        held, segment = self._settled(state, pending)
        tree, answers = self.tree.step(state.tree, segment, noise)
        return DynamicState(partition, held, {}, tree), answers

    def _checked(self, state: DynamicState[Data], updates: Sequence[Update]) -> Mapping[Key, int | None]:
        """The items that are pending after these updates."""
        pending = dict(state.pending)
        items, step = self.tree.static.items, state.partition.time + 1
        for number, (entry, given) in enumerate(updates, 1):
            where = f"update {number} of step {step}"
            item = None if given is None else whole(given)
            known, born = _looked_up(state.held, entry)
            there = pending[entry] is not None if entry in pending else born is not None
            if given is None and not there:
                raise UnusableChangelog(f"{where}: deletes an entry that is not there")
            if given is not None:
                if item is None or not 0 <= item < items:
                    raise ValueError(f"{where}: an item is one of 0 to {items - 1}")
                if there:
                    raise UnusableChangelog(f"{where}: inserts an entry that is there already")
                if self.protects is Protects.ENTRY and (entry in pending or known):
                    raise ConstraintBroken(f"{where}: inserts an entry again, which the guarantee does not count with")
            pending[entry] = item
        return pending

    def _settled(
        self, state: DynamicState[Data], pending: Mapping[Key, int | None]
    ) -> tuple[tuple[Mapping[Key, Born | None], ...], StreamSegment]:
        """The database after the open segment, and what the segment does to it.

        An entry in `pending` that was there has been deleted, whatever came then. Entries that are protected as a whole
        are remembered when they are gone.
        """
        segment = state.tree.segments + 1
        deleted = [born for entry in pending if (born := _looked_up(state.held, entry)[1]) is not None]
        newest: Mapping[Key, Born | None] = {
            entry: None if item is None else Born(item, segment) for entry, item in pending.items()
        }
        parts: list[Mapping[Key, Born | None]] = list(state.held)
        while parts and len(parts[-1]) < 2 * len(newest):  # so every entry is copied as often as sizes double
            newest = {**parts.pop(), **newest}
        if not parts and self.protects is Protects.UPDATE:
            newest = {entry: born for entry, born in newest.items() if born is not None}
        inserted = [item for item in pending.values() if item is not None]
        return (*parts, newest), StreamSegment(inserted, deleted)

    def check(self, state: DynamicState[Data]) -> None:
        """Raises BadState for parts that have seen different segments, and for items or segments that there are not."""
        self.partitioning.check(state.partition)
        self.tree.check(state.tree)
        if state.partition.segment != state.tree.segments + 1:
            raise BadState("the state's tree has other segments than its partitioning")
        there = [born for part in state.held for born in part.values() if born]
        items = [born.item for born in there] + [item for item in state.pending.values() if item is not None]
        if any(not 0 <= item < self.tree.static.items for item in items):
            raise BadState(f"the state holds an item that is none of 0 to {self.tree.static.items - 1}")
        if any(not 1 <= born.segment <= state.tree.segments for born in there):
            raise BadState("the state holds an entry of a segment that has not ended")


def _looked_up(held: tuple[Mapping[Key, Born | None], ...], entry: Key) -> tuple[bool, Born | None]:
    """True if anything is known of an entry, and where it was born, if it is there."""
    for part in reversed(held):
        if entry in part:
            return True, part[entry]
    return False, None


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


def least_variance(mechanism: FullyDynamic[Data], segments: int) -> float | None:
    """Variance of an answer after so many segments in which no node restarted; None where none is known.

    After j segments the answer adds up one node for each binary one of j, each noisy as its first round is, and what it
    was told of deletions since. Restarts add to it, and an answer is as old as its segment.
    """
    total, tree = 0.0, mechanism.tree
    for node in left_path(segments):
        at = tree.at_level(level_of(node))
        begun = tree.static.under(*at.round_share(1)).variance
        since = at.stream(1).variance(segments - node) if node < segments else 0.0
        if begun is None or since is None:
            return None
        total += begun + since
    return total
