"""Draws the tallies of a survey from how many entries have which input, without drawing each device's reports.

The tallies have the distribution that sums of all devices' reports have, jointly over nodes, tracks and groups, up to
the rounding of probabilities to floats. A billion entries take no longer than a thousand.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from changeling_protocol import Group, History, Joint, NodeNumber, Survey, Track, closings
from changeling_statistics import Attendance, Counts, GroupClosing, NodeTally, PlanNode, Tallies, counterpart_of

from .history_sampler import history_nodes
from .joint_sampler import joint_nodes
from .population import Population


def check_fits(population: Population, survey: Survey) -> None:
    """Raises ValueError for a population of other answers, or another number of periods, than the survey."""
    if population.answers != survey.answers:
        raise ValueError("the population and the survey must have the same answers, in the same order")
    if population.periods != survey.calendar.periods:
        raise ValueError(f"the population lives {population.periods} periods, the survey {survey.calendar.periods}")


def draw_members(population: Population, survey: Survey, generator: np.random.Generator) -> Counts:
    """Draws how many entries of each history are in each of the plan's groups, shape (rows, groups).

    population: of the same answers, in the same order, and as many periods as the survey.
    generator: draws them. Raises ValueError if the two do not fit.
    """
    check_fits(population, survey)
    plan = survey.plan
    shares = np.array([group.share for group in plan.groups]) / plan.total_share
    return generator.multinomial(population.weights, shares)


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


def sample_nodes(
    population: Population, survey: Survey, members: Counts, generator: np.random.Generator
) -> Iterator[tuple[PlanNode, NodeTally]]:
    """Draws ((track, node), tally) for every node of a survey that all entries answer, one node after another.

    population: of the same answers, in the same order, and as many periods as the survey.
    members: how many entries of each history are in each group, shape (rows, groups), as `draw_members` draws them.
    generator: draws everything.
    """
    population = replace(population, frozen=np.asfortranarray(population.frozen))  # read time by time
    plan = survey.plan
    for number, group in enumerate(plan.groups):
        numbers = [track for track, _ in plan.numbered(number)]
        for place, at, tally in _group_nodes(population, group, members[:, number], generator):
            yield (numbers[place], at), tally


def _group_nodes(
    population: Population, group: Group, members: Counts, generator: np.random.Generator
) -> Iterator[tuple[int, NodeNumber, NodeTally]]:
    """Draws the tally of every node of a group, as its kind of group has it."""
    match group.joint:
        case None:
            return plain_nodes(population, group, members, generator)
        case History():
            return history_nodes(population, group, members, generator)
        case Joint():
            return joint_nodes(population, group, members, generator)


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
    members = draw_members(population, survey, generator)
    nodes = dict(sample_nodes(population, survey, members, generator))
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
