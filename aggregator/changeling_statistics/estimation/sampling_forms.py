"""Which quadratic forms of the entries' histories the sampling error of shares is.

Knows plans and weights; nothing of tallies or of anybody's history.
"""

from dataclasses import dataclass

import numpy as np
from changeling_protocol import Survey

from ..estimate import Floats
from .network import Indices


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Who reports what, as far as sampling goes, for the E edges of a release graph.

    start, end, group, track: of each edge, shape (E,). expansion: 1/f_g of each group, in a closed cohort
    entries / members. kept: ρ of each track, below. scatter: κ of each track. centred: ratio estimators.
    entries: n, used where centred. unseen: the relative variance of n̂.
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
        """Whether there is a sampling error: whether not everybody reports everything."""
        return len(self.expansion) > 1 or bool((self.scatter > 0).any())


@dataclass(frozen=True, slots=True, eq=False)
class Forms:
    """The sampling error as Σ_k omega[k] Σ_i d_ik d_ik' + Σ_e scatter[e] Σ_i δ_ie δ_ie'.

    d_ik = Σ_τ c[k, τ] x_i(τ); c of shape (K, periods + 1), scatter of shape (E,).
    """

    omega: Floats
    c: Floats
    scatter: Floats


def draws(survey: Survey) -> tuple[Floats, Floats]:
    """ρ_j and κ_j of each track, for entries that report r random nodes of N.

    π = r/N is the chance to report a node, π₂ = r(r-1)/(N(N-1)) to report two. Then
    E (Σ_{e drawn} a_e/π)(…)' = κ Σ_e a_e a_e' + ρ (Σ_e a_e)(Σ_e a_e)',  ρ = π₂/π²,  κ = (π - π₂)/π².
    """
    kept, scatter = [], []
    for track in survey.plan.tracks:
        r, N = track.reports, track.count
        one, two = r / N, (r * (r - 1) / (N * (N - 1)) if N > 1 else 1.0)
        kept.append(two / one**2)
        scatter.append((one - two) / one**2)
    return np.array(kept), np.array(scatter)


def forms(design: Design, row: Floats, periods: int) -> Forms:
    """The forms of an estimate Σ_e row[e]·(change on e), row of shape (E,).

    An entry is in group g with probability f_g, draws its nodes, and else is silent, so

        Cov = Σ_g f_g⁻¹ Σ_i {d_ig d_ig' + Σ_{j∈g} [κ_j Σ_{e∈j} K_e² δ_ie δ_ie' + (ρ_j - 1) d_ij d_ij']} - Σ_i x_i x_i'

    with d_ij = Σ_{e∈j} K_e δ_ie, d_ig = Σ_{j∈g} d_ij, and x_i = Σ_g d_ig, what is estimated of entry i. Edges turn
    into times by δ_ie = x_i(end) - x_i(start).
    docs/mathematics.md, "Shares".
    """
    by_group = _at_times(design, row, design.group, len(design.expansion), periods)
    by_track = _at_times(design, row, design.track, len(design.kept), periods)
    of_track = np.zeros(len(design.kept))
    of_track[design.track] = design.expansion[design.group]
    drawn = np.flatnonzero((design.scatter > 0) & (of_track > 0))
    target = by_group.sum(0, keepdims=True)
    return Forms(
        omega=np.concatenate([design.expansion, (design.kept - 1)[drawn] * of_track[drawn], [-1.0]]),
        c=np.concatenate([by_group, by_track[drawn], target]),
        scatter=design.expansion[design.group] * design.scatter[design.track] * row**2,
    )


def _at_times(design: Design, row: Floats, owner: Indices, owners: int, periods: int) -> Floats:
    c = np.zeros((owners, periods + 1))
    np.add.at(c, (owner, design.end), row)
    np.add.at(c, (owner, design.start), -row)
    c[np.abs(c) < 1e-12 * max(1.0, float(np.abs(row).max(initial=0.0)))] = 0.0
    return c
