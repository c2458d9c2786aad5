"""In which ways two changelogs can differ on a track, as far as one of them may be the worst at some ε.

The pure cost is one figure, and so is its worst way. Of (ε, δ) curves one may be the worst at one ε, and another at
another; a way is left out only where another is at least as bad at every ε.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from changeling_protocol import Calendar, Constraint, Track

from ..randomizers import PairKind
from .compositions import Composition, track_compositions
from .curve import PrivacyCurve, node_curve, worst_curve
from .distributions import CurveCounts

MOST_COMPOSITIONS = 128
"""With more compositions than that, kinds of nodes are taken for one another, which gives a looser bound."""
MOST_PAIRED = 400
"""The most points of a curve of two reports together."""

KindCurves: TypeAlias = dict[PairKind, PrivacyCurve]
"""The curve of one node, by how two changelogs differ there."""


def worst_compositions(track: Track, calendar: Calendar, constraint: Constraint, closed: bool) -> list[CurveCounts]:
    """The compositions of a track that can be the worst at some ε, each as numbers of independent reports by curve.

    Those that another one covers at every ε are left out, and those with equal curves are one. If more than
    MOST_COMPOSITIONS are left, several kinds of nodes all get the least curve above theirs, which is a looser bound.
    """
    kinds = {kind: node_curve(track.randomizer, kind) for kind in PairKind}
    compositions = track_compositions(track, calendar, constraint, closed)
    if track.reports_changes:
        compositions = _uncovered(compositions, kinds)
    by_curve = _by_curve(compositions, kinds)
    for alike in ((PairKind.APPEARS, PairKind.VANISHES), (PairKind.MUTATIONS, PairKind.APPEARS, PairKind.VANISHES)):
        if len(by_curve) > MOST_COMPOSITIONS:
            above = worst_curve(kinds[kind] for kind in alike)
            by_curve = _by_curve(compositions, kinds | dict.fromkeys(alike, above))
    return by_curve


def _uncovered(compositions: list[Composition], kinds: KindCurves) -> list[Composition]:
    """The compositions (s, a, b) that are left when no other composition is at least as bad as they are at every ε."""
    mutations, appears, vanishes = kinds[PairKind.MUTATIONS], kinds[PairKind.APPEARS], kinds[PairKind.VANISHES]
    if _covers(appears, mutations) or _covers(vanishes, mutations):
        # (s - 1, a + 1, b) and (s - 1, a, b + 1) are allowed wherever (s, a, b) is.
        return [each for each in compositions if each.both == 0]
    pair = _pair(kinds)
    if pair and _covers(mutations, pair):
        # (s + 1, a - 1, b - 1) is allowed wherever (s, a, b) is.
        return [each for each in compositions if min(each.appears, each.vanishes) == 0]
    if pair and _covers(pair, mutations) and all(each.appears == each.vanishes for each in compositions):
        # There are nodes enough for (s - 1, a + 1, b + 1).
        return [each for each in compositions if each.both == 0]
    return compositions


def _covers(upper: PrivacyCurve, lower: PrivacyCurve) -> bool:
    """Whether the one curve is above the other at every ε."""
    return worst_curve([upper, lower]) == upper


def _pair(kinds: KindCurves) -> PrivacyCurve | None:
    """The curve of a node where a mutation appears together with one where a mutation vanishes; None if too long."""
    appears, vanishes = kinds[PairKind.APPEARS], kinds[PairKind.VANISHES]
    return appears.together(vanishes) if len(appears.points) * len(vanishes.points) <= MOST_PAIRED else None


def _by_curve(compositions: Sequence[Composition], kinds: KindCurves) -> list[CurveCounts]:
    """The compositions as numbers of reports by curve, each once."""
    distinct: dict[frozenset[tuple[PrivacyCurve, int]], CurveCounts] = {}
    pair = _pair(kinds) if kinds[PairKind.APPEARS] != kinds[PairKind.VANISHES] else None
    for composition in compositions:
        counts: Counter[PrivacyCurve] = Counter()
        paired = 0
        if pair:
            # For signed subsets a pair lies on the lattice of two mutations, and each alone does not.
            paired = min(composition.appears, composition.vanishes)
            counts[pair] += paired
        counts[kinds[PairKind.APPEARS]] += composition.appears - paired
        counts[kinds[PairKind.VANISHES]] += composition.vanishes - paired
        counts[kinds[PairKind.MUTATIONS]] += composition.both
        counts[kinds[PairKind.INSERTIONS]] += composition.insertions
        positive = +counts
        distinct[frozenset(positive.items())] = positive
    return list(distinct.values())
