"""One entry, as far as it is known before it answers: how its answers change, and the covariance of everything it says.

What an entry says of an edge e of the release graph is y_e/π_e if it reports there, and else 0; π_e is its chance to.
Over the entries of a group the mean of that is the change over the edge. Its covariance V_g has three parts:

- response: what the randomizer adds to each report, on the diagonal;
- joint: what reports of a joint group have in common besides their truths. Of two that tell something, let y and y' be
  what they decode to, about the base's mean, and δ and δ' what they tell. Then

      Cov(y, y') = ρ δ δ',   ρ = (P_ab - P_a P_b) / ((P_a - p_a)(P_b - p_b))

  P is how likely a slot agrees, P_ab that two both do, p that a symbol of the base does. Of a history group ρ is
  (1 - γ)/γ, and the covariance C of the base between the two times is added (1 - γ)/γ² times,
  which is known whatever anybody holds (`history_scatter`; docs/histories.md);
- sampling: that the entries differ, E δ_e δ_e', and that each reports only some of the edges.

All are means over the answers and over the entries of a population. The designer's expectation (`ExpectedChanges`) is
read as a population whose answers are uniform, and whose entries move to a uniformly random other answer at a steady
rate; nobody's answer is deleted. One that behaves otherwise is estimated without bias too, only less well.
docs/mathematics.md, "Planning"; docs/joint.md, "What one entry says twice".

For estimates that are made already the last two parts are quadratic forms of the entries' histories x_i(τ), sums over
times, with a square for each eigenvector of ρ. Knows plans and weights; nothing of tallies or of anybody's history.
docs/mathematics.md, "Shares", has the formula and its proof.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from changeling_protocol import (
    MICRO,
    BasedResponse,
    ExpectedChanges,
    Group,
    History,
    HistoryKernel,
    Kernel,
    PossibleHistories,
    Randomizer,
    ReleasePlan,
    Survey,
    Track,
)
from numpy.typing import NDArray

from ..estimate import Floats, Indices, conserves
from ..randomizers.counterpart import class_variances


@lru_cache(maxsize=256)
def history_scatter(kernel: HistoryKernel) -> tuple[Floats, Floats]:
    """(1 - γ)/γ² · C between two times, for one answer and for two different ones, each of shape (m, m).

    In entries squared, of one entry; 0 on the diagonal, as one report's own variance is its randomizer's.
    """
    d, r = kernel.possible.states, _returns(kernel.possible)
    if kernel.possible.null:
        g, between = r[0, 1:], r[1:, 1:]
        mean = (1 - g) / d
        earlier = np.minimum.outer(np.arange(len(g)), np.arange(len(g)))
        first, last = g[earlier], g[np.maximum.outer(np.arange(len(g)), np.arange(len(g)))]
        same = (1 - first + (d - 1) * (between - last)) / d**2 - np.outer(mean, mean)
        other = (1 - first - between + last) / d**2 - np.outer(mean, mean)
    else:
        same, other = (d - 1) / d**2 * r[1:, 1:], -1 / d**2 * r[1:, 1:]
    scale = float((1 - kernel.told) / kernel.told**2)
    np.fill_diagonal(same, 0.0)
    np.fill_diagonal(other, 0.0)
    return scale * same, scale * other


def _returns(possible: PossibleHistories) -> Floats:
    """E (-1/(d - 1))^c for the changes c that the base shows between two of the times 0..m, symmetric.

    In a closed cohort row and column 0 have no meaning, and are 1.
    """
    m = possible.times
    returns, count = np.ones((m + 1, m + 1)), possible.count
    if possible.null and possible.limits.span == m - 1 and not possible.limits.either:
        by_length = np.array([possible.alternating(0, length) / count for length in range(m + 1)])
        returns[:] = by_length[np.abs(np.subtract.outer(np.arange(m + 1), np.arange(m + 1)))]
        return returns
    whole = np.full((m + 1, m + 1), 1 / count) if possible.null else np.zeros((m + 1, m + 1))
    for first in range(1, m + 1 if possible.null else 2):
        whole += _after_first(possible, first, count)
    upper = np.triu(whole, 1)
    returns[:] = upper + upper.T + np.eye(m + 1)
    if not possible.null:
        returns[0] = returns[:, 0] = 1.0
    return returns


def _after_first(possible: PossibleHistories, first: int, count: int) -> Floats:
    """The part of `returns` by histories whose first answer is in a report, for start < end; shape (m + 1, m + 1)."""
    m = possible.times
    gone = np.clip(np.arange(m + 1) - first, 0, None)
    counted = np.minimum(gone, possible.limits.span)
    inside, within = (np.maximum(0, each[None, :] - each[:, None]) for each in (gone, counted))
    codes = inside * (m + 1) + within
    ways = np.zeros((m + 1) ** 2)
    for code in np.flatnonzero(np.bincount(codes.ravel())).tolist():
        ways[code] = possible.answered(first, *divmod(code, m + 1)) / count
    if not possible.null:
        every: Floats = possible.states * ways[codes]
        return every
    times = np.arange(m + 1)
    shown = (times[:, None] < first) & (first <= times[None, :])
    signed: Floats = np.where(shown, -1.0, possible.states - 1.0) * ways[codes]
    return signed


def correlations(group: Group) -> Floats:
    """ρ between two slots of each pair of tracks of a group, shape (tracks, tracks); 0 if the group is not joint.

    On the diagonal, between two slots of one track; 0 for a track with just one.
    """
    if group.joint is None:
        return np.zeros((len(group.tracks),) * 2)
    if isinstance(group.joint, History):
        told, alone = group.histories.told, group.histories.possible.times == 1
        return np.full((len(group.tracks),) * 2, 0.0 if alone else float((1 - told) / told))
    return _correlations(group.kernel, len(group.tracks))


@lru_cache(maxsize=1024)
def _correlations(kernel: Kernel, tracks: int) -> Floats:
    slots, kinds = kernel.joint.slots[:tracks], kernel.kinds[:tracks]
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
    def agree(*slots: int) -> Fraction:
        """How likely these slots, by their tracks, all agree."""
        used = [slots.count(track) for track in range(len(kernel.joint.slots))]
        chance = prod((kernel.agreements[track] for track in slots), start=Fraction(1))
        weight = sum(kernel.joint.weights[track] for track in slots)
        return chance * kernel.density(used, weight) / kernel.density([0] * len(used), 0)

    worth = [agree(track) - kernel.agreements[track] for track in (one, other)]
    return float((agree(one, other) - agree(one) * agree(other)) / (worth[0] * worth[1]))


def middle(track: Track) -> float:
    """The value of a track's base, decoded, in each answer: 0 for changes, 1/m for states, of which there are m.

    In an open cohort the base of a history has NULL more often early than late, and each answer as often as the others.
    """
    randomizer = track.randomizer
    if isinstance(randomizer, BasedResponse):
        return randomizer.answer / (randomizer.total() - randomizer.truth)
    return 0.0 if track.reports_changes else 1.0 / randomizer.space.size


LEAST_VARIANCE = 1e-9
"""The least variance of a report: where nothing can change it would be all but 0, and systems badly conditioned."""


def expected_variances(
    randomizer: Randomizer, start: Indices, end: Indices, expected: ExpectedChanges, closed: bool
) -> Floats:
    """The variance that the randomizer adds to one report on each node, mean over the answers, shape (nodes,).

    start, end: the nodes' times, all of one width. closed: whether the cohort is closed. In entries squared.
    """
    before, after = shares_there(expected, start), shares_there(expected, end)
    moved = before * (1 - 1 / randomizer.space.answers)
    moved = moved * (1 - persistence(randomizer.space.answers, expected) ** (end - start))
    return report_variances(randomizer, start, before, after, moved, closed)


def report_variances(
    randomizer: Randomizer, start: Indices, before: Floats, after: Floats, moved: Floats, closed: bool
) -> Floats:
    """The variance that the randomizer adds to one report on each node, mean over the answers, shape (nodes,).

    start: when each begins. before, after: the shares of the entries that have an answer then, and at its end.
    moved: the share that has another one at its end. closed: whether the cohort is closed. In entries squared.
    """
    changes = randomizer.space.reports_changes
    if not changes:
        variances = class_variances(randomizer, False)
        return (1 - after) * variances.none + after * variances.came
    plain = class_variances(randomizer, False).mixed(moved, after - before)
    conserved = class_variances(randomizer, conserves(closed, changes, 1)).mixed(moved, after - before)
    return np.where(start > 0, conserved, plain)


def change_variances(answers: int, expected: ExpectedChanges, start: Indices, end: Indices) -> Floats:
    """E δ² about the mean of δ, mean over the answers, for what an entry adds over each node (start, end], (nodes,).

    answers: z.
    start: 0 for a report of a state.
    If a share π of n entries is asked, n(1/π - 1) times this is added to the variance of what a node measures.
    """
    before, after = shares_there(expected, start) / answers, shares_there(expected, end) / answers
    kept = before * (1 / answers + (1 - 1 / answers) * persistence(answers, expected) ** (end - start))
    variances: Floats = np.maximum(0.0, after + before - 2 * kept - (after - before) ** 2)
    return variances


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
    """The moments of the population that a designer expects, at the times 0..T.

        E x(τ)x(τ') = h {1/z + (1 - 1/z) φ^|τ-τ'|} / z

    h is the share of entries that have any answer by the earlier of the two times; before the calendar nobody has.
    """
    z, times = answers, np.arange(periods + 1, dtype=np.intp)
    held = shares_there(expected, np.minimum.outer(times, times))
    apart = np.abs(np.subtract.outer(times, times))
    products = held * (1 / z + (1 - 1 / z) * persistence(z, expected) ** apart) / z
    means = shares_there(expected, times) / z
    return Moments(products, products - np.outer(means, means), means)


def shares_there(expected: ExpectedChanges, times: Indices) -> Floats:
    """The share of entries that are expected to have an answer by some times; 0 is the calendar's start."""
    without = (1 - expected.first / MICRO) * (1 - expected.later / MICRO) ** np.maximum(times - 1, 0)
    return np.where(times > 0, 1.0 - without, 0.0)


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


def edges_by_group(
    plan: ReleasePlan, group: Indices, track: Indices, start: Indices, end: Indices
) -> Iterator[tuple[GroupEdges, Indices]]:
    """The edges of each group of a plan, and their numbers among all. All of shape (E,), the edges in order of ends."""
    for number, each in enumerate(plan.groups):
        at = np.flatnonzero(group == number).astype(np.intp)
        first = next((index for index, _ in plan.numbered(number)), 0)
        yield GroupEdges(each, track[at] - first, start[at], end[at]), at


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
        if isinstance(edges.group.joint, History):
            at = np.searchsorted(_ends(edges.group), edges.end)
            joint += history_scatter(edges.group.histories)[0][np.ix_(at, at)]
        np.fill_diagonal(joint, 0.0)
    return EntryCovariance(report_variances / chance[place], joint, sampling)


def _ends(group: Group) -> Indices:
    """When the nodes of a history group end, rising."""
    return np.array([node.end for track in group.tracks for node in track.nodes()], np.intp)


def _drawn_together(edges: GroupEdges) -> Floats:
    """Pr(both edges are reported) / (Pr(one) Pr(the other)), shape (E, E). Tracks draw their nodes independently."""
    kept, scatter = draws(edges.group.tracks)
    place = edges.place
    together = np.where(place[:, None] == place, kept[place], 1.0)
    np.fill_diagonal(together, (kept + scatter)[place])
    return together


def _between(products: Floats, start: Indices, end: Indices) -> Floats:
    """E δ_e δ_e' from E x(τ)x(τ'), where δ_e = x(end) - x(start), shape (E, E)."""
    changes = (products[end] - products[start]).T.copy()  # rows are copied much faster than columns
    between: Floats = changes[end]
    between -= changes[start]
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


@dataclass(frozen=True, eq=False)
class Tie:
    """How the reports of an entry hang together in one joint group of J tracks.

    group: its number.
    tracks: the numbers of its tracks, shape (J,).
    rho: ρ between two reports of each pair of tracks, times how much likelier an entry reports two given nodes than if
    it drew each by itself; shape (J, J).
    middle: what the base of each track decodes to, in each answer, shape (J,).
    ends, base: of a history group, when its F nodes end, and what is known of the base between them, whatever its
    entries hold: its covariance for one answer and for two different ones, of one entry; None for another group.
    """

    group: int
    tracks: Indices
    rho: Floats
    middle: Floats
    ends: Indices
    base: tuple[Floats, Floats] | None

    @cached_property
    def squares(self) -> tuple[Floats, Floats]:
        """The eigenvalues of rho that count, shape (F,), and their eigenvectors, shape (J, F)."""
        eigenvalues, vectors = np.linalg.eigh(self.rho)
        counted = np.abs(eigenvalues) > 1e-12 * np.abs(eigenvalues).max()
        return eigenvalues[counted], vectors[:, counted]


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
        """Mask of the estimates whose reports share a sampling error or a joint response, shape (k,).

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
            base = history_scatter(group.histories) if isinstance(group.joint, History) else None
            tied.append(Tie(number, tracks, rho, middles, _ends(group), base))
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
        eigenvalues, vectors = tie.squares
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
            weights = weights[:, tie.ends]
            expanded = design.entries * design.expansion[:, tie.group]
            for added, base in zip((same, other), tie.base, strict=True):
                added += expanded * np.einsum("kt,kt->k", weights @ base, weights)
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
