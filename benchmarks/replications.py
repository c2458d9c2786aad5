"""Many replications of one survey at once: reports drawn, decoded and weighed as arrays, a replication per row.

The numbers of reports are the same in all replications of one batch, so weights are too, and every published figure
is linear in the tallies but for what a closed cohort centres. Decoding, weights and sampling weights are the
aggregator's own; only the loop over surveys is unrolled.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey, TrackNumber
from changeling_simulations import Population, full_attendance
from changeling_statistics import (
    Attendance,
    GroupClosing,
    NodeTally,
    PlanNode,
    Solution,
    Tallies,
    conserves,
    counterpart_of,
    releases,
    without_sum,
)
from changeling_statistics.estimation.releases import Releases
from changeling_statistics.estimation.sampling import weighed
from numpy.typing import NDArray

from .replicated_reports import split, tallies_of_group

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class View:
    """An estimate that is asked for.

    period: of the histogram.
    known_until: the period until which nodes have closed; tallies of later ones are not there.
    retrospective: whether to use all of them.
    """

    period: int
    known_until: int
    retrospective: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Replicated:
    """Of R surveys: values (R, z) and covariances (R, z, z) of one view; whether they claim to be upper bounds."""

    values: Floats
    covariances: Floats
    upper_bound: bool


def replicate(
    population: Population, survey: Survey, views: Iterable[View], rows: int, generator: np.random.Generator
) -> dict[View, Replicated]:
    """`rows` surveys of one population: who is asked and what they respond is drawn afresh in each.

    Groups, and the entries that draw each set of nodes, are split in fixed proportion, which is what a ratio
    estimator's covariance is given. Of each group at most one track draws nodes.
    """
    columns = dict(_tallies(population, survey, rows, generator))
    decoded = dict(_decoded(survey, columns))
    first = Tallies({key: column[0] for key, column in columns.items()}, _attendance(population, survey))
    return {view: _published(survey, first, decoded, view) for view in views}


def published(survey: Survey, tallies: Tallies, view: View) -> tuple[Floats, Floats]:
    """The same of one survey by the aggregator's front door."""
    solution = Solution(releases(survey, closed_by(survey, tallies, view.known_until)), view.retrospective)
    estimate = solution.estimate(view.period)
    return estimate.values, estimate.covariance


def closed_by(survey: Survey, tallies: Tallies, period: int) -> Tallies:
    """The tallies of the nodes that have closed by a period."""
    tracks = survey.plan.tracks
    nodes = {key: tally for key, tally in tallies.items() if tracks[key[0]].node(key[1]).end <= period}
    return Tallies(nodes, {key: there for key, there in tallies.attendance.items() if key[1] <= period})


def tallies_of(population: Population, survey: Survey, rows: int, generator: np.random.Generator) -> list[Tallies]:
    """The same surveys, each with its own tallies."""
    columns, attendance = dict(_tallies(population, survey, rows, generator)), _attendance(population, survey)
    return [Tallies({key: column[at] for key, column in columns.items()}, attendance) for at in range(rows)]


def _published(
    survey: Survey,
    first: Tallies,
    decoded: dict[PlanNode, tuple[Floats, Floats, Floats]],
    view: View,
) -> Replicated:
    known = releases(survey, closed_by(survey, first, view.known_until))
    solution = Solution(known, view.retrospective)
    values, covariances, products = _expanded(known, decoded)
    row, until = solution.row(view.period), solution.known_until(view.period)
    spread, bounded = np.einsum("e,reyz->ryz", row**2, covariances), known.bounded(until)
    if solution.sampling.design(np.array([until])).needed[0]:
        weights = solution.sampling.weights(row, until)
        histograms = np.einsum("te,rez->rtz", _rows(solution), values)
        spread = spread + weighed(weights, known.network, products, histograms)
        bounded = bounded or weights.bounded
    return Replicated(np.einsum("e,rez->rz", row, values), spread, bounded)


def _rows(solution: Solution) -> Floats:
    """The weights of nodes in the histogram at every time, shape (periods + 1, E); 0 where none reach it."""
    times, nothing = range(solution.network.periods + 1), np.zeros(len(solution.releases))
    return np.array([solution.row(t) if t and solution.reaches(t) else nothing for t in times])


def _decoded(
    survey: Survey, columns: dict[PlanNode, list[NodeTally]]
) -> Iterator[tuple[PlanNode, tuple[Floats, Floats, Floats]]]:
    """Values (R, z), covariances (R, z, z) and Q̂ (R, z, z) of each node, of those that report there."""
    for (number, at), tallies in columns.items():
        track = survey.plan.tracks[number]
        decoded = counterpart_of(track.randomizer).estimates(tallies)
        change, spread, told = decoded.values, decoded.covariances, decoded.products
        if told is None and track.reports_changes:
            raise ValueError(f"track {number}'s tallies do not tell who changed, which is not replicated here")
        told = np.zeros_like(spread) if told is None else told
        if conserves(survey.closed, track.reports_changes, track.node(at).start):
            (change, spread), (_, told) = without_sum(change, spread), without_sum(change, told)
        yield (number, at), (change, spread, told)


def _expanded(known: Releases, decoded: dict[PlanNode, tuple[Floats, Floats, Floats]]) -> tuple[Floats, Floats, Floats]:
    x = known.expansion[:, None]
    values, covariances, products = (
        np.stack([decoded[used.track, used.number][part] for used in known.nodes], axis=1) for part in range(3)
    )
    return values * x, covariances * (x**2)[..., None], products * x[..., None]


def _tallies(
    population: Population, survey: Survey, rows: int, generator: np.random.Generator
) -> Iterator[tuple[PlanNode, list[NodeTally]]]:
    plan, groups = survey.plan, _sizes(population, survey)
    everybody = np.tile(population.weights, (rows, 1))
    for number_of_group, members in enumerate(split(everybody, groups, generator)):
        group = plan.groups[number_of_group]
        first = next(number for number, _ in plan.numbered(number_of_group))
        for (place, at), tallies in tallies_of_group(population, group, members, generator):
            yield (TrackNumber(first + place), at), tallies


def _sizes(population: Population, survey: Survey) -> list[int]:
    """How many entries are in each group, in proportion to the shares."""
    n, plan = population.entries, survey.plan
    sizes = [round(n * group.share / plan.total_share) for group in plan.groups]
    sizes[-1] += n - sum(sizes)
    return sizes


def _attendance(population: Population, survey: Survey) -> dict[GroupClosing, Attendance]:
    return full_attendance(survey, np.array([_sizes(population, survey)]))
