"""Sorted ids whose high halves are in memory, in such a way that those of others are looked up fast.

A bit stands for each of many equal parts of the range that a high half is in: of nearly all that are not among them the
bits say so, and the few others are searched for. Where somebody has chosen ids that share parts, it is slower.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .ids import Halves, Places, high_halves, ids_in

_PARTS = 16
"""At least so many parts of the range for each high half."""


@dataclass(frozen=True, slots=True, eq=False)
class HighHalves:
    """Some sorted high halves, which may be alike. Make them with `of`.

    shift: by how many bits a high half is shifted to give its part of the range. bits: of all parts, eight a byte.
    """

    halves: Halves
    shift: np.uint64
    bits: NDArray[np.uint8]

    @classmethod
    def of(cls, halves: Halves) -> Self:
        """Those of sorted high halves."""
        length = max((_PARTS * len(halves)).bit_length(), 3)
        shift = np.uint64(64 - length)
        bits = np.zeros(1 << length - 3, np.uint8)
        if len(halves):
            byte, bit = _places_of_bits(halves, shift)
            begins = np.flatnonzero(np.concatenate([[True], byte[1:] != byte[:-1]]))
            bits[byte[begins]] = np.bitwise_or.reduceat(np.left_shift(np.uint8(1), bit), begins)
        return cls(halves, shift, bits)

    @property
    def nbytes(self) -> int:
        """How much memory they take, in bytes."""
        return self.halves.nbytes + self.bits.nbytes

    def found(self, others: Halves) -> Places:
        """The places of those sorted high halves that are among these."""
        byte, bit = _places_of_bits(others, self.shift)
        likely = np.flatnonzero(np.right_shift(self.bits[byte], bit) & np.uint8(1))
        if not len(likely):
            return likely
        few = others[likely]
        at = np.searchsorted(self.halves, few)
        at[at == len(self.halves)] = 0
        return likely[self.halves[at] == few]


@dataclass(frozen=True, slots=True, eq=False)
class SortedIds:
    """Ids of one closing, sorted and laid end to end, with their high halves."""

    packed: bytes
    high: HighHalves

    @classmethod
    def of(cls, packed: bytes) -> Self:
        """Sorted ids laid end to end."""
        return cls(packed, HighHalves.of(high_halves(ids_in(packed))))


def _places_of_bits(halves: Halves, shift: np.uint64) -> tuple[Places, NDArray[np.uint8]]:
    """The bytes that their parts' bits are in, and the places of the bits in them."""
    part = (halves >> shift).view(np.int64)
    return part >> 3, (part & 7).astype(np.uint8)
