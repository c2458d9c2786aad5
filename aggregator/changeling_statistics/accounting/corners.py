"""Which compositions of a track can be the worst at some ε, as numbers of independent reports by curve.

Pure epsilon asks for one figure; here every way to share out the nodes counts unless another covers it.
"""

from collections import Counter
from collections.abc import Sequence

from changeling_protocol import Calendar, Constraint, Track

from ..randomizers import PairKind
from .compositions import Composition, track_compositions
from .curve import PrivacyCurve, node_curve, worst_curve
from .distributions import Parts

MOST_CORNERS = 128
MOST_PAIRED = 400

Kinds = dict[PairKind, PrivacyCurve]


def track_corners(track: Track, calendar: Calendar, constraint: Constraint, closed: bool) -> list[Parts]:
    """The compositions of a track that can be worst at some ε, as numbers of independent reports by curve.

    Those that another one covers at every ε are left out, and those of equal curves fall together; of more than
    MOST_CORNERS the kinds are replaced by the least curve above them, a looser bound.
    """
    kinds = {kind: node_curve(track.randomizer, kind) for kind in PairKind}
    compositions = track_compositions(track, calendar, constraint, closed)
    if track.reports_changes:
        compositions = _uncovered(compositions, kinds)
    corners = _as_parts(compositions, kinds)
    for alike in ((PairKind.APPEARS, PairKind.VANISHES), (PairKind.MUTATIONS, PairKind.APPEARS, PairKind.VANISHES)):
        if len(corners) > MOST_CORNERS:
            above = worst_curve(kinds[kind] for kind in alike)
            corners = _as_parts(compositions, kinds | dict.fromkeys(alike, above))
    return corners


def _uncovered(compositions: list[Composition], kinds: Kinds) -> list[Composition]:
    """The compositions (s, a, b) left when one kind of node tells no more than what may stand in its place."""
    mutations, appears, vanishes = kinds[PairKind.MUTATIONS], kinds[PairKind.APPEARS], kinds[PairKind.VANISHES]
    if _covers(appears, mutations) or _covers(vanishes, mutations):
        # (s - 1, a + 1, b) and (s - 1, a, b + 1) are allowed wherever (s, a, b) is.
        return [each for each in compositions if each.both == 0]
    pair = _pair(kinds)
    if pair and _covers(mutations, pair):
        # (s + 1, a - 1, b - 1) is allowed wherever (s, a, b) is.
        return [each for each in compositions if min(each.appears, each.vanishes) == 0]
    balanced = [each for each in compositions if each.both == 0 and each.appears == each.vanishes]
    if pair and _covers(pair, mutations) and all(each.appears == each.vanishes for each in compositions):
        # There are nodes enough for (s - 1, a + 1, b + 1).
        return balanced
    return compositions


def _covers(one: PrivacyCurve, other: PrivacyCurve) -> bool:
    return worst_curve([one, other]) == one


def _pair(kinds: Kinds) -> PrivacyCurve | None:
    """One node where a mutation appears together with one where one vanishes; None where that is a long list."""
    appears, vanishes = kinds[PairKind.APPEARS], kinds[PairKind.VANISHES]
    return appears.together(vanishes) if len(appears.points) * len(vanishes.points) <= MOST_PAIRED else None


def _as_parts(compositions: Sequence[Composition], kinds: Kinds) -> list[Parts]:
    """Compositions with equal curves counted together, and none twice."""
    distinct: dict[frozenset[tuple[PrivacyCurve, int]], Parts] = {}
    pair = _pair(kinds) if kinds[PairKind.APPEARS] != kinds[PairKind.VANISHES] else None
    for each in compositions:
        parts: Counter[PrivacyCurve] = Counter()
        paired = 0
        if pair:
            # For signed subsets a pair lies on the lattice of two mutations, and each alone does not.
            paired = min(each.appears, each.vanishes)
            parts[pair] += paired
        parts[kinds[PairKind.APPEARS]] += each.appears - paired
        parts[kinds[PairKind.VANISHES]] += each.vanishes - paired
        parts[kinds[PairKind.MUTATIONS]] += each.both
        parts[kinds[PairKind.INSERTIONS]] += each.insertions
        kept = +parts
        distinct[frozenset(kept.items())] = kept
    return list(distinct.values())
