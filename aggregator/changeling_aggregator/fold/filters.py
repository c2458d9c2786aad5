"""Which of some high halves may be among others, told at one look in memory, however many the others are.

Each half has a word of 64 bits, by the part of the range that it is in, and in it some bits, by its last digits: if one
of them is not set, the half is not among the others. Of those that are not, all but one in 180 are told so, or more.
Where somebody has chosen halves that share a part, fewer of that part are.
"""

from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .ids import Halves, Places

MOST_BYTES_A_HALF = 4
"""So much memory a filter takes for each half, if they are more than a few."""
_MOST_A_WORD = 4
_LEAST_WORDS = 4
_DIGITS = 14
_BITS = 4


def _masks() -> NDArray[np.uint64]:
    """By the last digits of a half, its bits. Where they are is arbitrary."""
    mixed = np.arange(1 << _DIGITS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places = (mixed >> np.uint64(64 - 6 * bit) & np.uint64(63) for bit in range(1, _BITS + 1))
    masks: NDArray[np.uint64] = np.bitwise_or.reduce([np.uint64(1) << place for place in places])
    return masks


_MASKS = _masks()
_LAST_DIGITS = np.uint64(len(_MASKS) - 1)


class Filter:
    """Of some high halves. Make it with `of`; others can be added as long as there is room."""

    def __init__(self, words: int) -> None:
        self._words = np.zeros(words, np.uint64)
        self._shift = np.uint64(64 - (words.bit_length() - 1))
        self._count = 0

    @classmethod
    def of(cls, parts: Iterable[Halves]) -> Self:
        """Of all these, with the room that is left in memory of a power of two."""
        parts = [*parts]
        words = _LEAST_WORDS
        while words * _MOST_A_WORD < sum(map(len, parts)):
            words *= 2
        made = cls(words)
        for halves in parts:
            made.add(halves)
        return made

    @property
    def nbytes(self) -> int:
        """How much memory it takes, in bytes."""
        return self._words.nbytes

    def has_room(self, more: int) -> bool:
        """Whether so many can be added."""
        return self._count + more <= len(self._words) * _MOST_A_WORD

    def add(self, halves: Halves) -> None:
        """Add these, which may be alike, and may be there already."""
        np.bitwise_or.at(self._words, *self._bits(halves))
        self._count += len(halves)

    def likely(self, halves: Halves) -> Places:
        """The places of those that may be among the filter's."""
        words, bits = self._bits(halves)
        common = self._words.take(words)
        common &= bits
        return np.flatnonzero(common == bits)

    def _bits(self, halves: Halves) -> tuple[Places, NDArray[np.uint64]]:
        """In which word each half is, and its bits there."""
        return (halves >> self._shift).view(np.int64), _MASKS.take((halves & _LAST_DIGITS).view(np.int64))
