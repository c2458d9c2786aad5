"""The responses of a group, each on one budget: joint responses of states and changes, and histories.

A group's odds are its budget, so what is left to choose is how its one budget is divided: by the weights of states and
of changes, by the threshold, and by how often symbols agree by chance. No choice is the best for every use; those
that no other beats in both, the noise of states and the noise of changes, are offered, from the one end to the other.

A history tells much once the budget is near the logarithm of the number of possible histories, and next to nothing far
below it. So histories are offered at fewer times as well: every d-th of the calendar, or those of a window.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import product
from math import comb, log
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from changeling_protocol import MOST_SCORE, MOST_TIMES, Agreeing, Group, History, MutationSpace, Odds, Space, StateSpace

from ..estimate import Floats
from ..randomizers.counterpart import RandomizerOffer, agreeing_offers, change_offers, class_variances, state_offers
from .wish import Span, Wish, odds_within, reports_that_tell

CHANCES, ALIKE = tuple(np.geomspace(1e-6, 0.5, 40).tolist()), 0.2
"""The p that are tried: how likely a symbol of the base agrees. Those whose logarithms differ by less are alike."""
WEIGHTS = ((1, 1), (2, 1), (3, 1), (1, 2))
"""The weights that are tried, of states and of changes, if a group has both."""
LEAST_GAP = 1e-4
"""Reports that tell less than this of what they are about are not offered."""
NOISIEST, QUIET = 30.0, 0.1
"""Choices under which one kind of report is NOISIEST times noisier than it could be are not offered, where QUIET counts
as the least noise of a state, and of a change if everybody changed: a tenth of what the answers themselves vary by."""


@dataclass(frozen=True, slots=True)
class JointChoice:
    """The rule by which the slots of a group agree.

    state, change: the randomizers of its tracks, at any odds; None if it has no such tracks.
    weights: of a slot for a state, and of one for a change.
    threshold: τ.
    """

    state: Agreeing | None
    change: Agreeing | None
    weights: tuple[int, int]
    threshold: int

    def bits(self, slots: "JointSlots") -> int:
        """The number of bits that the denominators of p have together, over all slots."""
        each = ((self.state, slots.states), (self.change, slots.changes))
        return sum(made.agreement.denominator.bit_length() * count for made, count in each if made is not None)


_Noisy: TypeAlias = tuple[tuple[float, float], JointChoice]
"""A choice with the noise of its states and of its changes."""


@dataclass(frozen=True, slots=True)
class JointSlots:
    """The reports of a joint group that may tell something.

    states, changes: how many reports of each may tell something. state_space, change_space: what they are about.
    moved: the share of the entries that move on a node of changes.
    conserved: whether changes add up to zero over the answers.
    """

    states: int
    changes: int
    state_space: StateSpace
    change_space: MutationSpace
    moved: float
    conserved: bool


@lru_cache(maxsize=512)
def joint_choices(slots: JointSlots, odds: Odds, most: int) -> tuple[JointChoice, ...]:
    """The choices that no other beats, `most` of them at most, those that are best for states first.

    None if the slots are too many for a device.
    """
    found = list(_evaluated(slots, odds))
    quiet = (QUIET, QUIET * slots.moved)
    limits = [NOISIEST * max(quiet[kind], min((noise[kind] for noise, _ in found), default=0.0)) for kind in (0, 1)]
    front: list[_Noisy] = []
    for noise, choice in sorted(found, key=lambda each: each[0]):
        better = not front or noise[1] < front[-1][0][1] * (1 - 1e-9)
        if better and noise[0] <= limits[0] and noise[1] <= limits[1]:
            front.append((noise, choice))
    return tuple(choice for _, choice in _spaced(front, most))


def _spaced(
    front: list[tuple[tuple[float, float], JointChoice]], most: int
) -> list[tuple[tuple[float, float], JointChoice]]:
    """Choices from the one end of the front to the other, evenly by the logarithm of the noise of changes."""
    if len(front) <= most:
        return front
    along = np.log([noise[1] for noise, _ in front])
    wanted = np.linspace(along[0], along[-1], most)
    return [front[at] for at in sorted({int(np.abs(along - each).argmin()) for each in wanted})]


def _evaluated(slots: JointSlots, odds: Odds) -> Iterator[_Noisy]:
    """Every choice with the noise of its states and of its changes; 0 for what a group does not report."""
    states = _forms(slots.state_space, False) if slots.states else (NONE,)
    changes = _forms(slots.change_space, slots.conserved) if slots.changes else (NONE,)
    weights = WEIGHTS if slots.states and slots.changes else ((1, 1),)
    for state, (heavy, light) in product(states, weights):
        if heavy * slots.states + light * slots.changes > MOST_SCORE:
            continue
        agreements = _agreements(odds, slots, (heavy, light), state, changes)
        for change, of_state, of_change in zip(changes, *agreements, strict=True):
            noises = state.telling(of_state), change.mixed(of_change, slots.moved)
            for at in np.flatnonzero(np.isfinite(noises[0]) & np.isfinite(noises[1])).tolist():
                made = JointChoice(state.made, change.made, (heavy, light), at + 1)
                yield (float(noises[0][at]), float(noises[1][at])), made


def _agreements(
    odds: Odds, slots: JointSlots, weights: tuple[int, int], state: "_Form", changes: Sequence["_Form"]
) -> tuple[Floats, Floats]:
    """P, how likely a slot of states agrees, and one of changes, for every form of changes and threshold from 1 on.

    Each of shape (changes, thresholds).
    """
    (heavy, light), p, gain = weights, np.array([change.chance for change in changes]), odds.favoured / odds.other - 1
    needs = np.arange(1, heavy * slots.states + light * slots.changes + 1)

    def density(without_state: int, without_change: int) -> Floats:
        """1 + (a/b - 1) Pr(τ is reached), if so many slots are known to agree, for every τ."""
        by_score = _scores(_agreed(np.array([state.chance]), slots.states - without_state)[0], heavy)
        by_score = _added(by_score, _agreed(p, slots.changes - without_change), light)
        reaching = np.cumsum(by_score[:, ::-1], axis=1)[:, ::-1]
        reaching = np.concatenate([reaching, np.zeros((len(p), 1))], axis=1)
        known = without_state * heavy + without_change * light
        whole: Floats = 1 + gain * reaching[:, np.clip(needs - known, 0, by_score.shape[1])]
        return whole

    every = density(0, 0)
    of_state = state.chance * density(1, 0) / every if slots.states else np.zeros(every.shape)
    of_change = p[:, None] * density(0, 1) / every if slots.changes else np.zeros(every.shape)
    return of_state, of_change


def _agreed(chances: Floats, slots: int) -> Floats:
    """The chance that so many of the slots agree, independently, for each chance; shape (chances, slots + 1)."""
    ways = np.array([float(comb(slots, agreed)) for agreed in range(slots + 1)])
    agreed = np.arange(slots + 1)
    likely: Floats = ways * chances[:, None] ** agreed * (1 - chances[:, None]) ** (slots - agreed)
    return likely


def _scores(by_count: Floats, weight: int) -> Floats:
    """The distribution of what agreeing slots weigh together, from that of how many they are."""
    by_score = np.zeros(weight * (len(by_count) - 1) + 1)
    by_score[::weight] = by_count
    return by_score


def _added(by_score: Floats, by_count: Floats, weight: int) -> Floats:
    """The distribution of a score and of more slots' weights, added up; shape (chances, scores)."""
    added = np.zeros((len(by_count), len(by_score) + weight * (by_count.shape[1] - 1)))
    for count in range(by_count.shape[1]):
        added[:, weight * count : weight * count + len(by_score)] += by_count[:, count, None] * by_score
    return added


@dataclass(frozen=True, slots=True)
class _Form:
    """A randomizer's noise as a function of P, how likely a slot agrees; mean over the answers, in entries squared.

    made: the randomizer, at any odds; None for none, which has no noise. chance: p.
    base, favoured: the mean square of what a symbol of the base says, and of one that agrees, about the base's mean.
    told: the mean square of what is told.
    """

    made: Agreeing | None
    chance: float
    base: float
    favoured: float
    told: float

    def telling(self, P: Floats) -> Floats:
        """The variance of a report that tells; inf where it tells next to nothing."""
        return self.mixed(P, 1.0)

    def mixed(self, P: Floats, moved: float) -> Floats:
        """The mean variance of reports of which a share tells, and the others are from the base; inf likewise."""
        if self.made is None:
            return np.zeros(len(P))
        p = self.chance
        telling = P * self.favoured + (1 - P) * (self.base - p * self.favoured) / (1 - p)
        square, gap = (1 - moved) * self.base + moved * telling, (P - p) / (1 - p)
        scaled: Floats = np.divide(square, gap**2, out=np.full(len(gap), np.inf), where=gap > LEAST_GAP)
        return scaled - moved * self.told


NONE = _Form(None, 0.0, 0.0, 0.0, 0.0)


@lru_cache(maxsize=256)
def _forms(space: Space, conserved: bool) -> tuple[_Form, ...]:
    """The randomizers that are offered for a space.

    Of those with about the same p, the one that is least noisy where nothing is told, and the one where something is.
    """
    alike: dict[int, list[_Form]] = {}
    for made in {made for chance in CHANCES for made in agreeing_offers(space, chance)}:
        form = _form(made, conserved)
        alike.setdefault(round(log(form.chance) / ALIKE), []).append(form)
    chosen = {
        min(forms, key=noise) for forms in alike.values() for noise in (attrgetter("base"), attrgetter("favoured"))
    }
    return tuple(sorted(chosen, key=lambda form: (form.chance, form.base)))


@lru_cache(maxsize=4096)
def _form(made: Agreeing, conserved: bool) -> _Form:
    """The form of its noise, from that of its reports at two odds."""
    space, p = made.space, float(made.agreement)
    z, m = space.answers, space.size
    told = 2 / z if space.reports_changes else ((1 - 1 / m) ** 2 + (z - 1) / m**2) / z
    squares, agreements = [], []
    for odds in (Odds(3, 1), Odds(9, 1)):
        P = p * odds.favoured / (p * odds.favoured + (1 - p) * odds.other)
        variance = class_variances(made.at_odds(odds), conserved).moved
        squares.append((variance + told) * ((P - p) / (1 - p)) ** 2)
        agreements.append(P)
    favoured = squares[0] + (squares[1] - squares[0]) * (1 - agreements[0]) / (agreements[1] - agreements[0])
    against = squares[0] - (squares[1] - squares[0]) * agreements[0] / (agreements[1] - agreements[0])
    return _Form(made, p, p * favoured + (1 - p) * against, favoured, told)


def best_state(answers: int, null: bool, budget: Decimal, reports: int) -> RandomizerOffer | None:
    """The best randomizer for reports of a state; None if the budget is so small that they would say nothing.

    answers: z.
    null: whether NULL is one of the states.
    budget: for all reports together, in nats.
    reports: how many an entry sends.
    """
    odds = odds_within(budget, Decimal(reports))
    if odds is None:
        return None
    return min(state_offers(StateSpace(answers, null), odds), key=lambda offer: offer.variances.came, default=None)


def best_change(wish: Wish, span: Span, budget: Decimal, moved: float) -> RandomizerOffer | None:
    """The best randomizer for reports of changes; None if the budget is so small that they would say nothing.

    span: the nodes that are reported on.
    budget: for all of them together, in nats.
    moved: the share of the entries that change their answer over a node.
    """
    offers: list[RandomizerOffer] = []
    told_moves = wish.closed and span.first > 0
    for kind in change_offers():
        odds = odds_within(budget, reports_that_tell(wish, span, kind.unit))
        if odds is not None:
            offers += kind.offers(MutationSpace(wish.answers, null=not told_moves), odds, moved, wish.closed)
    closed = wish.closed
    return min(offers, key=lambda offer: (offer.conserved if closed else offer.variances).mixed(moved), default=None)


HISTORY_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Distances of the times of a history, in periods."""
LEAST_TIMES = 2
"""With a single time a history is the report of a state, as a panel's."""
LEAST_TOLD = 0.02
"""A history that is told with a smaller chance tells less than other groups."""
MOST_OPEN_TIMES = 64
"""In an open cohort each time is a track of its own, and more of them make estimates slow."""
HISTORY_PHASES = 16
"""Histories of one width begin at so many different times at most, evenly."""
WINDOWS = (2, 4, 8)
"""A window is this part of the horizon, at most; they begin at every half of one."""


def history_groups(wish: Wish, odds: Odds, times: Iterable[range] | None = None) -> Iterator[Group]:
    """The history groups that are worth trying for a wish, at these odds; at all times that are, or at some."""
    for periods in _times(wish.periods) if times is None else times:
        if (group := history_group(wish, periods, odds)) is not None:
            yield group


def history_group(wish: Wish, periods: range, odds: Odds) -> Group | None:
    """The group that reports the history at the ends of these periods; None if it would tell next to nothing."""
    if not LEAST_TIMES <= len(periods) <= (MOST_TIMES if wish.closed else MOST_OPEN_TIMES):
        return None
    history = History.of(odds, periods, wish.constraint, wish.calendar, wish.closed)
    limits = history.limits
    counted, within = limits.changes > 0, limits.span == len(periods) - 1
    if wish.closed and not ((counted or within) if limits.either else (counted and within)):
        return None  # the last reports would always be the same one, and tell nothing more
    group = Group.of_history(history, wish.answers)
    return group if group.histories.told >= LEAST_TOLD else None


def _times(periods: int) -> Iterator[range]:
    """Every d-th time of the whole calendar, beginning with each of the first d, and of windows."""
    for width in (width for width in HISTORY_WIDTHS if LEAST_TIMES * width <= periods):
        for first in sorted({1 + width * phase // HISTORY_PHASES for phase in range(HISTORY_PHASES)}):
            yield range(first, periods + 1, width)
    for part in WINDOWS:
        length = periods // part
        for before in range(0, periods - length + 1, max(1, length // 2)):
            for width in (width for width in HISTORY_WIDTHS if LEAST_TIMES * width <= length):
                yield range(before + width, before + length + 1, width)
