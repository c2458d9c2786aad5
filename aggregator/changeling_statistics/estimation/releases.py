"""The published nodes of a survey as edges of its release graph, each with its expansion and planned variance.

A node (s, e] of a change track measures v_e - v_s, a state report at e measures v_e - v_0. What an edge weighs
comes from the plan, from the numbers of reports and from what the designer expects, never from the estimates.
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
    """A node that went into an estimate: its track, its number there, and how many entries reported on it."""

    track: TrackNumber
    number: NodeNumber
    node: Node
    reports: int


@dataclass(frozen=True, eq=False)
class Releases:
    """The E nodes that may be published, by the time of their end.

    nodes: what they are. tallies: theirs. group: of each, shape (E,). expansion: entries per report, shape (E,).
    network: their edges, resistances being planned variances in entries squared. members: how many entries each
    group is known to have, shape (groups,), nan where none of its nodes is published.
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
        """The track of each node, shape (E,)."""
        return np.array([used.track for used in self.nodes], dtype=np.intp)

    @cached_property
    def entries(self) -> float:
        """How many entries there are: those known to be there, over the share of the groups they are in."""
        return known_entries(self.survey, self.members)

    @cached_property
    def changes(self) -> Floats:
        """The estimated change on every edge, expanded to all entries; shape (E, z)."""
        return self._decoded[0]

    @cached_property
    def covariances(self) -> Floats:
        """C_e: the response covariance of `changes`, each unbiased; shape (E, z, z), in entries squared."""
        return self._decoded[1]

    @cached_property
    def bounded(self) -> bool:
        """Whether a node's covariance is an upper bound, its tally not identifying all of it."""
        return self._decoded[2]

    @cached_property
    def products(self) -> Floats:
        """Q̂: unbiased for Σ_i δ_i δ_i' over all entries on every edge, (E, z, z); nan where not identified."""
        return self._decoded[3]

    @cached_property
    def changed(self) -> Floats:
        """Unbiased for how many entries changed on every edge, (E,), where only that is identified; else nan."""
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
    """The edges of a survey's published nodes: those with reports, and no fewer than the survey's minimum.

    An entry reports a node of group g with probability π = f_g·r/N, so its report stands for 1/π entries
    (Horvitz and Thompson 1952); in a closed cohort for entries known to be there / reports on the node (the ratio
    estimator). docs/mathematics.md, "Shares".
    """
    plan = survey.plan
    used: list[tuple[UsedNode, NodeTally, int]] = []
    for group in range(len(plan.groups)):
        for number, track in plan.numbered(group):
            for at in track.node_numbers():
                tally = tallies.get((number, at))
                if tally is not None and tally.reports >= max(1, survey.minimum):
                    used.append((UsedNode(number, at, track.node(at), tally.reports), tally, group))
    used.sort(key=lambda one: (one[0].node.end, one[0].node.start, one[0].track))
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
    """f_g: the chance that an entry is in each group, shape (groups,)."""
    return np.array([group.share for group in survey.plan.groups]) / survey.plan.total_share


def known_entries(survey: Survey, members: Floats) -> float:
    """Σ members / Σ shares, over the groups of which a node is published."""
    known = ~np.isnan(members)
    return float(members[known].sum() / shares(survey)[known].sum()) if known.any() else 0.0


def planned_variance(survey: Survey, track: int, node: Node, reports: float, expansion: float) -> float:
    """What the designer expects of a node's variance, in entries squared, mean over the answers.

        reports · expansion² · {response variance of a report + (1 - 1/expansion) E δ²}

    The second term is the sampling error of asking one entry in `expansion`, as if entries were drawn afresh for
    every node. It leaves out what errors of nodes have in common, so it weighs releases, and is not published.
    """
    randomizer, expected = survey.plan.tracks[track].randomizer, survey.expected
    variance = expected_variance(randomizer, node, expected, survey.closed)
    if expansion > 1:
        start = node.start if randomizer.space.reports_changes else 0
        spread = expected_spread(len(survey.answers), expected, survey.closed, start, node.end)
        variance += (1 - 1 / expansion) * spread
    return reports * expansion**2 * variance


def _members(survey: Survey, nodes: tuple[UsedNode, ...]) -> Floats:
    """Entries per group: the most reports of a node that all of them report, else N/r times the mean of random ones."""
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
