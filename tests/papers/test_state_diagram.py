"""At-most-k from state diagrams, against walks that are enumerated."""

from itertools import product

import pytest
from changeling_papers import state_diagram


def longest_walk(moves, starts, component_of, deletable):
    """The most mutations of the reported component over every walk of up to 8 moves, with insertion and deletion."""
    best, walks = 0, [(s, 1) for s in starts]
    for _ in range(8):
        best = max(best, *(count for _, count in walks))
        walks = list(
            {
                (b, count + (component_of[b] != component_of[a]))
                for (at, count), (a, b) in product(walks, moves)
                if a == at
            }
        )
        if not walks:
            break
    return best + deletable


CASES = [
    ([("school", "work")], ["school"], 3),
    ([("school", "work"), ("work", "jobless"), ("jobless", "work"), ("work", "retired")], ["school"], 4),
    ([("a", "b"), ("b", "a")], ["a"], 2),
    ([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("x", "d"), ("d", "e")], ["a", "x"], 4),
    ([("a", "b"), ("b", "c"), ("a", "c")], ["b"], 3),
    ([], ["a"], 2),
]


@pytest.mark.parametrize(("moves", "starts", "k"), CASES)
@pytest.mark.parametrize("deletable", [True, False])
def test_k_is_the_longest_of_all_walks_over_components(moves, starts, k, deletable):
    """With the insertion, and the deletion where there can be one."""
    diagram = state_diagram(moves, starts, deletable)
    assert diagram.constraint.k == k - (not deletable) == longest_walk(moves, starts, diagram.component_of(), deletable)


def test_moves_inside_a_component_are_no_mutations_only_when_components_are_reported():
    """The diagram says which answers to report: states that lead to one another are one."""
    diagram = state_diagram([("work", "jobless"), ("jobless", "work"), ("work", "retired")], ["work"])
    assert diagram.components == (("jobless", "work"), ("retired",))
    assert diagram.component_of()["jobless"] == diagram.component_of()["work"] == 0


def test_diagrams_without_a_beginning_or_with_null_are_refused():
    """Insertion and deletion are no moves between states."""
    with pytest.raises(ValueError, match="at least one state"):
        state_diagram([("a", "b")], [])
    with pytest.raises(ValueError, match="NULL is no state"):
        state_diagram([("", "b")], ["b"])
