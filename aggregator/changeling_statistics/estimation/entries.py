"""How the reports that one entry of a joint group sends hang together, as far as second moments go.

One report by itself has the law of an ordinary randomizer, its track's. Two reports that both tell something are not
independent. Let y and y' be what they decode to, about the base's mean, and δ and δ' what they tell. Then

    Cov(y, y') = ρ δ δ',   ρ = (P_ab - P_a P_b) / ((1 - p_a)(1 - p_b) gap_a gap_b)

P is how likely a slot agrees, P_ab that two both do, p that a symbol of the base does, gap = (P - p)/(1 - p).
docs/joint.md, "What one entry says twice".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from changeling_protocol import MICRO, ExpectedChanges, Group, Kernel, Randomizer, Track

from ..estimate import Floats, conserves
from ..randomizers.registry import class_variances
from .network import Indices


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


def expected_variances(
    randomizer: Randomizer, start: Indices, end: Indices, expected: ExpectedChanges, closed: bool
) -> Floats:
    """The variance that the randomizer adds to one report on each node, mean over the answers, shape (nodes,).

    start, end: the nodes' times, all of one width. closed: whether the cohort is closed. In entries squared.
    """
    answers, changes = randomizer.space.answers, randomizer.space.reports_changes
    after = shares_there(expected, end)
    if not changes:
        variances = class_variances(randomizer, False)
        return (1 - after) * variances.none + after * variances.came
    before = shares_there(expected, start)
    moved = before * (1 - 1 / answers) * (1 - persistence(answers, expected) ** (end - start))
    plain = class_variances(randomizer, False).mixed(moved, after - before)
    conserved = class_variances(randomizer, conserves(closed, changes, 1)).mixed(moved, after - before)
    return np.where(start > 0, conserved, plain)


def expected_spreads(answers: int, expected: ExpectedChanges, start: Indices, end: Indices) -> Floats:
    """E δ² about the mean of δ, mean over the answers, for what an entry adds over each node (start, end], (nodes,).

    answers: z.
    start: 0 for a report of a state.
    If a share π of n entries is asked, n(1/π - 1) times this is added to the variance of what a node measures.
    """
    before, after = shares_there(expected, start) / answers, shares_there(expected, end) / answers
    kept = before * (1 / answers + (1 - 1 / answers) * persistence(answers, expected) ** (end - start))
    spreads: Floats = np.maximum(0.0, after + before - 2 * kept - (after - before) ** 2)
    return spreads


def expected_products(answers: int, expected: ExpectedChanges, rows: Indices, columns: Indices) -> Floats:
    """Γ: how likely an entry has an answer at both of two times τ and τ', mean over the answers.

        Γ = E x(τ)x(τ') = h {1/z + (1 - 1/z) φ^|τ-τ'|} / z

    x(τ) is 1 if an entry has the answer at time τ, else 0; h is the share of entries that have any answer by the
    earlier of the two times. At time 0, before the calendar, nobody has.

    answers: z.
    rows, columns: the times τ and τ'.
    Returns shape (len(rows), len(columns)).
    """
    z = answers
    early, late = np.minimum.outer(rows, columns), np.maximum.outer(rows, columns)
    held = shares_there(expected, early)
    products: Floats = held * (1 / z + (1 - 1 / z) * persistence(z, expected) ** (late - early)) / z
    return products


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Means of products of x(τ), which is 1 if an entry has an answer at time τ and else 0, mean over the answers.

    products: E x(τ)x(τ'), shape (T+1, T+1).
    centred: the same about the means, as estimators are ratios.
    means: E x(τ), shape (T+1,).
    """

    products: Floats
    centred: Floats
    means: Floats


@lru_cache(maxsize=8)
def expected_moments(answers: int, expected: ExpectedChanges, periods: int) -> Moments:
    """The moments of the population that a designer expects, at the times 0..T."""
    times = np.arange(periods + 1, dtype=np.intp)
    products = expected_products(answers, expected, times, times)
    means = shares_there(expected, times) / answers
    return Moments(products, products - np.outer(means, means), means)


def shares_there(expected: ExpectedChanges, times: Indices) -> Floats:
    """`share_there` of many times, of the same shape."""
    shares: Floats = _all_shares(expected, int(times.max(initial=0)))[times]
    return shares


@lru_cache(maxsize=64)
def _all_shares(expected: ExpectedChanges, last: int) -> Floats:
    """`share_there` at the times 0 to `last`."""
    return np.array([share_there(expected, time) for time in range(last + 1)])


def share_there(expected: ExpectedChanges, time: int) -> float:
    """The share of entries that are expected to have an answer at the end of a period, 0 being the calendar's start."""
    return expected.share_changed(0, time) if time else 0.0


def persistence(answers: int, expected: ExpectedChanges) -> float:
    """φ = 1 - ρ z/(z-1), at least 0: how much of the correlation of an entry's answers is left after a period.

    answers: z. ρ is the expected rate of changes a period.
    """
    return max(0.0, 1 - expected.later / MICRO * answers / (answers - 1)) if answers > 1 else 1.0


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

    def without(self, lost: int | None) -> "GroupEdges":
        """These edges but for those that end with a period that is lost; None for none."""
        kept = self.end != lost if lost is not None else np.ones(len(self.end), np.bool_)
        return GroupEdges(self.group, self.place[kept], self.start[kept], self.end[kept])


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
