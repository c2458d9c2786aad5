"""How many nodes of a track two changelogs can tell apart, kind by kind: what cost(κ, N) maximises over.

Kept apart from cost.py, which needs only the largest sum of losses; (ε, δ) needs every division of the nodes.
"""

from dataclasses import dataclass

from changeling_protocol import AtMost, Calendar, Constraint, Track


@dataclass(frozen=True, slots=True)
class Composition:
    """On how many nodes of a track two changelogs differ, by how they differ there.

    both: each has a mutation there, another one. appears, vanishes: only the one has, only the other has.
    insertions: both are inserted there, with another answer.
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
    """The compositions that a pair of changelogs can reach on a track and that no other one contains.

    As in cost.py: states may differ at every node; in a closed cohort the first node of a track that starts with
    the calendar holds two insertions, and the remaining mutations fall on the others.
    """
    reports = track.reports
    if not track.reports_changes:
        return [Composition(reports, 0, 0)]
    most = constraint.most_nodes(track.bounds(calendar))
    if not closed:
        return divisions(most, reports)
    if isinstance(constraint, AtMost):
        most = min(constraint.k - 1, most)
    if track.first > 0:
        return divisions(most, reports)
    after_first = divisions(most, reports - 1)
    with_first = [Composition(each.both, each.appears, each.vanishes, 1) for each in after_first]
    return with_first if track.reported is None else with_first + divisions(most, reports)


def divisions(most: int, reports: int) -> list[Composition]:
    """The maximal (s, a, b) with s + a <= κ, s + b <= κ, s + a + b <= N, κ = `most`, N = `reports`.

    Nodes enough for all: s + (κ - s) + (κ - s), for every s. Too few: every way to share them out.
    """
    most = min(most, reports)
    found = []
    for both in range(most + 1):
        left = min(reports - both, 2 * (most - both))
        larger = min(left, most - both)
        found += [Composition(both, appears, left - appears) for appears in range(left - larger, larger + 1)]
    return found


def most_differing(track: Track, calendar: Calendar, constraint: Constraint, closed: bool) -> int:
    """The most reports of one entry on a track that two changelogs can tell apart."""
    return max(each.nodes for each in track_compositions(track, calendar, constraint, closed))
