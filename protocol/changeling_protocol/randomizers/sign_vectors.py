"""Vectors of signs in a fixed order: from rank to vector and back, in exact integers, without listing them.

A vector has +1, -1 or 0 at each position. Its shape is how many pluses and how many minuses it has. Vectors are
ordered by shape, and within a shape position by position, + before - before 0. A subset is a vector without minuses.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import comb

Shape = tuple[int, int]
"""How many pluses, how many minuses."""
Signs = tuple[int, ...]
"""A vector: +1, -1 or 0 for each position."""


@dataclass(frozen=True, slots=True)
class SignVectors:
    """All vectors of one length that have one of some shapes.

    length: how many positions. shapes: (pluses, minuses), each once, in the order of the ranks.

    >>> pairs = SignVectors(3, ((1, 1),))
    >>> pairs.count, pairs.unrank(1), pairs.rank((1, 0, -1))
    (6, (1, 0, -1), 1)
    """

    length: int
    shapes: tuple[Shape, ...]

    @property
    def count(self) -> int:
        """How many vectors there are."""
        return sum(arrangements(self.length, *shape) for shape in self.shapes)

    def rank(self, signs: Signs) -> int:
        """The place of a vector in the order, from 0. Raises ValueError if it is not one of them."""
        shape = signs.count(1), signs.count(-1)
        if len(signs) != self.length or shape not in self.shapes:
            raise ValueError(f"not a vector of {self.length} signs with one of the shapes {self.shapes}")
        before = self.shapes[: self.shapes.index(shape)]
        rank = sum(arrangements(self.length, *earlier) for earlier in before)
        pluses, minuses = shape
        for left, sign in zip(range(self.length - 1, -1, -1), signs, strict=True):
            for candidate, rest in _choices(pluses, minuses):
                if candidate == sign:
                    pluses, minuses = rest
                    break
                rank += arrangements(left, *rest)
        return rank

    def unrank(self, rank: int) -> Signs:
        """The vector at a place in the order. Raises ValueError outside 0 .. count - 1."""
        if not 0 <= rank < self.count:
            raise ValueError(f"ranks run from 0 to {self.count - 1}, got {rank}")
        for pluses, minuses in self.shapes:
            size = arrangements(self.length, pluses, minuses)
            if rank < size:
                return tuple(_unranked(self.length, pluses, minuses, rank))
            rank -= size
        raise AssertionError("the shapes' sizes add up to the count")

    def completing(self, fixed: Mapping[int, int]) -> "SignVectors":
        """All vectors that the other positions may hold if some positions are fixed, in the order of positions.

        fixed: signs by position. `completed` makes one of our vectors of the two.
        """
        signs = list(fixed.values())
        pluses, minuses = signs.count(1), signs.count(-1)
        shapes = ((p - pluses, q - minuses) for p, q in self.shapes)
        length = self.length - len(fixed)
        return SignVectors(length, tuple(shape for shape in shapes if arrangements(length, *shape)))

    def completed(self, rest: Signs, fixed: Mapping[int, int]) -> Signs:
        """The vector with `fixed` signs at their positions, and the signs of `rest` at the others, in order."""
        others = iter(rest)
        return tuple(fixed[i] if i in fixed else next(others) for i in range(self.length))


def arrangements(length: int, pluses: int, minuses: int) -> int:
    """How many vectors of a length have so many pluses and minuses; 0 where that is impossible."""
    if pluses < 0 or minuses < 0 or pluses + minuses > length:
        return 0
    return comb(length, pluses) * comb(length - pluses, minuses)


def _choices(pluses: int, minuses: int) -> Iterator[tuple[int, Shape]]:
    """The signs a position may have, in order, and the shape that is then left for the positions after it."""
    yield 1, (pluses - 1, minuses)
    yield -1, (pluses, minuses - 1)
    yield 0, (pluses, minuses)


def _unranked(length: int, pluses: int, minuses: int, rank: int) -> Iterator[int]:
    """The signs, one after another, of the vector of this rank among those of one shape."""
    for left in range(length - 1, -1, -1):
        for sign, rest in _choices(pluses, minuses):
            size = arrangements(left, *rest)
            if rank < size:
                pluses, minuses = rest
                yield sign
                break
            rank -= size
