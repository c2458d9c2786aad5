"""What the reports of one entry have in common, as quadratic forms of the entries' histories.

Two things make the errors of different nodes covary: that entries of one track are the same people at all its nodes,
and that a joint response draws an entry's reports together. Knows plans and weights; nothing of tallies or of
anybody's history.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey, Track

from ..estimate import Floats
from ..joint import correlations, middle
from .network import Indices


@dataclass(frozen=True, slots=True, eq=False)
class Tie:
    """How the reports of an entry hang together in one joint group of J tracks.

    group: its number.
    tracks: the numbers of its tracks, shape (J,).
    rho: ρ between two reports of each pair of tracks, times how much likelier an entry reports two given nodes than if
    it drew each by itself; shape (J, J).
    middle: what the base of each track decodes to, in each answer, shape (J,).
    """

    group: int
    tracks: Indices
    rho: Floats
    middle: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Who reports on which of the E edges of a release graph, with what chance, and which reports hang together.

    start, end: the two times of each edge, shape (E,).
    group, track: the number of each edge's group and track, shape (E,).
    expansion: how many entries each entry of a group that is heard stands for, shape (groups,).
    whole: how many entries of those who are enrolled the histories are of, for each: 1 if nobody is silent.
    kept, scatter: ρ and κ of each track, shape (tracks,), as in `draws`.
    entries: m, how many entries the histories are of.
    ties: the joint groups whose reports covary.
    """

    start: Indices
    end: Indices
    group: Indices
    track: Indices
    expansion: Floats
    whole: float
    kept: Floats
    scatter: Floats
    entries: float
    ties: tuple[Tie, ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether there is a sampling error; there is none if everybody reports everything, and nobody is silent."""
        return len(self.expansion) > 1 or bool((self.scatter > 0).any()) or bool(self.expansion[0] > self.whole)

    @property
    def needed(self) -> bool:
        """Whether reports have anything in common: a sampling error, or a joint response."""
        return self.sampled or bool(self.ties)

    @property
    def finite(self) -> float:
        """n/(n - 1), by which the sampling error of ratio estimators is the larger."""
        return self.entries / max(self.entries - 1.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Forms:
    """Σ_k omega[k] Σ_i (d_ik - base[k]·1)(…)', over the entries i, with d_ik = Σ_τ c[k, τ] x_i(τ).

    omega: shape (K,).
    c: the weights of times, shape (K, periods + 1).
    base: what is taken off d_ik in each answer, shape (K,).
    sampled: how many of the rows, the first ones, are the sampling error. It is about the mean of d_ik over the
    entries. Its last row is what is estimated of an entry.
    """

    omega: Floats
    c: Floats
    base: Floats
    sampled: int


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Σ_e sampled[e] Σ_i δ_ie δ_ie' + Σ_e tied[e] Σ_i (δ_ie - base[e]·1)(…)', over the entries i; each shape (E,).

    The first is about the mean of δ_ie over the entries.
    """

    sampled: Floats
    tied: Floats
    base: Floats


def draws(tracks: Sequence[Track]) -> tuple[Floats, Floats]:
    """ρ and κ of each track, each of shape (tracks,): what it adds that entries report r random nodes of N.

        E (Σ_{e drawn} a_e/π)(…)' = κ Σ_e a_e a_e' + ρ (Σ_e a_e)(Σ_e a_e)',  ρ = π₂/π²,  κ = (π - π₂)/π²

    π = r/N is the chance that an entry reports a node, π₂ = r(r-1)/(N(N-1)) that it reports two given ones. So ρ + κ
    is 1/π.
    """
    kept, scatter = [], []
    for track in tracks:
        r, N = track.reports, track.count
        chance, joint = r / N, (r * (r - 1) / (N * (N - 1)) if N > 1 else 1.0)
        kept.append(joint / chance**2)
        scatter.append((chance - joint) / chance**2)
    return np.array(kept), np.array(scatter)


def ties(survey: Survey) -> tuple[Tie, ...]:
    """The joint groups of a survey's plan, but for those with one report that tells anything."""
    kept, plan = draws(survey.plan.tracks)[0], survey.plan
    tied = []
    for number, group in enumerate(plan.groups):
        tracks = np.array([track for track, _ in plan.numbered(number)], dtype=np.intp)
        rho = correlations(group).copy()
        rho[np.diag_indices_from(rho)] *= kept[tracks]
        if rho.any():
            tied.append(Tie(number, tracks, rho, np.array([middle(track) for track in group.tracks])))
    return tuple(tied)


def forms(design: Design, row: Floats, periods: int) -> Forms:
    """What reports have in common in the estimate Σ_e K_e·(change on edge e), but for its scatter.

    design: who reports what.
    row: K, shape (E,).
    periods: T.
    An entry is in group g with probability f_g, draws its nodes on each track j of the group, and is else silent. So
    the sampling error is

        Σ_g f_g⁻¹ Σ_i {d_ig d_ig' + Σ_{j∈g} [κ_j Σ_{e∈j} K_e² δ_ie δ_ie' + (ρ_j - 1) d_ij d_ij']} - Σ_i x_i x_i'

    with d_ij = Σ_{e∈j} K_e δ_ie, d_ig = Σ_{j∈g} d_ij, and x_i = Σ_g d_ig, which is what is estimated of entry i. If
    some are silent, f_g is the share that is in the group and heard, and all are 1/whole as many as are estimated. As
    δ_ie = x_i(end) - x_i(start), all of them are sums over times. docs/mathematics.md, "Shares".
    A joint group adds, with δ about what the base decodes to,

        f_g⁻¹ Σ_i {Σ_jj' ρ_jj' d_ij d_ij'' - Σ_j ρ_jj Σ_{e∈j} K_e² δ_ie δ_ie'}

    whose first sum has a square for each eigenvector of ρ. docs/joint.md, "What one entry says twice".
    """
    by_track = _at_times(design, row, design.track, len(design.kept), periods)
    omega, c, base = [np.zeros(0)], [np.zeros((0, periods + 1))], [np.zeros(0)]
    if design.sampled:
        by_group = _at_times(design, row, design.group, len(design.expansion), periods)
        track_expansion = np.zeros(len(design.kept))
        track_expansion[design.track] = design.expansion[design.group]
        drawn = np.flatnonzero((design.scatter > 0) & (track_expansion > 0))
        again = (design.kept - 1)[drawn] * track_expansion[drawn]
        omega.append(np.concatenate([design.expansion, again, [-design.whole]]) * design.finite)
        c.append(np.concatenate([by_group, by_track[drawn], by_group.sum(0, keepdims=True)]))
        base.append(np.zeros(len(omega[-1])))
    sampled = sum(map(len, omega))
    by_weight = np.bincount(design.track, row, len(design.kept))
    for tie in design.ties:
        eigenvalues, vectors = np.linalg.eigh(tie.rho)
        omega.append(design.expansion[tie.group] * eigenvalues)
        c.append(vectors.T @ by_track[tie.tracks])
        base.append(vectors.T @ (tie.middle * by_weight[tie.tracks]))
    return Forms(np.concatenate(omega), np.concatenate(c), np.concatenate(base), sampled)


def scatter(design: Design, products: Floats) -> Scatter:
    """What the entries' single nodes add to the forms.

    products: K_e² of one estimate, or K_e K'_e of two, shape (E,).
    """
    tied, base = np.zeros(len(design.kept)), np.zeros(len(design.kept))
    for tie in design.ties:
        tied[tie.tracks] = -np.diagonal(tie.rho)
        base[tie.tracks] = tie.middle
    expanded = design.expansion[design.group] * products
    sampled = expanded * design.scatter[design.track] * design.finite
    return Scatter(sampled, expanded * tied[design.track], base[design.track])


def _at_times(design: Design, row: Floats, owner: Indices, owners: int, periods: int) -> Floats:
    """The weight of every time in Σ_e row[e]·(x(end) - x(start)), over each owner's edges: (owners, periods + 1)."""
    c = np.zeros((owners, periods + 1))
    np.add.at(c, (owner, design.end), row)
    np.add.at(c, (owner, design.start), -row)
    c[np.abs(c) < 1e-12 * max(1.0, float(np.abs(row).max(initial=0.0)))] = 0.0
    return c
