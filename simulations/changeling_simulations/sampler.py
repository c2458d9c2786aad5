"""Draws the tallies of a survey from how many entries have which input, without drawing each device's reports.

The tallies have the distribution that sums of all devices' reports have, jointly over nodes, tracks and groups, up to
the rounding of probabilities to floats. A billion entries take no longer than a thousand.

In history and joint groups, what an entry sends depends on what it has sent: entries that remember alike are held
together, and parted at each node with the exact conditional chances that devices have.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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

Numbers = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Some of the entries. A row is a history of a population, or one entry.

    rows: their numbers, shape (n,). count: how many entries are of each, at least 1, shape (n,).
    """

    rows: Numbers
    count: Counts

    @classmethod
    def of(cls, count: Counts) -> "Entries":
        """So many entries of each row, shape (rows,)."""
        rows = np.flatnonzero(count)
        return cls(rows, count[rows])

    @classmethod
    def together(cls, parts: Sequence["Entries"]) -> "Entries":
        """All of several."""
        rows, count = (np.concatenate([getattr(part, column) for part in parts]) for column in ("rows", "count"))
        return cls(rows, count)

    @property
    def total(self) -> int:
        """How many entries these are."""
        return int(self.count.sum())

    def where(self, flags: Flags) -> "Entries":
        """Those of the rows that are flagged, shape (rows,)."""
        some = flags[self.rows]
        return Entries(self.rows[some], self.count[some])

    def split(self, chances: Sequence[float], generator: np.random.Generator) -> list["Entries"]:
        """Parts that each entry falls into with these chances, which add up to 1."""
        drawn = generator.multinomial(self.count, chances)
        return [Entries(self.rows[part > 0], part[part > 0]) for part in drawn.T]

    def by_input(self, inputs: Numbers, size: int) -> Counts:
        """How many have each input, shape (size,). inputs: those of every row, shape (rows,)."""
        return weighted_counts(inputs[self.rows], self.count, size)


@dataclass(frozen=True, slots=True)
class Counters:
    """The memory of an entry of a group that is no history group.

    owing: for each track how many nodes the entry still reports, if they are drawn at random; else 0.
    used: how many slots of each track of a joint group it has used.
    score: the weights of the slots that agreed, added up, no more than the threshold.
    """

    owing: tuple[int, ...]
    used: tuple[int, ...]
    score: int


class Respondents:
    """The members of a group, held together as far as they remember alike.

    members: who they are. indistinct: whether nobody asks again which of them are there, as all always are.
    generator: draws everything.
    """

    def __init__(self, group: Group, members: Entries, generator: np.random.Generator, *, indistinct: bool) -> None:
        self._group, self._generator, self._indistinct = group, generator, indistinct
        self._history: dict[HistoryState, Entries] = {}
        self._counted: dict[Counters, Entries] = {}
        self._true = members
        self._chances: dict[tuple[int, Counters], float] = {}
        self._slots = group.joint.slots if isinstance(group.joint, Joint) else ()
        self._tells = [_tells(track) for track in group.tracks] if self._slots else []
        if isinstance(group.joint, History):
            told = float(group.histories.told)
            self._true, others = members.split((told, 1 - told), generator)
            self._history[HistoryState(true=False)] = self._alike([others], asked=False)
        else:
            owing = tuple(track.reported or 0 for track in group.tracks)
            self._counted[Counters(owing, (0,) * len(self._slots), 0)] = members

    def close(
        self, place: int, number: NodeNumber, inputs: Numbers, answering: Flags, *heard: Flags
    ) -> list[NodeTally]:
        """Draws the reports on a node; nodes come in the order in which they end, and each once.

        place: the track's, in the group. inputs: of each row, shape (rows,). answering: the rows that are there; in a
        joint group the others keep their slots. heard: parts of these rows; returns the tally of each.
        """
        if isinstance(self._group.joint, History):
            return self._close_history(place, inputs, heard)
        answers = self.answer(place, number, inputs, answering)
        randomizer = self._group.tracks[place].randomizer
        counterpart, size = counterpart_of(randomizer), randomizer.space.size
        tallies = []
        for among in heard:
            agreed, others, base = (
                sum((part.where(among).by_input(inputs, size) for part in parts), np.zeros(size, np.int64))
                for parts in answers
            )
            tallies.append(
                counterpart.sample_joint(agreed, others, int(base.sum()), self._generator)
                if self._slots
                else counterpart.sample(base, self._generator)
            )
        return tallies

    def answer(
        self, place: int, number: NodeNumber, inputs: Numbers, answering: Flags
    ) -> tuple[list[Entries], list[Entries], list[Entries]]:
        """Who reports on a node: what agrees, what does not, and what is as if it had nothing to tell.

        In a group that is not joint every report is of the last kind.
        If nodes are drawn at random this is selection sampling on counts (Knuth, TAOCP 2, algorithm 3.4.2S): an entry
        that still owes j reports, with M nodes to come, reports on the next with chance j/M. Nodes that ended before an
        entry enrolled are among those that it draws.
        """
        track, generator = self._group.tracks[place], self._generator
        answers: tuple[list[Entries], list[Entries], list[Entries]] = ([], [], [])
        after: defaultdict[Counters, list[Entries]] = defaultdict(list)
        telling = answering & self._tells[place][inputs] if self._slots else answering
        silent = ~telling
        for counters, entries in self._counted.items():
            if track.reported is not None:
                chance = min(counters.owing[place] / (track.count - number + 1), 1)
                entries, waiting = entries.split((chance, 1 - chance), generator)
                after[counters].append(waiting)
                counters = replace(counters, owing=_plus(counters.owing, place, -1))
            if self._slots and counters.used[place] < self._slots[place]:
                chance = self._agreement_chance(place, counters)
                for kind, part in enumerate(entries.where(telling).split((chance, 1 - chance), generator)):
                    answers[kind].append(part)
                    after[self._told(place, counters, agreed=kind == 0)].append(part)
                entries = entries.where(silent)
            answers[2].append(entries.where(answering))
            after[counters].append(entries)
        seen = len(self._tells)  # the slots of hidden tracks stay unused
        self._counted = {
            counters: self._alike(parts, asked=not seen or counters.used[:seen] != self._slots[:seen])
            for counters, parts in after.items()
            if any(len(part.rows) for part in parts)
        }
        return answers

    def _alike(self, parts: Sequence[Entries], *, asked: bool) -> Entries:
        """Entries that remember alike. Where it does not matter which they are, each row stands once in them.

        asked: whether it matters what they hold from now on; if not, they are of one row.
        """
        entries = Entries.together(parts)
        if not self._indistinct or (asked and len(parts) == 1):
            return entries
        return Entries.of(np.bincount(entries.rows * asked, entries.count).astype(np.int64))

    def _told(self, place: int, counters: Counters, *, agreed: bool) -> Counters:
        """The memory once a slot of the track is used, and agreed or not.

        Where the threshold is reached, or out of reach, slots are drawn as from the base: as if all were used.
        """
        kernel, used = self._group.kernel, _plus(counters.used, place, 1)
        joint, score = kernel.joint, kernel.scored(place, counters.score, agreed)
        left = sum((most - gone) * weight for most, gone, weight in zip(joint.slots, used, joint.weights, strict=True))
        if score >= joint.threshold or score + left < joint.threshold:
            return Counters(counters.owing, joint.slots, 0)
        return Counters(counters.owing, used, score)

    def _agreement_chance(self, place: int, counters: Counters) -> float:
        """How likely the next slot of the track agrees: exact, but for one rounding to a float."""
        if (place, counters) not in self._chances:
            kernel = self._group.kernel
            odds = kernel.conditional_odds(place, counters.used, counters.score)
            self._chances[place, counters] = agreement_chance(kernel.agreements[place], odds)
        return self._chances[place, counters]

    def _close_history(self, place: int, inputs: Numbers, heard: Iterable[Flags]) -> list[NodeTally]:
        """Draws the symbols of all members at a time of a history group, and gives the tallies of those heard.

        An entry draws its reports of all times, also of those that are not sent or lie before its enrolment.
        """
        kernel, size = self._group.histories, self._group.tracks[place].randomizer.symbols
        possible, after = kernel.possible, defaultdict[HistoryState, list[Entries]](list)
        for state, entries in self._history.items():
            chances = np.full(possible.states, chance_of_change(kernel, state) / (possible.states - 1))
            chances[state.last] = 0.0
            chances[state.last] = 1.0 - chances.sum()
            for symbol, part in enumerate(entries.split(chances.tolist(), self._generator)):
                if len(part.rows):
                    after[possible.after(state, symbol, true=False)].append(part)
        self._history = {state: self._alike(parts, asked=False) for state, parts in after.items()}
        tallies = []
        for among in heard:
            slots = self._true.where(among).by_input(inputs, size)
            for state, entries in self._history.items():
                slots[state.last] += (entries if self._indistinct else entries.where(among)).total
            tallies.append(NodeTally(int(slots.sum()), slots))
        return tallies


def chance_of_change(kernel: HistoryKernel, state: HistoryState) -> float:
    """How likely the next report of the base is not the last one again; exact, but for one rounding to a float."""
    stays, changes = kernel.possible.going_on(state)
    changing = (kernel.possible.states - 1) * changes
    return changing / (stays + changing)


def _plus(counts: tuple[int, ...], place: int, more: int) -> tuple[int, ...]:
    return (*counts[:place], counts[place] + more, *counts[place + 1 :])


def _tells(track: Track) -> Flags:
    """Mask of the inputs of a track of a joint group that tell something, shape (m,)."""
    joint_form = agreeing(track.randomizer)
    return np.array([joint_form.tells(true) for true in range(joint_form.space.size)])


def in_order(group: Group) -> list[tuple[int, NodeNumber]]:
    """The nodes of all tracks as they close, those that close together by track: (place of the track, number)."""
    ends = [
        (track.node(number).end, place, number)
        for place, track in enumerate(group.tracks)
        for number in track.node_numbers()
    ]
    return [(place, number) for _, place, number in sorted(ends)]


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
    members, everybody = generator.multinomial(population.weights, shares), np.ones(len(population.weights), np.bool_)
    for number, group in enumerate(plan.groups):
        respondents = Respondents(group, Entries.of(members[:, number]), generator, indistinct=True)
        tracks = list(plan.numbered(number))
        for place, at in in_order(group):
            track_number, track = tracks[place]
            inputs = population.inputs(track, track.node(at))
            (nodes[track_number, at],) = respondents.close(place, at, inputs, everybody, everybody)
    return Tallies(nodes, full_attendance(survey, members))
