"""What an entry of a joint group counts, on which the law of its next reports depends besides its history.

Entries in the same situation have the same counters, and different counters are few: they are gone through one by one,
which entries never are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from changeling_protocol import Group
from changeling_statistics import agreement_chance
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.intp]
Kind = TypeVar("Kind", np.intp, np.int64, np.bool_, np.float64)


@dataclass(frozen=True, slots=True)
class Counters:
    """The counts of one entry.

    owing: for each track how many nodes the entry still reports, if they are drawn at random; else 0.
    used: how many slots of each track it has used.
    score: the weights of the slots that agreed, added up, no more than the threshold.
    """

    owing: tuple[int, ...]
    used: tuple[int, ...]
    score: int


class Counting:
    """The counters that entries of a joint group come to have, and what follows from them; each has a number."""

    def __init__(self, group: Group) -> None:
        self._tracks, self._kernel = group.tracks, group.kernel
        self._listed: list[Counters] = []
        self._numbers: dict[Counters, int] = {}
        self._chances: dict[tuple[int, Counters], float] = {}

    def starting(self, entries: int) -> Numbers:
        """The counters that entries join with, shape (entries,)."""
        none = (0,) * len(self._tracks)
        return np.full(entries, self._number(Counters(tuple(track.reported or 0 for track in self._tracks), none, 0)))

    def owing(self, place: int, numbers: Numbers) -> NDArray[np.int64]:
        """How many nodes of the track are still to be reported, if they are drawn at random."""
        return self._each(numbers, np.int64, lambda counters: counters.owing[place])

    def reporting(self, place: int, numbers: Numbers) -> Numbers:
        """The counters once one more of those nodes is reported."""
        return self._then(
            numbers, lambda counters: Counters(_plus(counters.owing, place, -1), counters.used, counters.score)
        )

    def have_slots(self, place: int, numbers: Numbers) -> NDArray[np.bool_]:
        """Whether a slot of the track is left."""
        slots = self._kernel.joint.slots
        return self._each(numbers, np.bool_, lambda counters: counters.used[place] < slots[place])

    def tell(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Whether a slot of any track is left."""
        slots = self._kernel.joint.slots
        return self._each(numbers, np.bool_, lambda counters: counters.used != slots)

    def agreement_chances(self, place: int, numbers: Numbers) -> NDArray[np.float64]:
        """How likely the next slot of the track agrees: exact, but for one rounding to a float."""
        return self._each(numbers, np.float64, lambda counters: self._agreement_chance(place, counters))

    def told(self, place: int, numbers: Numbers, *, agreed: bool) -> Numbers:
        """The counters once a slot of the track is used, and agreed or not."""
        return self._then(numbers, lambda counters: self._told(place, counters, agreed))

    def _told(self, place: int, counters: Counters, agreed: bool) -> Counters:
        """Where the threshold is reached, or out of reach, slots are drawn as from the base: as if all were used."""
        joint, used = self._kernel.joint, _plus(counters.used, place, 1)
        score = self._kernel.scored(place, counters.score, agreed)
        left = sum((most - gone) * weight for most, gone, weight in zip(joint.slots, used, joint.weights, strict=True))
        if score >= joint.threshold or score + left < joint.threshold:
            return Counters(counters.owing, joint.slots, 0)
        return Counters(counters.owing, used, score)

    def _agreement_chance(self, place: int, counters: Counters) -> float:
        if (place, counters) not in self._chances:
            odds = self._kernel.conditional_odds(place, counters.used, counters.score)
            self._chances[place, counters] = agreement_chance(self._kernel.agreements[place], odds)
        return self._chances[place, counters]

    def _number(self, counters: Counters) -> int:
        if counters not in self._numbers:
            self._numbers[counters] = len(self._listed)
            self._listed.append(counters)
        return self._numbers[counters]

    def _then(self, numbers: Numbers, follows: Callable[[Counters], Counters]) -> Numbers:
        return self._each(numbers, np.intp, lambda counters: self._number(follows(counters)))

    def _each(self, numbers: Numbers, kind: type[Kind], figure: Callable[[Counters], Any]) -> NDArray[Kind]:
        """A figure of the counters of every row, worked out once for those that are alike."""
        figures = np.zeros(len(self._listed), kind)
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            figures[number] = figure(self._listed[number])
        return figures[numbers]


def _plus(counts: tuple[int, ...], place: int, more: int) -> tuple[int, ...]:
    return (*counts[:place], counts[place] + more, *counts[place + 1 :])
