"""At-most-k from a state diagram: the longest path through its strongly connected components.

Valid only if the answers that are reported *are* the components (`component_of` maps them): a move inside a component
is then no mutation. NULL is a state like any other, so insertion and deletion count. Pan 2023, section 4.3.1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np
from changeling_protocol import AtMost

NULL = ""
"""No answer."""


@dataclass(frozen=True, slots=True)
class StateDiagram:
    """The answers to report and what they promise.

    components: each answer's states, in an order along the moves. constraint: of entries, if these are reported.
    """

    components: tuple[tuple[str, ...], ...]
    constraint: AtMost

    def component_of(self) -> Mapping[str, int]:
        """The component of every state, numbered as in `components`: the recoding that makes the bound valid."""
        return {state: number for number, states in enumerate(self.components) for state in states}


def state_diagram(moves: Iterable[tuple[str, str]], inserted_as: Iterable[str], deletable: bool = True) -> StateDiagram:
    """The components of the states, in an order along the moves, and the most mutations of an entry.

        k = 1 (insertion) + longest path from a state of insertion + 1 (deletion, if entries can be deleted)

    moves: (from, to) among states. inserted_as: the states an entry can begin in. An entry that may be inserted
    again after its deletion has no bound. ValueError for a move from or to NULL, and if nothing can be inserted.

    >>> diagram = state_diagram([("trial", "paying"), ("paying", "late"), ("late", "paying")], ["trial"])
    >>> diagram.components, diagram.constraint.k
    ((('trial',), ('late', 'paying')), 3)
    """
    from scipy.sparse import csc_matrix  # loads slowly
    from scipy.sparse.csgraph import connected_components

    edges, starts = list(moves), sorted(set(inserted_as))
    if not starts:
        raise ValueError("a state diagram names at least one state in which entries are inserted")
    states = sorted({state for edge in edges for state in edge} | set(starts))
    if NULL in states:
        raise ValueError("NULL is no state of a diagram: insertions are `inserted_as`, deletions `deletable`")
    number = {state: i for i, state in enumerate(states)}
    ends = ([number[a] for a, _ in edges], [number[b] for _, b in edges])
    links = csc_matrix((np.ones(len(edges)), ends), shape=(len(states), len(states)))
    count, label = connected_components(links, directed=True, connection="strong")
    before: dict[int, set[int]] = {component: set() for component in range(count)}
    for a, b in zip(label[ends[0]].tolist(), label[ends[1]].tolist(), strict=True):
        if a != b:
            before[b].add(a)
    order = list(TopologicalSorter(before).static_order())
    longest = [0] * count
    for component in reversed(order):
        for earlier in before[component]:
            longest[earlier] = max(longest[earlier], 1 + longest[component])
    most = 1 + max(longest[label[number[state]]] for state in starts) + int(deletable)
    members = tuple(tuple(state for state in states if label[number[state]] == component) for component in order)
    return StateDiagram(members, AtMost(most))
