"""Draws the tallies of a survey in the field, entry by entry: who is heard at which closing, and what they report.

A device that is not heard has drawn its response all the same: what it used up of a joint group's slots is used up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from changeling_protocol import ReleasePlan, Survey
from changeling_statistics import Attendance, Counts, GroupClosing, NodeTally, PlanNode, Tallies
from numpy.typing import NDArray

from .attendance import AttendedClosing, Flags, attended_closings
from .field import Field
from .field_entries import draw_entries, enrolled_histogram
from .population import Population
from .respondents import Respondents
from .sampler import check_fits


@dataclass(frozen=True, slots=True, eq=False)
class FieldTallies:
    """What a server knows of a survey in the field, and what is true.

    survey: whose tallies they are.
    on_time: of what arrived before the next period closed. late: of what arrived after that.
    truth: for the times 0..T how many of all that have enrolled by then are in each state, NULL first, whether they
    are heard or not; shape (T + 1, z + 1). frozen: the same of their frozen histories, which they report on.
    known: at each closing, of frozen histories, how many of those that are heard of by then, or will be late, are in
    each state, NULL first; shape (z + 1,).
    """

    survey: Survey
    on_time: Tallies
    late: Tallies
    truth: Counts
    frozen: Counts
    known: Mapping[int, Counts]

    @property
    def tallies(self) -> Tallies:
        """The tallies once everything has arrived."""
        return self.on_time + self.late

    def known_at(self, period: int) -> Tallies:
        """The tallies as they are when a period has just closed: of what is late, that of the periods before it."""
        late = _until(self.survey, self.late, period - 1)
        return _until(self.survey, self.on_time, period) + late


def sample_field(population: Population, survey: Survey, field: Field, generator: np.random.Generator) -> FieldTallies:
    """Draws the tallies of a survey whose entries fare as a field says.

    population: of the same answers, in the same order, and as many periods as the survey.
    generator: draws everything. Raises ValueError if the two do not fit, or for a field that does not fit the survey.
    """
    check_fits(population, survey)
    if len(field.reluctance) not in (0, len(survey.answers) + 1):
        raise ValueError(f"reluctance is a rate for each of {len(survey.answers) + 1} states, got {field.reluctance}")
    population = replace(population, frozen=np.asfortranarray(population.frozen))  # read time by time
    entries = draw_entries(population, survey, field, generator)
    group = _draw_groups(survey.plan, len(entries), generator)
    respondents = [
        Respondents(survey.plan, number, np.flatnonzero(group == number)) for number in range(len(survey.plan.groups))
    ]
    nodes: tuple[dict[PlanNode, NodeTally], dict[PlanNode, NodeTally]] = ({}, {})
    attendance: tuple[dict[GroupClosing, Attendance], dict[GroupClosing, Attendance]] = ({}, {})
    known: dict[int, Counts] = {}
    for closing in attended_closings(population, survey, field, entries, generator):
        for part, heard in enumerate((closing.on_time, closing.late)):
            attendance[part].update(_attendance(closing, heard, group))
        states = entries.states(population, closing.period)
        known[closing.period] = np.bincount(states[closing.known], minlength=len(survey.answers) + 1)
        for responding in respondents:
            for node, tallies in responding.close(population, entries, closing, generator):
                for part, tally in enumerate(tallies):
                    if tally is not None:
                        nodes[part][node] = tally
    on_time, late = (Tallies(nodes[part], attendance[part]) for part in (0, 1))
    truth, frozen = (
        enrolled_histogram(states, len(survey.answers), entries) for states in (population.true, population.frozen)
    )
    return FieldTallies(survey, on_time, late, truth, frozen, known)


def _draw_groups(plan: ReleasePlan, entries: int, generator: np.random.Generator) -> NDArray[np.intp]:
    """Draws the group of each entry, shape (entries,)."""
    upper = np.cumsum([group.share for group in plan.groups])
    return np.searchsorted(upper, generator.integers(plan.total_share, size=entries), side="right")


def _attendance(closing: AttendedClosing, heard: Flags, group: NDArray[np.intp]) -> dict[GroupClosing, Attendance]:
    """The attendance at a closing of those that are heard, by group; of groups of which somebody is.

    group: the number of each entry's group, shape (entries,).
    """
    standings = (heard, heard & closing.new, heard & closing.missed)
    counts = np.array([np.bincount(group[among], minlength=int(group.max(initial=0)) + 1) for among in standings])
    return {
        (number, closing.period): Attendance(*of_group)
        for number, of_group in enumerate(counts.T.tolist())
        if of_group[0]
    }


def _until(survey: Survey, tallies: Tallies, period: int) -> Tallies:
    """Those of closings up to a period."""
    tracks = survey.plan.tracks
    return Tallies(
        {at: tally for at, tally in tallies.nodes.items() if tracks[at[0]].node(at[1]).end <= period},
        {at: attendance for at, attendance in tallies.attendance.items() if at[1] <= period},
    )
