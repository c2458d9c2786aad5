"""The sampling error of shares as quadratic forms of the entries' histories.

Knows plans and weights; nothing of tallies or of anybody's history.
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey

from ..estimate import Floats
from .network import Indices


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Who reports on which of the E edges of a release graph, and with what chance.

    start, end: the two times of each edge, shape (E,).
    group, track: the number of each edge's group and track, shape (E,).
    expansion: how many entries each member of a group stands for, shape (groups,): 1/f_g, or entries / members in a
    closed cohort.
    kept, scatter: ρ and κ of each track, shape (tracks,), as in `draws`.
    centred: whether estimators are ratios, as in a closed cohort.
    entries: n, how many entries there are; used if centred.
    unseen: the relative variance of the estimate of n.
    """

    start: Indices
    end: Indices
    group: Indices
    track: Indices
    expansion: Floats
    kept: Floats
    scatter: Floats
    centred: bool
    entries: float
    unseen: float = 0.0

    @property
    def needed(self) -> bool:
        """Whether there is a sampling error; there is none if everybody reports everything."""
        return len(self.expansion) > 1 or bool((self.scatter > 0).any())


@dataclass(frozen=True, slots=True, eq=False)
class Forms:
    """The sampling covariance Σ_k omega[k] Σ_i d_ik d_ik' + Σ_e scatter[e] Σ_i δ_ie δ_ie', over the entries i.

    omega: shape (K,).
    c: the weights of times in d_ik = Σ_τ c[k, τ] x_i(τ), shape (K, periods + 1).
    scatter: shape (E,).
    """

    omega: Floats
    c: Floats
    scatter: Floats


def draws(survey: Survey) -> tuple[Floats, Floats]:
    """ρ and κ of each track, each of shape (tracks,): what it adds that entries report r random nodes of N.

        E (Σ_{e drawn} a_e/π)(…)' = κ Σ_e a_e a_e' + ρ (Σ_e a_e)(Σ_e a_e)',  ρ = π₂/π²,  κ = (π - π₂)/π²

    π = r/N is the chance that an entry reports a node, π₂ = r(r-1)/(N(N-1)) that it reports two given ones.
    """
    kept, scatter = [], []
    for track in survey.plan.tracks:
        r, N = track.reports, track.count
        chance, joint = r / N, (r * (r - 1) / (N * (N - 1)) if N > 1 else 1.0)
        kept.append(joint / chance**2)
        scatter.append((chance - joint) / chance**2)
    return np.array(kept), np.array(scatter)


def forms(design: Design, row: Floats, periods: int) -> Forms:
    """The sampling covariance of the estimate Σ_e K_e·(change on edge e), as quadratic forms.

    design: who reports what.
    row: K, shape (E,).
    periods: T.
    An entry is in group g with probability f_g, draws its nodes on each track j of the group, and is else silent. So

        Cov = Σ_g f_g⁻¹ Σ_i {d_ig d_ig' + Σ_{j∈g} [κ_j Σ_{e∈j} K_e² δ_ie δ_ie' + (ρ_j - 1) d_ij d_ij']} - Σ_i x_i x_i'

    with d_ij = Σ_{e∈j} K_e δ_ie, d_ig = Σ_{j∈g} d_ij, and x_i = Σ_g d_ig, which is what is estimated of entry i. As
    δ_ie = x_i(end) - x_i(start), all of them are sums over times. docs/mathematics.md, "Shares".
    """
    by_group = _at_times(design, row, design.group, len(design.expansion), periods)
    by_track = _at_times(design, row, design.track, len(design.kept), periods)
    track_expansion = np.zeros(len(design.kept))
    track_expansion[design.track] = design.expansion[design.group]
    drawn = np.flatnonzero((design.scatter > 0) & (track_expansion > 0))
    target = by_group.sum(0, keepdims=True)
    return Forms(
        omega=np.concatenate([design.expansion, (design.kept - 1)[drawn] * track_expansion[drawn], [-1.0]]),
        c=np.concatenate([by_group, by_track[drawn], target]),
        scatter=design.expansion[design.group] * design.scatter[design.track] * row**2,
    )


def _at_times(design: Design, row: Floats, owner: Indices, owners: int, periods: int) -> Floats:
    """The weight of every time in Σ_e row[e]·(x(end) - x(start)), over each owner's edges: (owners, periods + 1)."""
    c = np.zeros((owners, periods + 1))
    np.add.at(c, (owner, design.end), row)
    np.add.at(c, (owner, design.start), -row)
    c[np.abs(c) < 1e-12 * max(1.0, float(np.abs(row).max(initial=0.0)))] = 0.0
    return c
