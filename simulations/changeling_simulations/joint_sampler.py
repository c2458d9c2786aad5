"""The tallies of a joint group, where what an entry sends depends on what it has sent, without drawing entries.

Entries that have the same inputs from now on, and the same counters, are one row of a table. At each node those that
tell something are parted into those that agree and those that do not, with the exact conditional chance that their
devices have. Different counters are few: they are gone through one by one, which entries never are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from changeling_protocol import Group, NodeNumber, Track, agreeing
from changeling_statistics import Counts, NodeTally, agreement_chance, counterpart_of
from numpy.typing import NDArray

from .population import Population, weighted_counts

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
        none = (0,) * len(self._kernel.joint.slots)
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
        slots, seen = self._kernel.joint.slots, len(self._tracks)  # those of hidden tracks stay unused
        return self._each(numbers, np.bool_, lambda counters: counters.used[:seen] != slots[:seen])

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


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of a group; those that are alike are one row. All of shape (rows,).

    history: one of the histories that have the inputs which the entries have from now on; any if they tell nothing.
    counters: the numbers of their counters.
    count: how many entries there are.
    """

    history: Numbers
    counters: Numbers
    count: Counts

    def __getitem__(self, rows: NDArray[np.bool_]) -> "Entries":
        """Some of the rows."""
        return Entries(self.history[rows], self.counters[rows], self.count[rows])

    def merged(self, *others: "Entries") -> "Entries":
        """Their rows and those of others, with one row for entries that are alike, and none for nobody."""
        history, counters, count = (
            np.concatenate([getattr(entries, column) for entries in (self, *others)])
            for column in ("history", "counters", "count")
        )
        alike = history * (int(counters.max(initial=0)) + 1) + counters
        order = np.flatnonzero(count)[np.argsort(alike[count > 0], kind="stable")]
        first = np.flatnonzero(np.diff(alike[order], prepend=-1))
        return Entries(history[order][first], counters[order][first], np.add.reduceat(count[order], first))


def joint_nodes(
    population: Population, group: Group, members: Counts, generator: np.random.Generator
) -> Iterator[tuple[int, NodeNumber, NodeTally]]:
    """Draws the tally of every node of a joint group, in the order in which devices answer them.

    members: how many entries of each of the population's histories are in the group, shape (rows,).
    Yields the track's place in the group, the node's number, and its tally.
    """
    counting, nodes = Counting(group), in_order(group)
    order, differ = by_what_is_to_come(population, group, nodes)
    entries = Entries(np.arange(len(members)), counting.starting(len(members)), members[order])
    for at, (place, number) in enumerate(nodes):
        track = group.tracks[place]
        matters = counting.tell(entries.counters)
        history = np.where(matters, _first_alike(differ >= at)[entries.history], 0)
        entries = replace(entries, history=history).merged()
        waiting, reporting = _drawn(entries, counting, place, track, number, generator)
        inputs = population.inputs(track, track.node(number))[order]
        tells = _tells(track)[inputs]
        telling = tells[reporting.history] & counting.have_slots(place, reporting.counters)
        base, told = reporting[~telling], reporting[telling]
        agreed = generator.binomial(told.count, counting.agreement_chances(place, told.counters))
        size, given = track.randomizer.space.size, inputs[told.history]
        yield (
            place,
            number,
            counterpart_of(track.randomizer).sample_joint(
                weighted_counts(given, agreed, size),
                weighted_counts(given, told.count - agreed, size),
                int(base.count.sum()),
                generator,
            ),
        )
        entries = waiting.merged(
            base,
            Entries(told.history, counting.told(place, told.counters, agreed=True), agreed),
            Entries(told.history, counting.told(place, told.counters, agreed=False), told.count - agreed),
        )


def in_order(group: Group) -> list[tuple[int, NodeNumber]]:
    """The nodes of all tracks as they close, those that close together by track: (place of the track, number)."""
    ends = [
        (track.node(number).end, place, number)
        for place, track in enumerate(group.tracks)
        for number in track.node_numbers()
    ]
    return [(place, number) for _, place, number in sorted(ends)]


def by_what_is_to_come(
    population: Population, group: Group, nodes: Sequence[tuple[int, NodeNumber]]
) -> tuple[Numbers, Numbers]:
    """Histories in such an order that, at every node, those with the same inputs from there on are neighbours.

    Returns their order, shape (rows,), and the last node, by its place among `nodes`, on which a history and the one
    before it have different inputs, shape (rows,): -1 if there is none, and the number of nodes for the first history.
    """
    inputs_of = [(group.tracks[place], group.tracks[place].node(number)) for place, number in nodes]
    order = np.arange(len(population.weights))
    for track, node in inputs_of:
        order = order[np.argsort(population.inputs(track, node)[order], kind="stable")]
    differ = np.full(len(order), -1)
    for at, (track, node) in enumerate(inputs_of):
        inputs = population.inputs(track, node)[order]
        differ[1:][inputs[1:] != inputs[:-1]] = at
    differ[0] = len(nodes)
    return order, differ


def _first_alike(differs: NDArray[np.bool_]) -> Numbers:
    """For each of some neighbours the first of those it is like. differs: whether each differs from the one before."""
    first: Numbers = np.maximum.accumulate(np.where(differs, np.arange(len(differs)), 0))
    return first


def _tells(track: Track) -> NDArray[np.bool_]:
    """Which inputs of a track tell something, shape (m,)."""
    joint_form = agreeing(track.randomizer)
    return np.array([joint_form.tells(true) for true in range(joint_form.space.size)])


def _drawn(
    entries: Entries,
    counting: Counting,
    place: int,
    track: Track,
    number: NodeNumber,
    generator: np.random.Generator,
) -> tuple[Entries, Entries]:
    """The entries that do not report on a node of a track, and those that do, which then owe one less.

    If nodes are drawn at random this is selection sampling, as in `sampler.reporting`.
    """
    if track.reported is None:
        return entries[np.zeros(len(entries.count), np.bool_)], entries
    to_come = track.count - number + 1
    picked = generator.binomial(entries.count, np.minimum(counting.owing(place, entries.counters) / to_come, 1))
    some = picked > 0
    counters = counting.reporting(place, entries.counters[some])
    waiting = Entries(entries.history, entries.counters, entries.count - picked)
    return waiting, Entries(entries.history[some], counters, picked[some])
