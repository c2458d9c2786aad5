"""The online interval tree: a database under insertion and deletion, as datasets from which items are only deleted.

Node v_j is built as segment j ends. It holds what was inserted after its nearest left ancestor, j - lowbit(j), and is
still there; its level is 1 + the trailing zeros of j. The dataset at q is the disjoint union of v_q and its ancestors
on the left: q with its lowest binary ones struck off, one after another (Qiu, Yi, lemma 9).
Guarantee: (epsilon, delta) for ever, given the segments: an item lies in at most one node of each level ℓ, which
costs 6ε/π²ℓ², 6δ/π²ℓ². Neighbours: streams that differ by one item, inserted once more, or deleted once more, or both.
Source: Qiu, Yi, section 4. The state holds true datasets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, NamedTuple

from ..errors import BadState
from ..mechanism import Guarantee, Mechanism
from ..noise import Noise
from ..odometer import Odometer
from ..static import BasicCounting, Data, Static
from .deleting_node import BASEL, DeletingNode, NodeState


class Born(NamedTuple):
    """An item that is deleted, and the segment that inserted it."""

    item: int
    segment: int


class Segment(NamedTuple):
    """What one segment does, in the end: an item that comes and goes within it is not mentioned."""

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
class IntervalTree(Mechanism[TreeState[Data], Segment, Data], Generic[Data]):
    """The tree at (epsilon, delta). failure: β of each node.

    counting: the static mechanism for the nodes' sizes. ValueError unless it takes pure epsilon.
    """

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

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for all segments, given where they end."""
        return Guarantee(self.epsilon, self.delta, "streams that differ by one item", "Qiu, Yi, theorem 11")

    def start(self) -> TreeState[Data]:
        """An empty database, before the first segment."""
        return TreeState(0, (), ())

    def step(self, state: TreeState[Data], value: Segment, noise: Noise) -> tuple[TreeState[Data], Data]:
        """value: what one more segment does. Returns the answers on what is there, in multiples of 1/grain.

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
        """What the releases so far have cost an item at most. Raises BudgetExhausted where there is not as much."""
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
        """That every node of the union restarts and a new one is built, before anything is drawn."""
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
