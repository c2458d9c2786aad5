"""What the entries of one group report in the field, closing by closing, each entry by itself.

Symbols are drawn by how many entries have the same input, as in the other samplers; what an entry of a joint group
remembers is kept for each.
"""

from collections.abc import Iterator

import numpy as np
from changeling_protocol import ReleasePlan, Track, agreeing
from changeling_statistics import NodeTally, PlanNode, counterpart_of
from numpy.typing import NDArray

from .attendance import AttendedClosing, Flags
from .counters import Counting, Numbers
from .field_entries import FieldEntries
from .population import Population, inputs_of

BASE, AGREED, OTHER = 0, 1, 2
"""How a report of a joint group comes about: it tells nothing; or it tells something, and agrees with it, or not."""


class Respondents:
    """The members of a group, and what they owe and remember.

    plan, number: the group's plan, and its number there.
    members: the numbers of its entries, rising.
    """

    def __init__(self, plan: ReleasePlan, number: int, members: Numbers) -> None:
        self._group, self._members = plan.groups[number], members
        self._tracks = list(plan.numbered(number))
        self._owing = [np.full(len(members), track.reported or 0) for _, track in self._tracks]
        self._counting = None if self._group.joint is None else Counting(self._group)
        self._counters = members if self._counting is None else self._counting.starting(len(members))

    def close(
        self,
        population: Population,
        entries: FieldEntries,
        closing: AttendedClosing,
        generator: np.random.Generator,
    ) -> Iterator[tuple[PlanNode, tuple[NodeTally | None, NodeTally | None]]]:
        """Draws the reports on the nodes that end with a closing; closings come in order, and each once.

        Yields each node with two tallies, of reports on time and of late ones; None where there are no reports.
        """
        for place, (track_number, track) in enumerate(self._tracks):
            number = track.ending_at(closing.period)
            if number is None:
                continue
            reporting = closing.answering[self._members]
            if track.reported is not None:
                reporting &= self._draw(place, track.count - number + 1, generator)
            who, node = self._members[reporting], track.node(number)
            some = entries[who]
            inputs = inputs_of(track, some.states(population, node.start), some.states(population, node.end))
            kinds = self._respond(place, track, reporting, inputs, generator)
            parts = (closing.on_time[who], closing.late[who])
            on_time, late = (_tally(track, inputs, kinds, part, generator) for part in parts)
            yield (track_number, number), (on_time, late)

    def _draw(self, place: int, to_come: int, generator: np.random.Generator) -> Flags:
        """Who has drawn the next node of a track, of which so many are to come: an entry that owes j, with j/M.

        Nodes that ended before an entry enrolled are among those that it draws.
        """
        drawn: Flags = generator.integers(to_come, size=len(self._members)) < self._owing[place]
        self._owing[place] -= drawn
        return drawn

    def _respond(
        self, place: int, track: Track, reporting: Flags, inputs: Numbers, generator: np.random.Generator
    ) -> NDArray[np.int8] | None:
        """How each report of a joint group comes about, and its slot used up; None if the group is not joint.

        reporting: who of the members reports. inputs: theirs.
        """
        if self._counting is None:
            return None
        joint_form = agreeing(track.randomizer)
        tells = np.array([joint_form.tells(true) for true in range(joint_form.space.size)])
        counters = self._counters[reporting]
        telling = tells[inputs] & self._counting.have_slots(place, counters)
        chances = self._counting.agreement_chances(place, counters[telling])
        agreed = generator.random(len(chances)) < chances
        kinds = np.full(len(inputs), BASE, np.int8)
        kinds[telling] = np.where(agreed, AGREED, OTHER)
        for kind in (AGREED, OTHER):
            counters[kinds == kind] = self._counting.told(place, counters[kinds == kind], agreed=kind == AGREED)
        self._counters[reporting] = counters
        return kinds


def _tally(
    track: Track, inputs: Numbers, kinds: NDArray[np.int8] | None, among: Flags, generator: np.random.Generator
) -> NodeTally | None:
    """Draws the tally of some of the reports on a node; None if there are none."""
    if not among.any():
        return None
    size, counterpart = track.randomizer.space.size, counterpart_of(track.randomizer)
    if kinds is None:
        return counterpart.sample(np.bincount(inputs[among], minlength=size), generator)
    agreed, others = (np.bincount(inputs[among & (kinds == kind)], minlength=size) for kind in (AGREED, OTHER))
    return counterpart.sample_joint(agreed, others, int((among & (kinds == BASE)).sum()), generator)
