"""How often an entry's answer may change, and so how many nodes of a track its changes can lie in.

A device turns down a mutation that the constraint does not admit; what a plan costs is worked out from the most nodes
that admitted mutations reach. The first answer, an insertion, is a mutation too. Knows no randomizer.
"""

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .calendar import LAST_INSTANT
from .signing import Fields

MOST_MUTATIONS = 2**20
"""The largest k: a device keeps the mutations of an entry until their node is answered, and these are some 50 MB."""
MOST_CLASSES = 16
"""The most classes of a hybrid constraint: each is asked at every mutation, and for every track of a survey."""


class Constraint(Hashable, Protocol):
    """A bound on the mutations of one entry. A value, so that it can be the key of a cache."""

    def admits(self, mutations: int, elapsed: float) -> bool:
        """Whether one more mutation is allowed.

        mutations: how many the entry has made. elapsed: seconds since the first of them (0 if there is none).
        """
        ...

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """κ: the most nodes that hold a mutation.

        bounds: the N+1 times that bound the N nodes of a disjoint release, rising, in seconds.
        """
        ...

    def as_fields(self) -> Fields:
        """The constraint in a survey's signed bytes, as `constraint_from_fields` reads it."""
        ...


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most k mutations in the entry's life."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"an entry must be allowed at least its insertion: k >= 1, got {self.k}")
        if self.k > MOST_MUTATIONS:
            raise ValueError(f"an entry is allowed at most {MOST_MUTATIONS} mutations, got {self.k}")

    def admits(self, mutations: int, elapsed: float) -> bool:  # noqa: ARG002
        """Whether there were fewer than k so far."""
        return mutations < self.k

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """k, or all where there are fewer."""
        return min(self.k, len(bounds) - 1)

    def as_fields(self) -> Fields:
        """The constraint in a survey's signed bytes."""
        return {"kind": "at-most", "k": self.k}


@dataclass(frozen=True, slots=True)
class TimeBounded:
    """All mutations within B seconds of the first, both ends included."""

    seconds: int

    def __post_init__(self) -> None:
        if self.seconds < 1:
            raise ValueError(f"the bound must be at least one second, got {self.seconds}")
        if self.seconds > LAST_INSTANT:
            raise ValueError(f"the bound must be at most {LAST_INSTANT} seconds, got {self.seconds}")

    def admits(self, mutations: int, elapsed: float) -> bool:
        """Whether it is the first, or no later than B seconds after the first."""
        return mutations == 0 or elapsed <= self.seconds

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """MostSpan: as many as a window of B seconds can meet."""
        return most_span(bounds, self.seconds)

    def as_fields(self) -> Fields:
        """The constraint in a survey's signed bytes."""
        return {"kind": "time-bounded", "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class AtMostWithin:
    """At most k mutations, and all of them within B seconds of the first, both ends included."""

    k: int
    seconds: int

    def __post_init__(self) -> None:
        AtMost(self.k)
        TimeBounded(self.seconds)

    def admits(self, mutations: int, elapsed: float) -> bool:
        """Whether both bounds admit it."""
        return AtMost(self.k).admits(mutations, elapsed) and TimeBounded(self.seconds).admits(mutations, elapsed)

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """The smaller of k and MostSpan."""
        return min(self.k, most_span(bounds, self.seconds))

    def as_fields(self) -> Fields:
        """The constraint in a survey's signed bytes."""
        return {"kind": "at-most-within", "k": self.k, "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Entries of several classes, none of which says which is its own: each entry keeps to one of the constraints."""

    classes: tuple[AtMost | TimeBounded, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise ValueError(f"a hybrid constraint needs at least two classes, got {len(self.classes)}")
        if len(self.classes) > MOST_CLASSES:
            raise ValueError(f"a hybrid constraint has at most {MOST_CLASSES} classes, got {len(self.classes)}")

    def admits(self, mutations: int, elapsed: float) -> bool:
        """Whether some class admits it."""
        return any(constraint.admits(mutations, elapsed) for constraint in self.classes)

    def most_nodes(self, bounds: Sequence[int]) -> int:
        """The most of any class."""
        return max(constraint.most_nodes(bounds) for constraint in self.classes)

    def as_fields(self) -> Fields:
        """The constraint in a survey's signed bytes."""
        return {"kind": "hybrid", "classes": [constraint.as_fields() for constraint in self.classes]}


def constraint_from_fields(fields: Fields) -> Constraint:
    """The constraint that `as_fields` wrote. Raises ValueError for anything else."""
    match fields:
        case {"kind": "hybrid", "classes": [*classes], **rest} if not rest:
            return Hybrid(tuple(_class_from_fields(each) for each in classes))
        case {"kind": "at-most-within", "k": int(k), "seconds": int(seconds), **rest} if not rest:
            return AtMostWithin(k, seconds)
    return _class_from_fields(fields)


def _class_from_fields(fields: Fields) -> AtMost | TimeBounded:
    match fields:
        case {"kind": "at-most", "k": int(k), **rest} if not rest:
            return AtMost(k)
        case {"kind": "time-bounded", "seconds": int(seconds), **rest} if not rest:
            return TimeBounded(seconds)
    raise ValueError(f"not a constraint: {fields!r}")


def most_span(bounds: Sequence[int], length: int) -> int:
    """MostSpan: the most nodes that a closed window of `length` can meet, wherever it lies.

        max over i of #{ j >= i : start_j < end_i + length },   node j being (bounds[j], bounds[j+1]]

    bounds: the times that bound the nodes, rising; of nodes of one width a range, however many they are.
    A window is worst when it begins at the end of a node. One that reaches past the last end counts the
    nodes that remain, which the paper's own code misses (Pan 2023, section 4.2; docs/central/errata.md).

    >>> most_span([0, 2, 5, 8, 10, 11, 12], 5)
    4
    """
    if length < 0:
        raise ValueError(f"a window cannot have a length of {length}")
    starts, ends = bounds[:-1], bounds[1:]
    if isinstance(bounds, range):  # nodes of one width: the first window meets as many as any
        ends = ends[:1]
    return max((bisect_left(starts, end + length) - i for i, end in enumerate(ends)), default=0)
