"""Draws the tallies of a survey from how many entries have which input, without drawing each device's reports.

The tallies have the distribution that sums of all devices' reports have, jointly over nodes, tracks and groups, up to
the rounding of probabilities to floats. A billion entries take no longer than a thousand.

In history and joint groups, what an entry sends depends on what it has sent. Entries that are alike from now on are one
row of a table there: those that have reported alike so far, or that have the same inputs and the same counters. At each
node the rows are parted with the exact conditional chances that devices have.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from changeling_protocol import (
    Group,
    History,
    HistoryKernel,
    HistoryState,
    Joint,
    NodeNumber,
    Survey,
    Track,
    agreeing,
    closings,
)
from changeling_statistics import (
    Attendance,
    Counts,
    GroupClosing,
    NodeTally,
    PlanNode,
    Tallies,
    agreement_chance,
    counterpart_of,
)
from numpy.typing import NDArray

from .population import Population, weighted_counts

Symbols = NDArray[np.intp]


def history_nodes(
    population: Population, group: Group, members: Counts, generator: np.random.Generator
) -> Iterator[tuple[int, NodeNumber, NodeTally]]:
    """Draws the tally of every node of a history group, in order.

    members: how many entries of each of the population's histories are in the group, shape (rows,).
    Yields the track's place in the group, the node's number, and its tally.
    """
    kernel = group.histories
    true = generator.binomial(members, float(kernel.told))
    others = Counter({HistoryState(true=False): int(members.sum() - true.sum())})
    for place, track in enumerate(group.tracks):
        for number in track.node_numbers():
            slots = population.mutation_counts(track, track.node(number), true)
            others = _one_more(kernel, others, generator)
            for state, count in others.items():
                slots[state.last] += count
            yield place, number, NodeTally(int(members.sum()), slots)


def _one_more(
    kernel: HistoryKernel, entries: Counter[HistoryState], generator: np.random.Generator
) -> Counter[HistoryState]:
    """The entries by what they remember, once each has drawn one more report of the base."""
    after: Counter[HistoryState] = Counter()
    possible = kernel.possible
    for state, count in entries.items():
        chances = np.full(possible.states, chance_of_change(kernel, state) / (possible.states - 1))
        chances[state.last] = 0.0
        chances[state.last] = 1.0 - chances.sum()
        drawn = generator.multinomial(count, chances)
        for symbol in np.flatnonzero(drawn).tolist():
            after[possible.after(state, symbol, true=False)] += int(drawn[symbol])
    return after


def chance_of_change(kernel: HistoryKernel, state: HistoryState) -> float:
    """How likely the next report of the base is not the last one again; exact, but for one rounding to a float."""
    stays, changes = kernel.possible.going_on(state)
    changing = (kernel.possible.states - 1) * changes
    return changing / (stays + changing)


class SentHistories:
    """The reports that each of some entries of a history group sends.

    kernel: the group's. entries: how many there are. generator: draws everything.
    """

    def __init__(self, kernel: HistoryKernel, entries: int, generator: np.random.Generator) -> None:
        self._kernel, self._generator = kernel, generator
        self._true = generator.random(entries) < float(kernel.told)
        self._drawn = 0
        self._last, self._first, self._changed = (np.zeros(entries, np.intp) for _ in range(3))

    def next(self, inputs: Symbols) -> Symbols:
        """The symbols at the group's next time, whether they are sent or not; (entries,). inputs: the truth."""
        possible, generator = self._kernel.possible, self._generator
        codes, of_entry = np.unique(self._first * (possible.times + 1) + self._changed, return_inverse=True)
        states = (
            HistoryState(self._drawn, 0, first, changed)
            for first, changed in (divmod(code, possible.times + 1) for code in codes.tolist())
        )
        chances = np.array([chance_of_change(self._kernel, state) for state in states])
        changes = generator.random(len(self._last)) < chances[of_entry]
        other = generator.integers(possible.states - 1, size=len(self._last))
        symbols = np.where(changes, other + (other >= self._last), self._last)
        self._drawn += 1
        answered = (self._first == 0) & ((symbols > 0) | (not possible.null))
        self._changed += changes & (self._first > 0)
        self._first[answered] = self._drawn
        self._last = symbols
        return np.where(self._true, inputs, symbols)


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
        """Mask of the entries with a slot of the track left."""
        slots = self._kernel.joint.slots
        return self._each(numbers, np.bool_, lambda counters: counters.used[place] < slots[place])

    def tell(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Mask of the entries with a slot of any track left."""
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
        tells = tells_of(track)[inputs]
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


def tells_of(track: Track) -> NDArray[np.bool_]:
    """Mask of the inputs of a track that tell something, shape (m,)."""
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

    If nodes are drawn at random this is selection sampling, as in `reporting`.
    """
    if track.reported is None:
        return entries[np.zeros(len(entries.count), np.bool_)], entries
    to_come = track.count - number + 1
    picked = generator.binomial(entries.count, np.minimum(counting.owing(place, entries.counters) / to_come, 1))
    some = picked > 0
    counters = counting.reporting(place, entries.counters[some])
    waiting = Entries(entries.history, entries.counters, entries.count - picked)
    return waiting, Entries(entries.history[some], counters, picked[some])


def check_fits(population: Population, survey: Survey) -> None:
    """Raises ValueError for a population of other answers, or another number of periods, than the survey."""
    if population.answers != survey.answers:
        raise ValueError("the population and the survey must have the same answers, in the same order")
    if population.periods != survey.calendar.periods:
        raise ValueError(f"the population lives {population.periods} periods, the survey {survey.calendar.periods}")


def full_attendance(survey: Survey, members: Counts) -> dict[GroupClosing, Attendance]:
    """The attendance of groups whose members have all enrolled before the first closing, and are always heard.

    members: how many entries of each history are in each group, shape (rows, groups).
    """
    periods = closings(survey.plan, 0, survey.calendar.periods)
    return {
        (group, period): Attendance(heard=size, new=size if period == periods[0] else 0)
        for group, size in enumerate(members.sum(0).tolist())
        if size
        for period in periods
    }


def plain_nodes(
    population: Population, group: Group, members: Counts, generator: np.random.Generator
) -> Iterator[tuple[int, NodeNumber, NodeTally]]:
    """Draws the tally of every node of a group whose reports are drawn each by itself, track by track.

    members: how many entries of each of the population's histories are in the group, shape (rows,).
    Yields the track's place in the group, the node's number, and its tally.
    """
    for place, track in enumerate(group.tracks):
        for number, weights in zip(track.node_numbers(), reporting(track, members, generator), strict=True):
            counts = population.mutation_counts(track, track.node(number), weights)
            yield place, number, counterpart_of(track.randomizer).sample(counts, generator)


def sample_tallies(population: Population, survey: Survey, generator: np.random.Generator) -> Tallies:
    """Draws the tallies of a whole survey that everybody answers from the first closing to the last.

    population: of the same answers, in the same order, and as many periods as the survey.
    generator: draws everything. Raises ValueError if the two do not fit.

    >>> from decimal import Decimal
    >>> from changeling_protocol import AtMost, Calendar
    >>> from changeling_simulations import closed_cohort, paper_survey
    >>> population = closed_cohort(1000, 2, periods=4, most_changes=1, generator=np.random.default_rng(1))
    >>> survey = paper_survey(population.answers, Calendar(0, "1d", 4), AtMost(2), epsilon=Decimal(20))
    >>> {tally.reports for _, tally in sample_tallies(population, survey, np.random.default_rng(2)).items()}
    {1000}
    """
    check_fits(population, survey)
    population = replace(population, frozen=np.asfortranarray(population.frozen))  # read time by time
    plan, nodes = survey.plan, dict[PlanNode, NodeTally]()
    shares = np.array([group.share for group in plan.groups]) / plan.total_share
    members = generator.multinomial(population.weights, shares)
    for number, group in enumerate(plan.groups):
        kind = {History: history_nodes, Joint: joint_nodes}.get(type(group.joint), plain_nodes)
        numbers = [track for track, _ in plan.numbered(number)]
        for place, at, tally in kind(population, group, members[:, number], generator):
            nodes[numbers[place], at] = tally
    return Tallies(nodes, full_attendance(survey, members))


def reporting(track: Track, members: Counts, generator: np.random.Generator) -> Iterator[Counts]:
    """Draws, for each node of a track, how many entries of each history report on it, shape (rows,).

    members: how many entries of each history are in the track's group, shape (rows,). generator: draws their nodes.
    If an entry reports r random nodes of N, this is selection sampling on counts (Knuth, TAOCP 2, algorithm 3.4.2S):
    an entry that still owes j reports, with M nodes to come, reports on the next with chance j/M.
    """
    if track.reported is None:
        for _ in range(track.count):
            yield members
        return
    owing = np.zeros((track.reported + 1, len(members)), np.int64)
    owing[-1] = members
    for to_come in range(track.count, 0, -1):
        chances = np.minimum(np.arange(track.reported + 1) / to_come, 1)
        picking = generator.binomial(owing, chances[:, None])
        owing -= picking
        owing[:-1] += picking[1:]
        yield picking.sum(0)
