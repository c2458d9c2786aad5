"""How the reports that one entry of a joint group sends hang together, as far as second moments go.

One report by itself has the law of an ordinary randomizer, its track's. Two reports that both tell something are not
independent. Let y and y' be what they decode to, about the base's mean, and δ and δ' what they tell. Then

    Cov(y, y') = ρ δ δ',   ρ = (P_ab - P_a P_b) / ((1 - p_a)(1 - p_b) gap_a gap_b)

P is how likely a slot agrees, P_ab that two both do, p that a symbol of the base does, gap = (P - p)/(1 - p).
docs/joint.md, "What one entry says twice".
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np
from changeling_protocol import Group, Kernel, Track

from .estimate import Floats


def correlations(group: Group) -> Floats:
    """ρ between two slots of each pair of tracks of a group, shape (tracks, tracks); 0 if the group is not joint.

    On the diagonal, between two slots of one track; 0 for a track with just one.
    """
    if group.joint is None:
        return np.zeros((len(group.tracks),) * 2)
    return _correlations(group.kernel)


@lru_cache(maxsize=1024)
def _correlations(kernel: Kernel) -> Floats:
    slots = kernel.joint.slots
    kinds = list(zip(kernel.agreements, kernel.joint.weights, strict=True))
    rho = np.zeros((len(slots), len(slots)))
    known: dict[object, float] = {}  # tracks of one kind are alike
    for a, one in enumerate(kinds):
        for b, other in enumerate(kinds[: a + 1]):
            if a == b and slots[a] == 1:
                continue
            if (one, other) not in known:
                known[one, other] = known[other, one] = _correlation(kernel, a, b)
            rho[a, b] = rho[b, a] = known[one, other]
    return rho


def _correlation(kernel: Kernel, one: int, other: int) -> float:
    both = _both_agree(kernel, one, other) - _agrees(kernel, one) * _agrees(kernel, other)
    worth = [(1 - kernel.agreements[at]) * Fraction(gap(kernel, at)) for at in (one, other)]
    return float(both / (worth[0] * worth[1]))


def gap(kernel: Kernel, track: int) -> float:
    """(P - p)/(1 - p): how much of what a slot of a track tells comes through."""
    p = kernel.agreements[track]
    return float((_agrees(kernel, track) - p) / (1 - p))


def middle(track: Track) -> float:
    """What the base of a track decodes to, in each answer: 1/m for states, of which there are m; 0 for changes."""
    return 0.0 if track.reports_changes else 1.0 / track.randomizer.space.size


def _agrees(kernel: Kernel, track: int) -> Fraction:
    """P: how likely a slot of the track agrees."""
    agreed = kernel.density(_used(kernel, track), kernel.joint.weights[track])
    return kernel.agreements[track] * agreed / kernel.density(_used(kernel), 0)


def _both_agree(kernel: Kernel, one: int, other: int) -> Fraction:
    """P_ab: how likely two slots both agree."""
    weights, chance = kernel.joint.weights, kernel.agreements[one] * kernel.agreements[other]
    agreed = kernel.density(_used(kernel, one, other), weights[one] + weights[other])
    return chance * agreed / kernel.density(_used(kernel), 0)


def _used(kernel: Kernel, *tracks: int) -> list[int]:
    return [tracks.count(at) for at in range(len(kernel.agreements))]
