"""The published nodes of a survey as edges of its release graph, each with its expansion and its planned variance.

A node (s, e] of changes measures v_e - v_s; one of states measures v_e - v_0. How much an edge weighs depends on the
plan, on how many reported and on what the designer expects, never on what was answered.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from changeling_protocol import Node, Survey
from changeling_protocol.quantities import NodeNumber, TrackNumber

from ..conservation import conserves, without_sum
from ..estimate import Floats
from ..randomizers import counterpart_of
from ..tallies import NodeTally, Tallies
from .expected import expected_spread, expected_variance
from .network import Indices, Network


@dataclass(frozen=True, slots=True)
class UsedNode:
    """A node that went into an estimate.

    track: the number of its track in the plan.
    number: its number in the track, from 1.
    node: the span (s, e].
    reports: how many entries reported on it.
    """

    track: TrackNumber
    number: NodeNumber
    node: Node
    reports: int


@dataclass(frozen=True, eq=False)
class Releases:
    """The E nodes of a survey that may be published, in order of their ends.

    survey: whose they are.
    nodes, tallies: the nodes, and the tally of each.
    group: the number of each node's group, shape (E,).
    expansion: how many entries one report stands for, on each node, shape (E,).
    network: the nodes as edges, whose resistances are planned variances in entries squared.
    members: how many entries each group is known to have, shape (groups,); nan if none of its nodes is published.
    """

    survey: Survey
    nodes: tuple[UsedNode, ...]
    tallies: tuple[NodeTally, ...]
    group: Indices
    expansion: Floats
    network: Network
    members: Floats

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def track(self) -> Indices:
        """The number of each node's track, shape (E,)."""
        return np.array([used.track for used in self.nodes], dtype=np.intp)

    @cached_property
    def entries(self) -> float:
        """How many entries there are, estimated from the known members of groups and the shares of those groups."""
        return known_entries(self.survey, self.members)

    @cached_property
    def changes(self) -> Floats:
        """The estimated change on every edge, expanded to all entries; shape (E, z), in entries."""
        return self._decoded[0]

    @cached_property
    def covariances(self) -> Floats:
        """C_e: the covariance of each of `changes` that the randomizers add, shape (E, z, z), in entries squared."""
        return self._decoded[1]

    @cached_property
    def bounded(self) -> bool:
        """Whether the covariance of some node is an upper bound."""
        return self._decoded[2]

    @cached_property
    def products(self) -> Floats:
        """Q̂: unbiased for Σ_i δ_i δ_i' over all entries on every edge, (E, z, z); nan if a tally does not tell it."""
        return self._decoded[3]

    @cached_property
    def changed(self) -> Floats:
        """Unbiased for how many of all entries changed on every edge, shape (E,); nan if the tally does not tell."""
        return self._decoded[4]

    @cached_property
    def _decoded(self) -> tuple[Floats, Floats, bool, Floats, Floats]:
        z = len(self.survey.answers)
        values, covariances = np.empty((len(self), z)), np.empty((len(self), z, z))
        products = np.full((len(self), z, z), np.nan)
        changed, bounded = np.full(len(self), np.nan), False
        for number, track in enumerate(self.survey.plan.tracks):
            at = np.flatnonzero(self.track == number)
            if len(at):
                decoded = counterpart_of(track.randomizer).estimates([self.tallies[e] for e in at])
                values[at], covariances[at] = decoded.values, decoded.covariances
                changed[at], bounded = decoded.changed, bounded or decoded.upper_bound
                if decoded.products is not None:
                    products[at] = decoded.products
        tracks = self.survey.plan.tracks
        conserved = np.flatnonzero(
            [conserves(self.survey.closed, tracks[used.track].reports_changes, used.node.start) for used in self.nodes]
        )
        values[conserved], covariances[conserved] = without_sum(values[conserved], covariances[conserved])
        products[conserved] = without_sum(values[conserved], products[conserved])[1]
        x = self.expansion
        covariances *= (x**2)[:, None, None]
        return values * x[:, None], covariances, bounded, products * x[:, None, None], changed * x


def releases(survey: Survey, tallies: Tallies) -> Releases:
    """The nodes of a survey that may be published: those with reports, and at least as many as the survey's minimum.

    tallies: by (number of the track, number of the node); those with too few reports are left out.
    An entry reports a node of group g with probability π = f_g·r/N, so its report stands for 1/π entries (Horvitz and
    Thompson 1952). In a closed cohort it stands for (entries known to be there) / (reports on the node), the ratio
    estimator. docs/mathematics.md, "Shares".
    """
    plan = survey.plan
    used: list[tuple[UsedNode, NodeTally, int]] = []
    for group in range(len(plan.groups)):
        for number, track in plan.numbered(group):
            for at in track.node_numbers():
                tally = tallies.get((number, at))
                if tally is not None and tally.reports >= max(1, survey.minimum):
                    used.append((UsedNode(number, at, track.node(at), tally.reports), tally, group))
    used.sort(key=lambda item: (item[0].node.end, item[0].node.start, item[0].track))
    nodes = tuple(node for node, _, _ in used)
    groups = np.array([group for _, _, group in used], dtype=np.intp)
    members = _members(survey, nodes)
    expansion = _expansions(survey, nodes, groups, members)
    return Releases(
        survey=survey,
        nodes=nodes,
        tallies=tuple(tally for _, tally, _ in used),
        group=groups,
        expansion=expansion,
        network=_network(survey, nodes, expansion),
        members=members,
    )


def shares(survey: Survey) -> Floats:
    """f_g: the chance with which an entry draws each group, shape (groups,)."""
    return np.array([group.share for group in survey.plan.groups]) / survey.plan.total_share


def known_entries(survey: Survey, members: Floats) -> float:
    """How many entries there are: Σ members / Σ shares over the groups of which a node is published; 0 if none is.

    members: as in `Releases`.
    """
    known = ~np.isnan(members)
    return float(members[known].sum() / shares(survey)[known].sum()) if known.any() else 0.0


def planned_variance(survey: Survey, track: int, node: Node, reports: float, expansion: float) -> float:
    """The variance that is expected of a node's change, in entries squared, mean over the answers.

        reports · expansion² · {variance of a report + (1 - 1/expansion) E δ²}

    track: the number of the node's track.
    reports: how many there are.
    expansion: how many entries a report stands for.
    The second term is the sampling error, as if entries were drawn afresh for every node. In truth nodes have sampling
    errors in common; so the figure decides how nodes are weighed, and is not published.
    """
    randomizer, expected = survey.plan.tracks[track].randomizer, survey.expected
    variance = expected_variance(randomizer, node, expected, survey.closed)
    if expansion > 1:
        start = node.start if randomizer.space.reports_changes else 0
        spread = expected_spread(len(survey.answers), expected, survey.closed, start, node.end)
        variance += (1 - 1 / expansion) * spread
    return reports * expansion**2 * variance


def _members(survey: Survey, nodes: tuple[UsedNode, ...]) -> Floats:
    """How many entries each group has, shape (groups,); nan if none of its nodes is published.

    The most reports on a node that all of the group report. If there is none, from tracks on which an entry reports r
    of N nodes: the mean number of reports on a node, times N/r.
    """
    tracks = survey.plan.tracks
    by_track: list[list[int]] = [[] for _ in tracks]
    for used in nodes:
        by_track[used.track].append(used.reports)
    members = np.full(len(survey.plan.groups), np.nan)
    for group in range(len(members)):
        numbered = [(track, by_track[number]) for number, track in survey.plan.numbered(group) if by_track[number]]
        whole = [max(reports) for track, reports in numbered if track.reports == track.count]
        drawn = [float(np.mean(reports)) * track.count / track.reports for track, reports in numbered]
        if whole or drawn:
            members[group] = max(whole) if whole else float(np.mean(drawn))
    return members


def _expansions(survey: Survey, nodes: tuple[UsedNode, ...], groups: Indices, members: Floats) -> Floats:
    reports = np.array([used.reports for used in nodes], dtype=np.float64)
    if survey.closed:
        return known_entries(survey, members) / reports
    drawn = np.array([track.reports / track.count for track in survey.plan.tracks])
    track = np.array([used.track for used in nodes], dtype=np.intp)
    expansions: Floats = 1.0 / (shares(survey)[groups] * drawn[track])
    return expansions


def _network(survey: Survey, nodes: tuple[UsedNode, ...], expansion: Floats) -> Network:
    tracks = survey.plan.tracks
    return Network(
        periods=survey.calendar.periods,
        start=np.array([used.node.start if tracks[used.track].reports_changes else 0 for used in nodes], np.intp),
        end=np.array([used.node.end for used in nodes], np.intp),
        variance=np.array(
            [
                planned_variance(survey, used.track, used.node, used.reports, x)
                for used, x in zip(nodes, expansion.tolist(), strict=True)
            ]
        ),
    )
