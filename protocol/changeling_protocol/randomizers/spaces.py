"""What a randomizer may be asked about: a change (old, new) over a node, or a state at its end.

A survey of z answers has states 0..z, 0 being NULL. A space numbers its inputs from 0.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

MOST_ANSWERS = 1000


class Space(Hashable, Protocol):
    """The true inputs of a randomizer; a value, so that it can key a cache."""

    @property
    def answers(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def reports_changes(self) -> bool: ...

    def index(self, old: int, new: int) -> int:
        """The input of an entry in state `old` at a node's start and `new` at its end."""
        ...

    def pair(self, index: int) -> tuple[int, int]:
        """The (old, new) of an input: it takes one from answer `old` and adds one to answer `new`.

        0 is NULL and counts for no answer. Raises ValueError outside the space.
        """
        ...


@dataclass(frozen=True, slots=True)
class MutationSpace:
    """The mutations M over a node: input 0 is "no change", (NULL, NULL).

    z²+z+1 possible ones in order of (old, new); with `repeats` the paper's (z+1)² pairs, which hold the
    impossible (r, r) too.

    >>> MutationSpace(2).size, MutationSpace(2, repeats=True).size
    (7, 9)
    >>> MutationSpace(2).index(1, 2)
    4
    """

    answers: int
    repeats: bool = False

    def __post_init__(self) -> None:
        _check_answers(self.answers)

    @property
    def size(self) -> int:
        z = self.answers
        return (z + 1) ** 2 if self.repeats else z * z + z + 1

    @property
    def reports_changes(self) -> bool:
        return True

    def index(self, old: int, new: int) -> int:
        _check_state(old, self.answers)
        _check_state(new, self.answers)
        if old == new:
            return 0
        if self.repeats:
            return old * (self.answers + 1) + new
        return 1 + old * self.answers + new - (new > old)

    def pair(self, index: int) -> tuple[int, int]:
        if not 0 <= index < self.size:
            raise ValueError(f"mutations are numbered 0 to {self.size - 1}, got {index}")
        if index == 0:
            return 0, 0
        if self.repeats:
            return divmod(index, self.answers + 1)
        old, rest = divmod(index - 1, self.answers)
        return old, rest + (rest >= old)


@dataclass(frozen=True, slots=True)
class StateSpace:
    """The states at a node's end: NULL and z answers, or the answers alone where a closed cohort has no NULL."""

    answers: int
    null: bool = True

    def __post_init__(self) -> None:
        _check_answers(self.answers)

    @property
    def size(self) -> int:
        return self.answers + self.null

    @property
    def reports_changes(self) -> bool:
        return False

    def index(self, old: int, new: int) -> int:
        _check_state(old, self.answers)
        _check_state(new, self.answers)
        if not new and not self.null:
            raise ValueError("this space has no NULL: the cohort is closed")
        return new - (not self.null)

    def pair(self, index: int) -> tuple[int, int]:
        if not 0 <= index < self.size:
            raise ValueError(f"inputs are numbered 0 to {self.size - 1}, got {index}")
        return 0, index + (not self.null)


def _check_answers(answers: int) -> None:
    if not 1 <= answers <= MOST_ANSWERS:
        raise ValueError(f"a survey has 1 to {MOST_ANSWERS} answers, got {answers}")


def _check_state(state: int, answers: int) -> None:
    if not 0 <= state <= answers:
        raise ValueError(f"states are numbered 0 (NULL) to {answers}, and this one is not")
