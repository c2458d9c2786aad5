"""Many replications of one survey at once: reports drawn, decoded and weighed as arrays, a replication per row.

The numbers of reports are the same in all replications of one batch, so weights are too, and every published figure
is linear in the tallies but for what a closed cohort centres. Decoding, weights and sampling weights are the
aggregator's own; only the loop over surveys is unrolled.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey, Track
from changeling_protocol.quantities import NodeNumber
from changeling_simulations.population import Population
from changeling_statistics.conservation import conserves, without_sum
from changeling_statistics.estimation.releases import Releases, releases
from changeling_statistics.estimation.sampling_weights import weighed
from changeling_statistics.estimation.solution import Solution
from changeling_statistics.randomizers import counterpart_of
from changeling_statistics.tallies import NodeTally, PlanNode, Tallies
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Replicated:
    """Of R surveys: values (R, z) and covariances (R, z, z) at one time; whether they claim to be upper bounds."""

    values: Floats
    covariances: Floats
    upper_bound: bool


def replicate(
    population: Population, survey: Survey, periods: list[int], rows: int, generator: np.random.Generator
) -> dict[int, Replicated]:
    """`rows` surveys of one population: who is asked and what they respond is drawn afresh in each.

    Groups, and the entries that draw each node of one random node, are split in fixed proportion, which is what
    a ratio estimator's covariance is given. Tracks report all nodes or one, and one track of each group draws.
    """
    tallies = dict(_tallies(population, survey, rows, generator))
    known = releases(survey, {key: column[0] for key, column in tallies.items()})
    solution = Solution(known)
    values, covariances, products = _decoded(known, tallies)
    fit = np.array([known.network.row(t) if t else np.zeros(len(known)) for t in range(survey.calendar.periods + 1)])
    histograms = np.einsum("te,rez->rtz", fit, values)
    found = {}
    for period in periods:
        row = solution.row(period)
        spread = np.einsum("e,reyz->ryz", row**2, covariances)
        bounded = False
        if solution.sampling.needed:
            weights = solution.sampling.weights(row)
            spread = spread + weighed(weights, solution.sampling.design, products, histograms)
            bounded = weights.bounded
        found[period] = Replicated(np.einsum("e,rez->rz", row, values), spread, bounded or known.bounded)
    return found


def published(survey: Survey, tallies: Tallies, period: int) -> tuple[Floats, Floats]:
    """The same of one survey by the aggregator's front door."""
    estimate = Solution(releases(survey, tallies)).estimate(period)
    return estimate.values, estimate.covariance


def tallies_of(
    population: Population, survey: Survey, rows: int, generator: np.random.Generator
) -> list[dict[PlanNode, NodeTally]]:
    """The same surveys, each with its own tallies."""
    columns = dict(_tallies(population, survey, rows, generator))
    return [{key: column[at] for key, column in columns.items()} for at in range(rows)]


def _decoded(known: Releases, tallies: dict[PlanNode, list[NodeTally]]) -> tuple[Floats, Floats, Floats]:
    values, covariances, products = [], [], []
    tracks = known.survey.plan.tracks
    for used, x in zip(known.nodes, known.expansion.tolist(), strict=True):
        decoded = counterpart_of(tracks[used.track].randomizer).estimates(tallies[used.track, used.number])
        change, spread, told = decoded.values, decoded.covariances, decoded.products
        if told is None and tracks[used.track].reports_changes:
            raise ValueError(f"track {used.track}'s tallies do not tell who changed, which is not replicated here")
        told = np.zeros_like(spread) if told is None else told
        if conserves(known.survey.closed, tracks[used.track].reports_changes, used.node.start):
            (change, spread), (_, told) = without_sum(change, spread), without_sum(change, told)
        values.append(change * x)
        covariances.append(spread * x**2)
        products.append(told * x)
    return tuple(np.stack(column, axis=1) for column in (values, covariances, products))  # type: ignore[return-value]


def _tallies(
    population: Population, survey: Survey, rows: int, generator: np.random.Generator
) -> Iterator[tuple[PlanNode, list[NodeTally]]]:
    plan, n = survey.plan, population.entries
    groups = [round(n * group.share / plan.total_share) for group in plan.groups]
    groups[-1] += n - sum(groups)
    everybody = np.tile(population.weights, (rows, 1))
    for number_of_group, members in enumerate(split(everybody, groups, generator)):
        for number, track in plan.numbered(number_of_group):
            for at, reporting in zip(track.node_numbers(), _reporting(track, members, generator), strict=True):
                yield (number, at), _node(population, track, at, reporting, generator)


def _reporting(track: Track, members: Counts, generator: np.random.Generator) -> Iterator[Counts]:
    if track.reported is None:
        for _ in range(track.count):
            yield members
        return
    if track.reported != 1:
        raise ValueError(f"only one random node can be drawn at a time here, got {track.reported}")
    each, rest = divmod(int(members[0].sum()), track.count)
    yield from split(members, [each + (at < rest) for at in range(track.count)], generator)


def split(weights: Counts, sizes: list[int], generator: np.random.Generator) -> Iterator[Counts]:
    """Each row of entries, by history, dealt at random into parts of these sizes; weights of shape (R, histories)."""
    left = weights.copy()
    for size in sizes[:-1]:
        part, wanted = np.zeros_like(left), np.full(len(left), size)
        others = left.sum(1)
        for history in range(left.shape[1]):
            others -= left[:, history]
            drawn = generator.hypergeometric(left[:, history], others, wanted)
            part[:, history] = drawn
            wanted -= drawn
        left -= part
        yield part
    yield left


def _node(
    population: Population, track: Track, at: NodeNumber, reporting: Counts, generator: np.random.Generator
) -> list[NodeTally]:
    """The tally of a node in every replication."""
    node, space = track.node(at), track.randomizer.space
    pairs = zip(population.frozen[:, node.start].tolist(), population.frozen[:, node.end].tolist(), strict=True)
    true = np.array([space.index(*pair) for pair in pairs])
    counts = np.stack([reporting[:, true == each].sum(1) for each in range(space.size)], axis=1)
    slots = counterpart_of(track.randomizer).sample_slots(counts, generator)
    reports = int(counts[0].sum())
    return [NodeTally(reports, row) for row in slots]
