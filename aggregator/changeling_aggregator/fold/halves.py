"""Sorted ids whose high halves are in memory, in such a way that those of others are looked up fast.

A bit stands for each of many equal parts of the range that a high half is in: of nearly all that are not among them the
bits say so, and the few others are searched for. Where somebody has chosen ids that share parts, it is slower.
"""

from collections.abc import Iterable
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
        parts = np.zeros(1 << length, bool)
        parts[_parts_of(halves, shift)] = True
        bits = np.packbits(parts, bitorder="little")
        return cls(halves, shift, bits)

    @property
    def nbytes(self) -> int:
        """How much memory they take, in bytes."""
        return self.halves.nbytes + self.bits.nbytes


def found_in(others: Halves, each: Iterable[HighHalves]) -> list[Places]:
    """For each, the places of those sorted high halves of others that are among it."""
    bits: dict[np.uint64, tuple[Places, NDArray[np.uint8]]] = {}
    found = []
    for high in each:
        if high.shift not in bits:
            bits[high.shift] = _bits_of(others, high.shift)
        byte, bit = bits[high.shift]
        likely = np.flatnonzero((high.bits[byte] & bit) != 0)  # booleans are sought five times as fast
        if len(likely):
            few = others[likely]
            at = np.searchsorted(high.halves, few)
            at[at == len(high.halves)] = 0
            likely = likely[high.halves[at] == few]
        found.append(likely)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class SortedIds:
    """Ids of one closing, sorted and laid end to end, with their high halves."""

    packed: bytes
    high: HighHalves

    @classmethod
    def of(cls, packed: bytes) -> Self:
        """Sorted ids laid end to end."""
        return cls(packed, HighHalves.of(high_halves(ids_in(packed))))


def _bits_of(halves: Halves, shift: np.uint64) -> tuple[Places, NDArray[np.uint8]]:
    """The bytes that the bits of their parts are in, and what is in such a byte with that bit alone."""
    part = _parts_of(halves, shift)
    return part >> 3, np.left_shift(np.uint8(1), (part & 7).astype(np.uint8))


def _parts_of(halves: Halves, shift: np.uint64) -> Places:
    return (halves >> shift).view(np.int64)
