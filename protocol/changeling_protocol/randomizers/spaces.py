"""What a randomizer reports on: the change (old, new) of an entry over a node, or its state at the node's end.

A survey of z answers has the states 0 to z; 0 is NULL, no answer. A space numbers the inputs of a randomizer from 0.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

MOST_ANSWERS = 1000
"""The most answers: a person chooses among them, and what a randomizer computes grows with their square."""

NO_NULL = "this space has no NULL: the cohort is closed"


class Space(Hashable, Protocol):
    """The true inputs of a randomizer. A value, so that it can be the key of a cache."""

    @property
    def answers(self) -> int:
        """z, how many answers the survey has."""
        ...

    @property
    def size(self) -> int:
        """m, how many inputs there are."""
        ...

    @property
    def null(self) -> bool:
        """Whether NULL is one of the states; if not, the cohort is closed and everybody has an answer."""
        ...

    @property
    def reports_changes(self) -> bool:
        """Whether an input is a change over a node; if not, it is the state at the node's end."""
        ...

    def index(self, old: int, new: int) -> int:
        """The input of an entry that was in state `old` when a node started, and in `new` when it ended.

        Raises ValueError for what is no state, without naming it.
        """
        ...

    def pair(self, index: int) -> tuple[int, int]:
        """The states (old, new) of an input: the entry leaves `old` and comes to `new`, which changes the histogram.

        NULL is no answer, so an insertion only adds and a deletion only takes away. For reports of states `old` is
        NULL always. Raises ValueError outside the space.
        """
        ...


@dataclass(frozen=True, slots=True)
class MutationSpace:
    """The mutations over a node. Input 0 is "no change", (NULL, NULL); the others follow in order of (old, new).

    answers: z.
    repeats: whether to have the paper's (z+1)² pairs, with (r, r) among them, which never occur; if not, there are
    d(d-1)+1 inputs over d states.
    null: whether NULL is one of the d states. If not, only moves from one answer to another are told, as in a closed
    cohort after its first period.
    Raises ValueError for a number of answers that no survey has, or for pairs (r, r) without NULL.

    >>> MutationSpace(2).size, MutationSpace(2, repeats=True).size, MutationSpace(2, null=False).size
    (7, 9, 3)
    >>> MutationSpace(2).index(1, 2)
    4
    """

    answers: int
    repeats: bool = False
    null: bool = True

    def __post_init__(self) -> None:
        check_answers(self.answers)
        if self.repeats and not self.null:
            raise ValueError("the paper's pairs (r, r) are over all states, NULL included")

    @property
    def states(self) -> int:
        """d: z+1, or z without NULL."""
        return self.answers + self.null

    @property
    def size(self) -> int:
        """d(d-1)+1, or (z+1)² with the pairs (r, r)."""
        return self.states**2 if self.repeats else self.states * (self.states - 1) + 1

    @property
    def reports_changes(self) -> bool:
        """Yes: an input is a mutation."""
        return True

    def index(self, old: int, new: int) -> int:
        """The input of a mutation; 0 if the two states are the same. Raises ValueError for what is no state here."""
        _check_state(old, self.answers)
        _check_state(new, self.answers)
        if not (self.null or (old and new)):
            raise ValueError(NO_NULL)
        if old == new:
            return 0
        if self.repeats:
            return old * (self.answers + 1) + new
        first = not self.null
        return 1 + (old - first) * (self.states - 1) + new - first - (new > old)

    def pair(self, index: int) -> tuple[int, int]:
        """The mutation (old, new) of an input; (NULL, NULL) for no change. Raises ValueError outside the space."""
        if not 0 <= index < self.size:
            raise ValueError(f"mutations are numbered 0 to {self.size - 1}, got {index}")
        if index == 0:
            return 0, 0
        if self.repeats:
            return divmod(index, self.answers + 1)
        old, rest = divmod(index - 1, self.states - 1)
        new = rest + (rest >= old)
        return old + (not self.null), new + (not self.null)


@dataclass(frozen=True, slots=True)
class StateSpace:
    """The states at a node's end, in order.

    answers: z.
    null: whether NULL is among them; if not, the cohort is closed and everybody has an answer.
    Raises ValueError for a number of answers that no survey has.
    """

    answers: int
    null: bool = True

    def __post_init__(self) -> None:
        check_answers(self.answers)

    @property
    def size(self) -> int:
        """z+1, or z without NULL."""
        return self.answers + self.null

    @property
    def reports_changes(self) -> bool:
        """No: an input is a state."""
        return False

    def index(self, old: int, new: int) -> int:
        """The input of the state `new`; `old` plays no part. Raises ValueError for what is no state of the space."""
        _check_state(old, self.answers)
        _check_state(new, self.answers)
        if not new and not self.null:
            raise ValueError(NO_NULL)
        return new - (not self.null)

    def pair(self, index: int) -> tuple[int, int]:
        """(NULL, the input's state). Raises ValueError outside the space."""
        if not 0 <= index < self.size:
            raise ValueError(f"inputs are numbered 0 to {self.size - 1}, got {index}")
        return 0, index + (not self.null)


def check_answers(answers: int) -> None:
    """Raises ValueError for a number of answers that no survey has."""
    if not 1 <= answers <= MOST_ANSWERS:
        raise ValueError(f"a survey has 1 to {MOST_ANSWERS} answers, got {answers}")


def _check_state(state: int, answers: int) -> None:
    if not 0 <= state <= answers:
        raise ValueError(f"states are numbered 0 (NULL) to {answers}, and this one is not")
