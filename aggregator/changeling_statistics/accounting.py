"""The (ε, δ) of everything that one entry ever reports under a survey's plan, where nobody is trusted.

The curve of one report is exact, in fractions:

    δ(ε) = max over inputs u, v of Σ_o max(0, P[o, u] - e^ε P[o, v])

Reports compose as privacy-loss distributions on a grid, by dp-accounting. Every step from the one to the other rounds
up. A loss between two grid points is split between them so that both inputs keep their total probabilities, which only
raises the curve (connect the dots, Doroshenko et al. 2022). Tails count as infinite losses.

On each track the worst way counts in which two changelogs can differ, and the tracks of a group compose. The pure cost
is one figure, and so is its worst way, which the protocol works out; of (ε, δ) curves one may be the worst at one ε,
and another at another, so a way is left out only where another is at least as bad at every ε. Which group an entry
drew, and which nodes, can be seen on its envelopes. So whoever reads them is taken to know both, and the worst counts:

    δ(ε) = max_g δ_g(ε)

Each δ_g is bounded by that of the worst pair of changelogs, and if r of N nodes are drawn, by the worst r of them. All
figures are upper bounds, and never above the pure ones. Deltas below LEAST_DELTA are not claimed.

A joint group has one curve for all its tracks, with one bend; a history group that of k-RR over its possible histories.
docs/accounting.md, "A joint group".
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import expm1, floor, inf, lcm, log, nextafter
from typing import Any, TypeAlias

import numpy as np
from changeling_protocol import (
    Calendar,
    Constraints,
    Group,
    History,
    Randomizer,
    Survey,
    Track,
    agreeing,
    differing_nodes,
    group_cost,
    log_ratio,
    rounded_up,
)
from numpy.typing import NDArray

from .estimate import Floats
from .randomizers.counterpart import Likelihoods, PairKind, counterpart_of

Point: TypeAlias = tuple[Fraction, Fraction]
"""(β, α): a test that is wrong on one input with probability β is right on the other with probability α."""


@dataclass(frozen=True, slots=True)
class Corner:
    """A point (ε, δ) at which a curve bends.

    ratio: e^ε, exactly. delta: δ, exactly.
    """

    ratio: Fraction
    delta: Fraction

    @property
    def epsilon(self) -> Decimal:
        """ε, the logarithm of the ratio, rounded up."""
        return log_ratio(self.ratio.numerator, self.ratio.denominator)


@dataclass(frozen=True, slots=True)
class PrivacyCurve:
    """How well a report tells two inputs apart.

    points: the best tests, rising and concave from (0, 0) to (1, 1). Then δ(ε) = max over points of α - e^ε β
    (Kairouz, Oh, Viswanath 2017).
    """

    points: tuple[Point, ...]

    def delta_at_ratio(self, ratio: Fraction) -> Fraction:
        """δ at e^ε = ratio, exactly."""
        return max(power - ratio * wrong for wrong, power in self.points)

    def delta_at(self, epsilon: float) -> float:
        """δ(ε), rounded up. Raises ValueError for a negative epsilon."""
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be 0 or more, got {epsilon}")
        if epsilon == inf:
            return float_above(self.delta_at_ratio_infinite)
        with localcontext(prec=50, rounding=ROUND_FLOOR):
            ratio = Fraction(Decimal(epsilon).exp() * (1 - Decimal("1e-45"))) if epsilon else Fraction(1)
        return float_above(self.delta_at_ratio(ratio))

    @property
    def delta_at_ratio_infinite(self) -> Fraction:
        """δ at ε = ∞: the probability of symbols that the other input never sends."""
        return max(power for wrong, power in self.points if wrong == 0)

    def epsilon_at(self, delta: Fraction | float) -> float:
        """The least ε with δ(ε) <= delta, rounded up; inf where there is none.

        ε = ln max over points of (α - δ) / β. Raises ValueError for a delta outside [0, 1].
        """
        allowed = Fraction(delta)
        if not 0 <= allowed <= 1:
            raise ValueError(f"delta must be from 0 to 1, got {delta}")
        if self.delta_at_ratio_infinite > allowed:
            return inf
        ratio = max((power - allowed) / wrong for wrong, power in self.points if wrong)
        return rounded_up(log_ratio(ratio.numerator, ratio.denominator)) if ratio > 1 else 0.0

    def corners(self) -> tuple[Corner, ...]:
        """The points (ε, δ) with ε >= 0 at which the curve bends, by falling ε. With δ(0) they determine it."""
        ratios = [p / q for p, q in self.classes() if q and p >= q]
        return tuple(Corner(ratio, self.delta_at_ratio(ratio)) for ratio in ratios)

    def classes(self) -> Likelihoods:
        """The probabilities (p, q), under the two inputs, of the classes of symbols, by falling ratio p / q."""
        return tuple((power - p, wrong - q) for (q, p), (wrong, power) in pairwise(self.points))

    def together(self, other: "PrivacyCurve") -> "PrivacyCurve":
        """The exact curve of this report and an independent other one together."""
        return curve_of([(p * r, q * s) for p, q in self.classes() for r, s in other.classes()])


SILENT = PrivacyCurve(((Fraction(0), Fraction(0)), (Fraction(1), Fraction(1))))
"""The curve of a report that tells nothing."""


def curve_of(likelihoods: Iterable[tuple[Fraction, Fraction]]) -> PrivacyCurve:
    """The curve of one pair of inputs, or of any two distributions.

    likelihoods: the probabilities (p, q) of each class of symbols under the two.
    """
    sums: list[Point] = [(Fraction(0), Fraction(0))]
    for p, q in sorted(likelihoods, key=lambda pair: -pair[0] / (pair[0] + pair[1])):
        sums.append((sums[-1][0] + q, sums[-1][1] + p))
    return _concave(sums)


def worst_curve(curves: Iterable[PrivacyCurve]) -> PrivacyCurve:
    """The least curve that is above all of these at every ε.

    It is itself the curve of two distributions, so it can be composed (Zhu, Dong, Wang 2022, proposition 8).
    """
    return _concave(sorted({point for curve in curves for point in curve.points}))


@lru_cache(maxsize=512)
def node_curve(randomizer: Randomizer, kind: PairKind) -> PrivacyCurve:
    """The worst curve of one report over the pairs of inputs of a kind; SILENT if there are none."""
    counterpart = counterpart_of(randomizer)
    pairs = counterpart.telling_pairs(kind)
    return worst_curve([SILENT, *(curve_of(counterpart.likelihoods(u, v)) for u, v in pairs)])


def randomizer_curve(randomizer: Randomizer) -> PrivacyCurve:
    """The worst curve of one report over all pairs of inputs."""
    return worst_curve(node_curve(randomizer, kind) for kind in PairKind)


def _concave(points: Iterable[Point]) -> PrivacyCurve:
    """The least concave curve above some points.

    points: sorted, (0, 0) and (1, 1) among them.
    """
    hull: list[Point] = []
    for q, p in points:
        while len(hull) > 1:
            (q0, p0), (q1, p1) = hull[-2:]
            if (p1 - p0) * (q - q1) > (p - p1) * (q1 - q0):
                break
            hull.pop()
        hull.append((q, p))
    return PrivacyCurve(tuple(hull))


def float_above(exact: Fraction) -> float:
    """The least float that is not below a fraction."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else nextafter(nearest, inf)


CurveCounts: TypeAlias = Mapping[PrivacyCurve, int]
"""Independent reports: how many have each curve."""


PrivacyLossDistribution: TypeAlias = Any
"""dp-accounting's class of this name, which is imported late because that takes long; it states no types."""

LATTICE_ERROR = 1e-12
"""A loss this close to a grid point, relatively, is taken for it. Whoever reads a δ(ε) makes up for that in ε."""
MOST_GRID = 2**13
"""About how many grid points the largest loss may span."""
STEPS_PER_LOSS = 16
"""Into how many steps the least loss is divided where losses are not multiples of it."""
MOST_KNOTS = 512
"""At how many points, at most, the highest of several curves is taken."""


def grid_interval(composition: CurveCounts) -> float:
    """The distance of grid points, in nats, that suits a composition, and whatever is made of its curves.

    If all losses are multiples of the least one it is that, and nothing is rounded, as for k-RR, whose losses are
    ±ln(a/b) and 0. If not, it is so small that rounding up costs little, and large enough for about MOST_GRID points.
    """
    losses = {abs(loss) for curve in composition for loss, _ in atoms(curve)} - {0.0}
    if not losses:
        return 1.0
    least = min(losses)
    if all(abs(loss / least - round(loss / least)) <= LATTICE_ERROR * loss / least for loss in losses):
        return least
    return max(least / STEPS_PER_LOSS, largest_loss(composition) / MOST_GRID)


def largest_loss(counts: CurveCounts) -> float:
    """The largest loss of a composition, in nats, of either sign; infinite losses are left out."""
    return sum(count * max(abs(loss) for loss, _ in atoms(curve)) for curve, count in counts.items())


@lru_cache(maxsize=2048)
def atoms(curve: PrivacyCurve) -> tuple[tuple[float, float], ...]:
    """(ln p/q, p) for each class of symbols that both inputs send, p and q being its probabilities under the two."""
    return tuple(
        (log(p.numerator * q.denominator) - log(p.denominator * q.numerator) if p != q else 0.0, float(p))
        for p, q in curve.classes()
        if p and q
    )


def distribution(curve: PrivacyCurve, interval: float) -> PrivacyLossDistribution:
    """The distribution of the loss ln p/q under the first input, on multiples of an interval, rounded up.

    curve: of one report. interval: in nats.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    masses: dict[int, float] = {}
    for loss, mass in atoms(curve):
        steps = loss / interval
        below, share = floor(steps), 0.0
        if abs(steps - round(steps)) <= LATTICE_ERROR * max(1.0, abs(steps)):
            below = round(steps)
        else:
            share = expm1(interval * (below - steps)) / expm1(-interval)
        for point, part in ((below, 1 - share), (below + 1, share)):
            if part > 0:
                masses[point] = masses.get(point, 0.0) + mass * part
    infinite = float(curve.delta_at_ratio_infinite)
    return pld.PrivacyLossDistribution.create_from_rounded_probability(masses, infinite, interval)


def composed(counts: CurveCounts, interval: float) -> PrivacyLossDistribution:
    """The distribution of the loss of several independent reports, on multiples of an interval in nats."""
    made = [_repeated(curve, interval, count) for curve, count in counts.items() if count]
    return all_together(made) if made else distribution(SILENT, interval)


@lru_cache(maxsize=1024)
def _repeated(curve: PrivacyCurve, interval: float, count: int) -> PrivacyLossDistribution:
    return distribution(curve, interval).self_compose(count)


def all_together(distributions: Sequence[PrivacyLossDistribution]) -> PrivacyLossDistribution:
    """The distribution of the sum of independent losses; of at least one."""
    first, *rest = distributions
    for other in rest:
        first = first.compose(other)
    return first


def upper_distribution(compositions: Sequence[CurveCounts], interval: float) -> PrivacyLossDistribution:
    """One distribution whose δ(ε) is at least that of every composition: the largest at some ε, joined by chords.

    interval: of the grid, in nats.
    """
    made = [composed(counts, interval) for counts in compositions]
    if len(made) == 1:
        return made[0]
    reach = floor(max(map(largest_loss, compositions)) / interval) + 2
    knots = np.unique(np.linspace(-reach, reach, min(2 * reach + 1, MOST_KNOTS)).round().astype(np.int64))
    epsilons = knots.astype(np.float64) * interval
    deltas = np.array([losses.get_delta_for_epsilon(epsilons) for losses in made], np.float64).max(axis=0)
    return from_knots(knots, deltas, interval)


def from_knots(knots: NDArray[np.int64], deltas: Floats, interval: float) -> PrivacyLossDistribution:
    """The distribution whose δ(ε) runs through some points, and between them along chords.

    knots: the points' ε in intervals, rising, shape (n,).
    deltas: their δ, shape (n,).
    interval: in nats.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    # A curve is at least 1 - e^ε and at most 1, and falls; what rounding took from that is given back.
    held = np.clip(deltas, np.maximum(0.0, -np.expm1(knots * interval)), 1.0)
    falling = np.maximum.accumulate(held[::-1])[::-1]
    masses = pld_pmf.create_pmf_pessimistic_connect_dots(interval, knots, falling)
    return pld.PrivacyLossDistribution(masses)


def symmetric_deltas(deltas: Floats, epsilons: Floats) -> tuple[Floats, Floats]:
    """Continues a curve δ(ε) to negative ε, where either input may stand for the other: δ(-ε) = 1 - e^-ε + e^-ε δ(ε).

    deltas: shape (n,). epsilons: rising from 0, shape (n,).
    Returns the epsilons and deltas of the whole curve, each of shape (2n-1,).
    """
    down = -np.expm1(-epsilons[1:]) + np.exp(-epsilons[1:]) * deltas[1:]
    return np.concatenate((-epsilons[:0:-1], epsilons)), np.concatenate((down[::-1], deltas))


@dataclass(frozen=True, slots=True)
class DifferingNodes:
    """The number of nodes of a track on which two changelogs differ, by how they differ there.

    both: nodes on which both have a mutation, and not the same one.
    appears: nodes on which only the one has a mutation.
    vanishes: only the other.
    insertions: nodes on which both insert the entry, with different answers.
    """

    both: int
    appears: int
    vanishes: int
    insertions: int = 0


def divisions(most: int, reports: int) -> list[DifferingNodes]:
    """The compositions (s, a, b) with s + a <= κ, s + b <= κ and s + a + b <= N to which nothing can be added.

    most: κ, on how many nodes a changelog can have mutations. reports: N, how many nodes an entry reports.
    If there are nodes enough, a = b = κ - s for every s; if not, a and b share what is left in every way.
    """
    most = min(most, reports)
    maximal = []
    for both in range(most + 1):
        left = min(reports - both, 2 * (most - both))
        larger = min(left, most - both)
        maximal += [DifferingNodes(both, appears, left - appears) for appears in range(left - larger, larger + 1)]
    return maximal


MOST_COMPOSITIONS = 128
"""With more compositions than that, kinds of nodes are taken for one another, which gives a looser bound."""
MOST_PAIRED = 400
"""The most points of a curve of two reports together."""

KindCurves: TypeAlias = dict[PairKind, PrivacyCurve]
"""The curve of one node, by how two changelogs differ there."""


def worst_compositions(track: Track, calendar: Calendar, constraint: Constraints, closed: bool) -> list[CurveCounts]:
    """The compositions of a track that can be the worst at some ε, each as numbers of independent reports by curve.

    closed: whether the cohort is closed.
    States may differ at every node. Compositions that another one covers at every ε are left out, and those with equal
    curves are one. If more than MOST_COMPOSITIONS are left, several kinds of nodes all get the least curve above
    theirs, which is a looser bound.
    """
    kinds = {kind: node_curve(track.randomizer, kind) for kind in PairKind}
    compositions = [DifferingNodes(track.reports, 0, 0)]
    if track.reports_changes:
        ways = differing_nodes(track, calendar, constraint, closed)
        every = [replace(each, insertions=int(first)) for first, most, left in ways for each in divisions(most, left)]
        compositions = _uncovered(every, kinds)
    by_curve = _by_curve(compositions, kinds)
    for alike in ((PairKind.APPEARS, PairKind.VANISHES), (PairKind.MUTATIONS, PairKind.APPEARS, PairKind.VANISHES)):
        if len(by_curve) > MOST_COMPOSITIONS:
            above = worst_curve(kinds[kind] for kind in alike)
            by_curve = _by_curve(compositions, kinds | dict.fromkeys(alike, above))
    return by_curve


def _uncovered(compositions: list[DifferingNodes], kinds: KindCurves) -> list[DifferingNodes]:
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
    """True if the one curve is above the other at every ε."""
    return worst_curve([upper, lower]) == upper


def _pair(kinds: KindCurves) -> PrivacyCurve | None:
    """The curve of a node where a mutation appears together with one where a mutation vanishes; None if too long."""
    appears, vanishes = kinds[PairKind.APPEARS], kinds[PairKind.VANISHES]
    return appears.together(vanishes) if len(appears.points) * len(vanishes.points) <= MOST_PAIRED else None


def _by_curve(compositions: Sequence[DifferingNodes], kinds: KindCurves) -> list[CurveCounts]:
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


def joint_curve(group: Group) -> PrivacyCurve:
    """The curve of a joint group's whole transcript: that of the worst pair of changelogs, at every ε.

    That of a history group is k-RR over all possible histories: exact, as any two of them are told apart equally well.
    Slots that are never used are taken to be used on further nodes which nobody is shown, so that it is an upper bound
    for changelogs that leave some; it is attained where two changelogs can differ on all slots at once.
    Raises ValueError if the group is not joint.
    """
    if isinstance(group.joint, History):
        odds, count = group.joint.odds, group.histories.possible.count
        low = Fraction(odds.other, odds.favoured + (count - 1) * odds.other) if count > 1 else Fraction(0)
    else:
        odds, kernel = group.kernel.joint.odds, group.kernel
        low = _only_one_reaches(group) / kernel.density([0] * len(group.tracks), 0)
    high = low * Fraction(odds.favoured, odds.other)
    alike = 1 - high - low
    return curve_of(each for each in ((high, low), (alike, alike), (low, high)) if any(each))


def _only_one_reaches(group: Group) -> Fraction:
    """The chance, under the base, that u reaches the threshold and v does not, where their inputs differ on every slot.

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
    """The chance that a symbol of the base agrees with one of two inputs and not with the other, for the worst two.

    It is read off the curve of one report, where these symbols are the likeliest. Two inputs on different nodes agree
    independently, which is never worse.
    """
    randomizer = agreeing(track.randomizer)
    p, odds = randomizer.agreement, randomizer.odds
    normalised = 1 + p * (Fraction(odds.favoured, odds.other) - 1)
    curve = node_curve(track.randomizer, PairKind.MUTATIONS)
    favoured = sum((q for r, q in curve.classes() if r * odds.other == q * odds.favoured), Fraction(0))
    return max(favoured * normalised, p * (1 - p))


LEAST_DELTA = 1e-12
"""Floating-point sums are exact to about a thousandth of this. Below it only the pure figure is given."""
ROUNDING = 1e-14
"""Added to a δ for what floating-point sums may have lost."""
BISECTIONS = 40


def delta_at(survey: Survey, epsilon: float) -> float:
    """δ(ε) of everything that an entry reports, in the worst group, rounded up; 0 if ε is at least the pure cost.

    epsilon: in nats, at least 0. Raises ValueError below.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be 0 or more, got {epsilon}")
    if epsilon >= survey.cost:
        return 0.0
    return max(_delta(*_exposed(survey, group), epsilon) for group in set(survey.plan.groups))


def epsilon_at(survey: Survey, delta: float) -> float:
    """The least ε with δ(ε) <= delta, of everything that an entry reports, in the worst group; in nats, rounded up.

    delta: from 0 to below 1. Below LEAST_DELTA the result is the survey's pure cost, which it never exceeds.
    Raises ValueError for a delta outside that range.
    """
    return max(group_epsilon(survey, group, delta) for group in set(survey.plan.groups))


def group_epsilon(survey: Survey, group: Group, delta: float) -> float:
    """The same for the entries of one group of the survey."""
    check_delta(delta)
    pure, losses = _exposed(survey, group)
    low, high = 0.0, pure
    if delta < LEAST_DELTA:
        return high
    if _delta(pure, losses, low) <= delta:
        return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(pure, losses, middle) <= delta else (middle, high)
    return high


def check_delta(delta: float) -> None:
    """Raises ValueError for a delta outside [0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be at least 0 and below 1, got {delta}")


def _exposed(survey: Survey, group: Group) -> tuple[float, PrivacyLossDistribution]:
    """The pure cost of an entry of a group in nats, rounded up, and its privacy losses."""
    circumstances = survey.calendar, survey.constraints, survey.closed
    return rounded_up(group_cost(group, *circumstances)), group_distribution(group, *circumstances)


def _delta(pure: float, losses: PrivacyLossDistribution, epsilon: float) -> float:
    """δ(ε), rounded up."""
    if epsilon >= pure:
        return 0.0
    slack = 1e-11 * pure  # covers losses that were taken for multiples of the grid
    delta = float(losses.get_delta_for_epsilon(max(0.0, epsilon - slack)))
    return min(1.0, delta * (1 + 1e-9) + ROUNDING)


@lru_cache(maxsize=128)
def group_distribution(
    group: Group, calendar: Calendar, constraint: Constraints, closed: bool
) -> PrivacyLossDistribution:
    """A privacy-loss distribution whose δ(ε) is at least that of every pair of changelogs of an entry of the group.

    The tracks are composed, each at its worst for every ε. One pair of changelogs need not be the worst on all tracks,
    so the figure can be too large. A joint group is one report with a curve of its own.
    """
    if group.joint is not None:
        curve = joint_curve(group)
        return distribution(curve, grid_interval({curve: 1}))
    tracks = Counter(group.tracks)
    compositions = {track: worst_compositions(track, calendar, constraint, closed) for track in tracks}
    interval = _common_interval([(compositions[track], count) for track, count in tracks.items()])
    upper = {track: upper_distribution(compositions[track], interval) for track in tracks}
    return all_together([upper[track].self_compose(count) for track, count in tracks.items()])


def _common_interval(tracks: Sequence[tuple[Sequence[CurveCounts], int]]) -> float:
    """The grid on which all tracks of a group are composed.

    tracks: for each distinct track its compositions, and how many tracks are alike.
    """
    together: Counter[PrivacyCurve] = Counter()
    for compositions, count in tracks:
        largest: Counter[PrivacyCurve] = Counter()
        for counts in compositions:
            largest |= Counter(counts)
        for curve, reports in largest.items():
            together[curve] += reports * count
    return grid_interval(together)
