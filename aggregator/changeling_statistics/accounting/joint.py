"""The exact (ε, δ) curve of all that an entry of a joint group reports.

Once every slot is used, a transcript is either a:b likelier than the base makes it, or it is not. So two changelogs
differ only where the one reaches the threshold and the other does not:

    δ(ε) = Pr(u reaches τ, v does not) · (a/b - e^ε) / G,      0 <= ε <= ln(a/b),

the probability being that of the base, and G the mean density. It is largest where u and v tell on the same nodes
things that agree with the same symbols as seldom as can be. docs/accounting.md, "A joint group".
"""

from fractions import Fraction
from math import lcm

import numpy as np
from changeling_protocol import Group, Track, agreeing

from ..randomizers import PairKind
from .curve import PrivacyCurve, curve_of, node_curve


def joint_curve(group: Group) -> PrivacyCurve:
    """The curve of a joint group's whole transcript: that of the worst pair of changelogs, at every ε.

    Slots that are never used are taken to be used on further nodes which nobody is shown, so that it is an upper bound
    for changelogs that leave some; it is attained where two changelogs can differ on all slots at once.
    Raises ValueError if the group is not joint.
    """
    kernel = group.kernel
    odds, mean = kernel.joint.odds, kernel.density([0] * len(group.tracks), 0)
    low = _only_one_reaches(group) / mean
    high = low * Fraction(odds.favoured, odds.other)
    alike = 1 - high - low
    return curve_of([(high, low), *([(alike, alike)] if alike else []), (low, high)])


def _only_one_reaches(group: Group) -> Fraction:
    """How likely, under the base, u reaches the threshold and v does not, where their inputs differ on every slot.

    Slot by slot, the scores of u and of v are counted together, each up to the threshold.
    """
    joint, whole = group.kernel.joint, 1
    top = joint.threshold
    ways = np.zeros((top + 1, top + 1), dtype=object)
    ways[0, 0] = 1
    for track, p, weight, slots in zip(group.tracks, group.kernel.agreements, joint.weights, joint.slots, strict=True):
        apart = _agrees_with_one(track)
        unit = lcm(p.denominator, apart.denominator)
        both, one, neither = (int(chance * unit) for chance in (p - apart, apart, 1 - p - apart))
        for _ in range(slots):
            of_u = _raised(ways, weight)
            ways = neither * ways + one * (of_u + _raised(ways.T, weight).T) + both * _raised(of_u.T, weight).T
            whole *= unit
    return Fraction(int(ways[top, :top].sum()), whole)


def _raised(ways: np.ndarray, weight: int) -> np.ndarray:
    """The counts after the score in the rows went up by a weight; it stays at the threshold, which is the last row."""
    after = np.zeros_like(ways)
    after[weight:] = ways[: len(ways) - weight] if weight < len(ways) else 0
    after[-1] += ways[max(0, len(ways) - weight) :].sum(axis=0)
    return after


def _agrees_with_one(track: Track) -> Fraction:
    """How likely a symbol of the base agrees with one of two inputs and not with the other, for the worst two.

    It is read off the curve of one report, where these symbols are the likeliest. Two inputs on different nodes agree
    independently, which is never worse.
    """
    randomizer = agreeing(track.randomizer)
    p, odds = randomizer.agreement, randomizer.odds
    normalised = 1 + p * (Fraction(odds.favoured, odds.other) - 1)
    curve = node_curve(track.randomizer, PairKind.MUTATIONS)
    favoured = sum((q for r, q in curve.classes() if r * odds.other == q * odds.favoured), Fraction(0))
    return max(favoured * normalised, p * (1 - p))
