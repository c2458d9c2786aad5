"""The loss of a period: what it does to a plan, and the group of states that bridges it.

If the server is down while a period closes, no node that ends then is published. Estimates are back once the nodes that
have closed connect with time 0 again: reports of states do that at once, and so does a change over a node that begins
before the loss and ends after it. Only nodes count that are expected to have reports enough to be published.

A floor is a group whose entries report states at times so close to each other that estimates are back soon after any
one closing is lost. They tell less of everything else, which is the price. It is as small as is of use: so large that
its nodes are published and that estimates after a loss are within twice the usual error, or as dear as it may be.
"""

from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log, sqrt

import numpy as np
from changeling_protocol import Group, Track

from ..estimate import Floats
from .candidates import Candidate, Maker
from .prediction import Option, Span, Wish, predict
from .shares import EXACT, ShareProblem, even

SOON = 10
"""A lost period is bridged if estimates are back within this part of the horizon."""


def allowed_gap(periods: int) -> int:
    """⌈T/10⌉: how many periods may be without an estimate after a loss, the lost one among them.

    periods: T, of the horizon.
    """
    return -(-periods // SOON)


def typical_loss(periods: int) -> tuple[int, int]:
    """The period whose loss stands for that of any, the middle one; and by when estimates are to be back after it.

    periods: T, of the horizon, which is the last of both.
    """
    lost = -(-periods // 2)
    return lost, min(periods, lost + allowed_gap(periods))


def longest_gap(tracks: Iterable[Track], periods: int, *, retrospective: bool = False) -> int:
    """How long estimates are missing at worst if any one period is lost, in periods.

    That is from the lost period until estimates are back for good, both counted: 1 if the next period has one again.
    Where all is over, it is counted likewise to the farthest period without an estimate, before or after the loss; 0 if
    there is none.

    tracks: those of a plan. periods: T, of the horizon.
    retrospective: whether all nodes may be used for every period; if not, those that have closed by its end.
    """
    reached, everything = _reached(tracks, periods, retrospective), (1 << periods + 1) - 2
    longest = 0
    for time in range(1, periods + 1):
        missing = everything & ~reached[time]
        earlier = missing & ((1 << time + 1) - 1)
        if earlier:
            longest = max(longest, time - _first(earlier) + 1)
        if retrospective and missing:
            longest = max(longest, missing.bit_length() - time)
    return longest


def _reached(tracks: Iterable[Track], periods: int, retrospective: bool) -> Sequence[int]:
    """The lost periods under which each time 0..T is connected with time 0: bit l of an integer for period l.

    Online as it was when the time closed; retrospective as it is in the end.
    """
    starts = _starts(tracks, periods)
    reached = [(1 << periods + 1) - 2] + [0] * periods
    first = list(reached)
    neighbours: list[list[tuple[int, int]]] = [[] for _ in starts]
    for end, begun in enumerate(starts):
        for start in begun:
            neighbours[start].append((end, end))
            neighbours[end].append((start, end))
        changed = [*begun]
        while changed:
            time = changed.pop()
            for other, closing in neighbours[time]:
                more = reached[time] & ~(1 << closing) & ~reached[other]
                if more:
                    reached[other] |= more
                    changed.append(other)
        first[end] = reached[end]
    return reached if retrospective else first


def _starts(tracks: Iterable[Track], periods: int) -> list[set[int]]:
    """The starts of the edges that end at each time 0..T; a report of a state starts at 0."""
    starts: list[set[int]] = [set() for _ in range(periods + 1)]
    for track in tracks:
        for node in track.nodes():
            starts[node.end].add(node.start if track.reports_changes else 0)
    return starts


def _first(bits: int) -> int:
    """The number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


SURELY = 4.0
"""A node is counted on if it is expected to have so many standard deviations more reports than the minimum."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The course of things if the server is down as a period closes.

    gap: for how many periods estimates are missing at worst, whichever period it is; the whole horizon if for good.
    allowed: for how many they may be.
    lost: the period whose loss is looked at, the middle one.
    back: the period by which estimates are to be back then.
    error: the largest standard error from `back` on, as a fraction of the entries; inf if one is still missing.
    """

    gap: int
    allowed: int
    lost: int
    back: int
    error: float

    @property
    def bridged(self) -> bool:
        """True if any lost period is bridged."""
        return self.gap <= self.allowed


def outage(wish: Wish, option: Option) -> Outage:
    """Works out what the loss of a period does to a plan for this wish."""
    lost, back = typical_loss(wish.periods)
    after = predict(option.survey.about(0), wish.devices, retrospective=wish.retrospective, lost=lost)
    error = float(after.errors[back - 1 :].max())
    return Outage(gap_after_loss(wish, option), allowed_gap(wish.periods), lost, back, error)


def gap_after_loss(wish: Wish, option: Option) -> int:
    """The number of periods for which estimates are missing at worst after the loss of one."""
    groups, total = option.survey.about(0).plan.groups, option.plan.total_share
    sure = sure_tracks(wish, groups, [group.share / total for group in groups])
    return longest_gap(sure, wish.periods, retrospective=wish.retrospective)


def divided(chosen: Sequence[Candidate], shares: Floats) -> tuple[list[Group], list[float]]:
    """The groups of some candidates as one question has them, and the share of the devices in each of a plan's."""
    each_of = zip(chosen, shares.tolist(), strict=True)
    return [each.group for each in chosen], [share / each.copies for each, share in each_of]


def is_bridged(wish: Wish, tracks: Sequence[Track]) -> bool:
    """True if these tracks bridge any lost period."""
    return longest_gap(tracks, wish.periods, retrospective=wish.retrospective) <= allowed_gap(wish.periods)


def sure_tracks(wish: Wish, groups: Sequence[Group], shares: Sequence[float]) -> list[Track]:
    """The tracks of some groups, of which all nodes are expected to have reports enough to be published.

    shares: those of the groups among all devices.
    """
    return [
        track
        for group, share in zip(groups, shares, strict=True)
        for track in group.tracks
        if wish.devices * share * track.reports / track.count >= enough_reports(wish.minimum)
    ]


def enough_reports(minimum: int) -> float:
    """How many reports a node is expected to have if it is all but certain to have the minimum."""
    return minimum + SURELY * sqrt(minimum)


PRICE = 0.03
"""By what part a floor may raise the error."""
GOOD = 2.0
"""A floor is large enough if estimates after a loss have at most so many times the error of the plan without it."""
REPORTED = (1, 2, 4)
"""The number of states that an entry of a floor reports, if it reports nothing else."""
EXTENDED, WAYS = 3, 3
"""So many groups of the plan, the largest with changes, are tried with a state besides, with so many divisions of the
budget."""
LEAST, PARTS = 0.001, 10_000
"""The smallest share of a floor; shares are whole numbers of such parts."""
STEP = 1.02
"""Shares that are tried grow by this factor."""
UNTOLD = 1e-9
"""The little that is said to be known of the lost time, lest a system be singular where no node begins then."""


@dataclass(frozen=True, slots=True)
class Floor:
    """A plan's groups with a floor.

    groups: the floor is the last. shares: their integer shares.
    """

    groups: tuple[Candidate, ...]
    shares: tuple[int, ...]

    @property
    def share(self) -> float:
        """The share of the devices that are in the floor."""
        return self.shares[-1] / sum(self.shares)


def best_floor(
    maker: Maker, chosen: Sequence[Candidate], shares: Floats, problem: ShareProblem, weights: Floats
) -> Floor | None:
    """The floor after which estimates that follow a loss are good at the least price; None if none is cheap enough.

    If none makes them good, the one that makes them best.

    chosen, shares: the groups of the plan without it, and their shares, adding up to 1.
    problem: one of the same wish, of whatever candidates, that looks at the times whose errors count.
    weights: what each of these counts in a mean, adding up to 1.
    """
    wish, (lost, back) = maker.wish, typical_loss(maker.wish.periods)
    sure = sure_tracks(wish, *divided(chosen, shares))
    room = 1 - max(each.least / share for each, share in zip(chosen, shares.tolist(), strict=True))
    left = [maker.without(group, lost) for group in chosen]
    later = problem.looking_at(problem.times[problem.times >= back])
    whole = _informations(problem, chosen, shares)
    lossy = _informations(later, [*left, _untold(lost, wish.periods, left[0])], np.append(shares, 1.0))
    usual = _error(wish, problem, weights, whole)
    best: tuple[float, float, float, Candidate] | None = None
    for added in _floors(maker, chosen):
        least = _least(wish, added)
        if least > room or not is_bridged(wish, [*sure, *added.group.tracks]):
            continue
        over = _errors(wish, problem, weights, whole, _informations(problem, [added], np.ones(1)), usual)
        cheapest = over(least)
        if cheapest > 1 + PRICE or (best is not None and (GOOD, cheapest) >= best[:2]):  # larger ones are dearer
            continue
        rest = _informations(later, [maker.without(added, lost)], np.ones(1))
        after = _errors(wish, later, even(len(later.times)), lossy, rest, usual)
        share = _smallest_useful(least, room, over, after)
        tried = max(GOOD, after(share)), over(share), share, added
        best = tried if best is None or tried[:2] < best[:2] else best
    if best is None:
        return None
    _, _, share, added = best
    integers = np.maximum(1, np.round(np.append((1 - share) * shares, share) * PARTS)).astype(np.int64)
    return Floor((*chosen, added), tuple(integers.tolist()))


def _informations(problem: ShareProblem, groups: Sequence[Candidate], shares: Floats) -> list[Floats]:
    """What some groups with these shares tell of the times that a problem looks at."""
    return [L.copy() for L in replace(problem, candidates=groups).informations(shares)]


def _error(wish: Wish, problem: ShareProblem, weights: Floats, informations: Iterable[Floats]) -> float:
    """The standard error that the wish wants small, in fractions, of one device, if so much is told."""
    variances = problem.variances(informations)
    least = EXACT * float(problem.own.max())
    return sqrt(max(least, float(weights @ variances if wish.objective == "mean" else variances.max())))


def _errors(
    wish: Wish, problem: ShareProblem, weights: Floats, told: Sequence[Floats], added: Sequence[Floats], usual: float
) -> Callable[[float], float]:
    """The error over the usual one, by the share of a floor.

    told, added: what the plan's groups tell without it, and what it tells itself.
    """

    def over(floor: float) -> float:
        both = ((1 - floor) * L + floor * more for L, more in zip(told, added, strict=True))
        return _error(wish, problem, weights, both) / usual

    return over


def _smallest_useful(
    least: float, most: float, over: Callable[[float], float], after: Callable[[float], float]
) -> float:
    """The smallest share of a range that is of use; if it is not cheap enough, the largest that is.

    over: the error with a share over the usual one, which rises with it.
    after: the error after a loss over the usual one, which falls.
    """
    shares = least * STEP ** np.arange(1 + int(log(most / least, STEP)))
    cheap = shares[: max(1, bisect(shares, 1 + PRICE, key=over))]
    return float(cheap[min(len(cheap) - 1, bisect_left(cheap, -GOOD, key=lambda share: -after(share)))])


def _least(wish: Wish, added: Candidate) -> float:
    """The smallest share with which all nodes of a floor are published."""
    scarcest = max(track.count / track.reports for track in added.group.tracks)
    return ceil(max(added.copies * enough_reports(wish.minimum) * scarcest / wish.devices, LEAST) * PARTS) / PARTS


def _untold(time: int, periods: int, like: Candidate) -> Candidate:
    """A candidate that tells next to nothing, of a time."""
    rows = np.zeros((1, periods))
    rows[0, time - 1] = UNTOLD
    return replace(like, ends=np.array([time]), rows=rows, told=rows.T @ rows)


def _floors(maker: Maker, chosen: Sequence[Candidate]) -> Iterator[Candidate]:
    """Groups of some states, by themselves, or of what a group of the plan with changes reports and a state besides.

    The states are at random among times that lie as far apart as a gap may be long, or among all. Changes are also
    tried on nodes twice as wide, each of which begins in the middle of another, so that one of them straddles a loss.
    """
    periods = maker.wish.periods
    spans = [[(track.reports_changes, Span.of(track)) for track in each.group.tracks] for each in chosen]
    changing = [each for each in spans if any(changes for changes, _ in each)][:EXTENDED]
    for apart in sorted({1, allowed_gap(periods)}):
        for reported in (reported for reported in REPORTED if reported <= periods // apart):
            yield from maker.candidates("panel", _spread(apart, periods, reported), (), 1)
        for each in changing:
            states = [*(span for changes, span in each if not changes), *_spread(apart, periods, 1)]
            changes = [span for changes, span in each if changes]
            yield from maker.candidates("mix", states, changes, WAYS)
            if (straddling := _straddling(changes[0])) is not None:
                yield from maker.candidates("mix", states, straddling, WAYS)


def _spread(apart: int, periods: int, reported: int) -> list[Span]:
    """So many states, each at random among the times of one stretch of the horizon that are so many periods apart."""
    count = periods // apart
    cuts = [apart * (count * i // reported) for i in range(reported + 1)]
    return [Span(apart, first, last, 1 if last - first > apart else None) for first, last in pairwise(cuts)]


def _straddling(span: Span) -> list[Span] | None:
    """Nodes twice as wide, in two cadences of which one begins later by half a node; None if there is no room."""
    pair = [
        replace(span, width=2 * span.width, first=first, reported=None)
        for first in (span.first, span.first + span.width)
    ]
    return pair if all(each.count for each in pair) else None
