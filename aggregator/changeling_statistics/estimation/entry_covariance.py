"""The covariance of everything that one entry of a group says: V_g, over the edges of the release graph.

What an entry says of an edge e is y_e/π_e if it reports there, and else 0; π_e is its chance to. Over the entries of
the group the mean of that is the change over the edge. Its covariance has three parts:

- response: what the randomizer adds to each report, on the diagonal;
- joint: what reports of a joint group have in common besides their truths, ρ δ̃_e δ̃_e' (changeling_statistics.joint);
- sampling: that the entries differ, E δ_e δ_e', and that each reports only some of the edges.

All are means over the answers and over the entries of a population. docs/mathematics.md, "Planning".
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Group

from ..estimate import Floats
from ..joint import correlations, middle
from .expected import Moments
from .network import Indices
from .sampling_forms import draws


@dataclass(frozen=True, slots=True, eq=False)
class GroupEdges:
    """E edges of the release graph that a group's nodes make, by the time of their end.

    group: whose they are.
    place: the place of each edge's track in the group, shape (E,).
    start, end: its two times, shape (E,); a report of a state starts at 0.
    """

    group: Group
    place: Indices
    start: Indices
    end: Indices

    @classmethod
    def of(cls, group: Group) -> "GroupEdges":
        """All edges of a group."""
        places: list[Indices] = []
        starts: list[Indices] = []
        ends: list[Indices] = []
        for place, track in enumerate(group.tracks):
            closings = np.arange(1, track.count + 1, dtype=np.intp) * track.width + track.first
            places.append(np.full(track.count, place, np.intp))
            starts.append(closings - track.width if track.reports_changes else np.zeros_like(closings))
            ends.append(closings)
        where, start, end = np.concatenate(places), np.concatenate(starts), np.concatenate(ends)
        order = np.lexsort((where, start, end))
        return cls(group, where[order], start[order], end[order])


@dataclass(frozen=True, slots=True, eq=False)
class EntryCovariance:
    """V_g in its parts, for one entry and over E edges, in entries squared.

    response: shape (E,). joint, sampling: shape (E, E).
    """

    response: Floats
    joint: Floats
    sampling: Floats

    @property
    def whole(self) -> Floats:
        """V_g, shape (E, E)."""
        whole = self.joint + self.sampling
        whole.flat[:: len(whole) + 1] += self.response
        return whole


def entry_covariance(edges: GroupEdges, report_variances: Floats, moments: Moments) -> EntryCovariance:
    """The covariance of what one entry of a group says.

    report_variances: what the randomizer adds to one report on each edge, mean over the answers, shape (E,).
    moments: of the entries' histories, at the times 0..T.
    """
    tracks, place, start, end = edges.group.tracks, edges.place, edges.start, edges.end
    chance = np.array([track.reports / track.count for track in tracks])
    together = _drawn_together(edges)
    sampling = together * _between(moments.centred, start, end)
    rho = correlations(edges.group)
    joint = np.zeros_like(sampling)
    if rho.any():
        base = np.array([middle(track) for track in tracks])[place]
        told = moments.means[end] - moments.means[start]
        products = _between(moments.products, start, end)
        products += np.outer(base, base) - np.outer(told, base) - np.outer(base, told)
        joint = together * rho[place[:, None], place] * products
        np.fill_diagonal(joint, 0.0)
    return EntryCovariance(report_variances / chance[place], joint, sampling)


def _drawn_together(edges: GroupEdges) -> Floats:
    """Pr(both edges are reported) / (Pr(one) Pr(the other)), shape (E, E). Tracks draw their nodes independently."""
    kept, scatter = draws(edges.group.tracks)
    place = edges.place
    together = np.where(place[:, None] == place, kept[place], 1.0)
    np.fill_diagonal(together, (kept + scatter)[place])
    return together


def _between(products: Floats, start: Indices, end: Indices) -> Floats:
    """E δ_e δ_e' from E x(τ)x(τ'), where δ_e = x(end) - x(start), shape (E, E)."""
    at_end, at_start = products[end], products[start]
    between: Floats = at_end[:, end] - at_end[:, start] - at_start[:, end] + at_start[:, start]
    return between
