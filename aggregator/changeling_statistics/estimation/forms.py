"""The covariance between the reports of one entry, as quadratic forms of the entries' histories x_i(τ).

Two things make the errors of different nodes covary: that entries of one track are the same people at all its nodes,
and that a joint response draws an entry's reports together. An entry is in group g with probability f_g, draws its
nodes on each track j of the group, and is else silent. So the sampling error of the estimate Σ_e K_e·(change on e) is

    Σ_g f_g⁻¹ Σ_i {d_ig d_ig' + Σ_{j∈g} [κ_j Σ_{e∈j} K_e² δ_ie δ_ie' + (ρ_j - 1) d_ij d_ij']} - Σ_i x_i x_i'

with d_ij = Σ_{e∈j} K_e δ_ie, d_ig = Σ_{j∈g} d_ij, and x_i = Σ_g d_ig, which is what is estimated of entry i. If some
are silent, f_g is the share that is in the group and heard, and all are 1/whole as many as are estimated. As
δ_ie = x_i(end) - x_i(start), all of them are sums over times. A joint group adds, with δ about what the base decodes
to,

    f_g⁻¹ Σ_i {Σ_jj' ρ_jj' d_ij d_ij'' - Σ_j ρ_jj Σ_{e∈j} K_e² δ_ie δ_ie'}

whose first sum has a square for each eigenvector of ρ; and for a history group what is known of its base. All are
worked out for k estimates at once. Knows plans and
weights; nothing of tallies or of anybody's history. docs/mathematics.md, "Shares"; docs/joint.md, "What one entry says
twice".
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Group, Survey
from numpy.typing import NDArray

from ..estimate import Floats
from ..randomizers.histories import HistoryBase
from .entries import correlations, draws, middle
from .network import Indices


@dataclass(frozen=True, slots=True, eq=False)
class Tie:
    """How the reports of an entry hang together in one joint group of J tracks.

    group: its number.
    tracks: the numbers of its tracks, shape (J,).
    rho: ρ between two reports of each pair of tracks, times how much likelier an entry reports two given nodes than if
    it drew each by itself; shape (J, J).
    middle: what the base of each track decodes to, in each answer, shape (J,).
    base: what is known of a history group, whatever its entries hold; None for another.
    """

    group: int
    tracks: Indices
    rho: Floats
    middle: Floats
    base: "TiedBase | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class TiedBase:
    """The covariance of the base of a history group between the ends of its nodes, of one entry.

    same, other: for one answer and for two different ones, between the times 0..T, shape (T+1, T+1); 0 where no node
    of the group ends. In entries squared.
    """

    same: Floats
    other: Floats

    @classmethod
    def of(cls, group: Group, periods: int) -> "TiedBase | None":
        """That of a group; None if it is no history group."""
        if (base := HistoryBase.of(group)) is None:
            return None
        ends = np.array([node.end for track in group.tracks for node in track.nodes()], np.intp)
        parts = [np.zeros((periods + 1,) * 2) for _ in range(2)]
        for part, scatter in zip(parts, base.scatter, strict=True):
            part[np.ix_(ends, ends)] = scatter
        return cls(*parts)


@dataclass(frozen=True, slots=True, eq=False)
class SamplingDesign:
    """The design of a survey: who reports on which of E edges, with what chance, and which reports hang together.

    start, end: the two times of each edge, shape (E,).
    group, track: the number of each edge's group and track, shape (E,).
    kept, scatter: ρ and κ of each track, shape (tracks,), as in `draws`.
    group_of: the group of each track, shape (tracks,).
    expansion: how many entries each entry of a group that is heard stands for, in each estimate, shape (k, groups).
    whole: how many entries of those who are enrolled the histories are of, for each: 1 if nobody is silent; (k,).
    entries: m, how many entries the histories are of, shape (k,).
    ties: the joint groups whose reports covary.
    """

    start: Indices
    end: Indices
    group: Indices
    track: Indices
    kept: Floats
    scatter: Floats
    group_of: Indices
    expansion: Floats
    whole: Floats
    entries: Floats
    ties: tuple[Tie, ...] = ()

    @property
    def needed(self) -> NDArray[np.bool_]:
        """Which estimates' reports have anything in common: a sampling error, or a joint response; shape (k,).

        There is none if everybody reports everything, and nobody is silent.
        """
        partial = self.expansion.shape[1] > 1 or bool((self.scatter > 0).any())
        return (self.expansion[:, 0] > self.whole) | partial | bool(self.ties)

    @property
    def finite(self) -> Floats:
        """n/(n - 1), by which the sampling error of ratio estimators is the larger, shape (k,)."""
        return self.entries / np.maximum(self.entries - 1.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Forms:
    """Σ_j omega[j] Σ_i (d_ij - base[j]·1)(…)' of each of k estimates, over the entries i; d_ij = Σ_τ c[j, τ] x_i(τ).

    omega: shape (k, J).
    c: the weights of times, shape (k, J, periods + 1).
    base: what is taken off d_ij in each answer, shape (k, J).
    sampled: how many of the J rows, the first ones, are the sampling error. It is about the mean of d_ij over the
    entries. Its last row is what is estimated of an entry.
    """

    omega: Floats
    c: Floats
    base: Floats
    sampled: int


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Σ_e sampled[e] Σ_i δ_ie δ_ie' + Σ_e tied[e] Σ_i (δ_ie - base[e]·1)(…)', over the entries i.

    What the entries' single nodes add to the forms, of each of k estimates. The first is about the mean of δ_ie over
    the entries.
    sampled, tied: shape (k, E). base: shape (E,).
    """

    sampled: Floats
    tied: Floats
    base: Floats


def ties(survey: Survey) -> tuple[Tie, ...]:
    """The joint groups of a survey's plan, but for those with one report that tells anything."""
    kept, plan = draws(survey.plan.tracks)[0], survey.plan
    tied = []
    for number, group in enumerate(plan.groups):
        tracks = np.array([track for track, _ in plan.numbered(number)], dtype=np.intp)
        rho = correlations(group).copy()
        rho[np.diag_indices_from(rho)] *= kept[tracks]
        if rho.any():
            middles = np.array([middle(track) for track in group.tracks])
            tied.append(Tie(number, tracks, rho, middles, TiedBase.of(group, survey.calendar.periods)))
    return tuple(tied)


def forms(design: SamplingDesign, rows: Floats, periods: int) -> Forms:
    """The forms of some estimates, but for their scatter. rows: K, shape (k, E). periods: T."""
    by_track, by_weight = _at_times(design, rows, periods)
    by_group = np.zeros((len(rows), design.expansion.shape[1], periods + 1))
    for track, group in enumerate(design.group_of.tolist()):
        by_group[:, group] += by_track[:, track]
    drawn = np.flatnonzero((design.scatter > 0) & np.isin(np.arange(len(design.scatter)), design.track))
    again = (design.kept - 1)[drawn] * design.expansion[:, design.group_of[drawn]]
    omega = [np.concatenate([design.expansion, again, -design.whole[:, None]], axis=1) * design.finite[:, None]]
    c = [by_group, by_track[:, drawn], by_group.sum(1, keepdims=True)]
    base, sampled = [np.zeros_like(omega[0])], omega[0].shape[1]
    for tie in design.ties:
        eigenvalues, vectors = np.linalg.eigh(tie.rho)
        counted = np.abs(eigenvalues) > 1e-12 * np.abs(eigenvalues).max()
        eigenvalues, vectors = eigenvalues[counted], vectors[:, counted]
        omega.append(design.expansion[:, [tie.group]] * eigenvalues)
        c.append(vectors.T @ by_track[:, tie.tracks])
        base.append((tie.middle * by_weight[:, tie.tracks]) @ vectors)
    return Forms(np.concatenate(omega, 1), np.concatenate(c, 1), np.concatenate(base, 1), sampled)


def known_base(design: SamplingDesign, rows: Floats, periods: int) -> tuple[Floats, Floats]:
    """The addition of the bases of history groups, whatever anybody holds: for each answer, and for each two; (k,).

    rows: K, shape (k, E). periods: T. In entries squared.
    """
    same, other = np.zeros(len(rows)), np.zeros(len(rows))
    for tie in design.ties:
        if tie.base is not None:
            at = np.flatnonzero(design.group == tie.group)
            weights = np.zeros((len(rows), periods + 1))
            weights[:, design.end[at]] = rows[:, at]  # at no time two nodes of the group end
            expanded = design.entries * design.expansion[:, tie.group]
            same += expanded * np.einsum("kt,kt->k", weights @ tie.base.same, weights)
            other += expanded * np.einsum("kt,kt->k", weights @ tie.base.other, weights)
    return same, other


def scatter(design: SamplingDesign, rows: Floats) -> Scatter:
    """The part of the entries' single nodes, beside the forms. rows: K, shape (k, E)."""
    tied, base = np.zeros(len(design.kept)), np.zeros(len(design.kept))
    for tie in design.ties:
        tied[tie.tracks], base[tie.tracks] = -np.diagonal(tie.rho), tie.middle
    expanded = design.expansion[:, design.group] * rows**2
    sampled = expanded * design.scatter[design.track] * design.finite[:, None]
    return Scatter(sampled, expanded * tied[design.track], base[design.track])


def _at_times(design: SamplingDesign, rows: Floats, periods: int) -> tuple[Floats, Floats]:
    """The weight of every time over each track's edges, shape (k, tracks, T+1), and their sums, (k, tracks)."""
    c = np.zeros((len(rows), len(design.kept), periods + 1))
    sums = np.zeros(c.shape[:2])
    for track in np.unique(design.track).tolist():
        at = np.flatnonzero(design.track == track)
        own, later = rows[:, at], design.start[at] > 0
        sums[:, track] = own.sum(1)
        c[:, track, design.end[at]] = own  # of one track no two nodes end together, nor start but at time 0
        c[:, track, design.start[at[later]]] -= own[:, later]
        c[:, track, 0] -= own[:, ~later].sum(1)
    least = 1e-12 * np.maximum(1.0, np.abs(rows).max(1, initial=0.0))
    c[np.abs(c) < least[:, None, None]] = 0.0
    return c, sums
