"""On how many nodes of a track two changelogs of an entry can differ, by how they differ there.

The pure cost is the largest sum of losses over these compositions, and is worked out in the protocol. (ε, δ) needs
every one of them.
"""

from dataclasses import dataclass

from changeling_protocol import AtMost, AtMostWithin, Calendar, Constraint, Track


@dataclass(frozen=True, slots=True)
class Composition:
    """On how many nodes of a track two changelogs differ, by how they differ there.

    both: nodes on which both have a mutation, and not the same one.
    appears: nodes on which only the one has a mutation.
    vanishes: only the other.
    insertions: nodes on which both insert the entry, with different answers.
    """

    both: int
    appears: int
    vanishes: int
    insertions: int = 0

    @property
    def nodes(self) -> int:
        """On how many nodes they differ in all."""
        return self.both + self.appears + self.vanishes + self.insertions


def track_compositions(track: Track, calendar: Calendar, constraint: Constraint, closed: bool) -> list[Composition]:
    """Every composition that two changelogs of an entry can have on a track, but for those that another contains.

    closed: whether the cohort is closed. The first node of a track that starts with the calendar then holds two
    insertions, and the mutations that are left fall on later nodes.
    States may differ at every node.
    """
    reports = track.reports
    if not track.reports_changes:
        return [Composition(reports, 0, 0)]
    most = constraint.most_nodes(track.bounds(calendar))
    if not closed:
        return divisions(most, reports)
    if isinstance(constraint, AtMost | AtMostWithin):
        most = min(constraint.k - 1, most)
    if track.first > 0:
        return divisions(most, reports)
    after_first = divisions(most, reports - 1)
    with_first = [Composition(each.both, each.appears, each.vanishes, 1) for each in after_first]
    return with_first if track.reported is None else with_first + divisions(most, reports)


def divisions(most: int, reports: int) -> list[Composition]:
    """The compositions (s, a, b) with s + a <= κ, s + b <= κ and s + a + b <= N to which nothing can be added.

    most: κ, on how many nodes a changelog can have mutations. reports: N, how many nodes an entry reports.
    If there are nodes enough, a = b = κ - s for every s; if not, a and b share what is left in every way.
    """
    most = min(most, reports)
    maximal = []
    for both in range(most + 1):
        left = min(reports - both, 2 * (most - both))
        larger = min(left, most - both)
        maximal += [Composition(both, appears, left - appears) for appears in range(left - larger, larger + 1)]
    return maximal


def most_differing(track: Track, calendar: Calendar, constraint: Constraint, closed: bool) -> int:
    """On how many of the nodes that an entry reports on a track two of its changelogs can differ at most."""
    return max(each.nodes for each in track_compositions(track, calendar, constraint, closed))
