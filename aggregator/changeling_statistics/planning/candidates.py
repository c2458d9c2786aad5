"""The groups that a plan may be made of: how one is made, how it divides its budget, and which are worth trying.

An entry draws one group and spends all there. A group is one joint response, with the whole budget for everything it
says; only what has more slots than a device counts gives each report a budget of its own. A joint group's odds are its
budget, so what is left to choose is how the budget is divided: by the weights of states and of changes, by the
threshold, and by how often symbols agree by chance. Choices that no other beats in both, the noise of states and the
noise of changes, are offered, from the one end to the other. There is a first look at all families, and a closer one at
those that are of use:

- A panel reports the state at r random nodes, one in each of r stretches of the horizon.
- A cadence reports changes over the nodes of one width, all of them or some at random; from the start or, in a closed
  cohort, from after the first period.
- A hierarchy is several cadences; in a closed cohort beside the state at the end of the first period.
- A mix reports states as a panel does, and changes as well.
- A history reports all states at some times, or a possible history that is none of its own. It tells much once the
  budget is near the logarithm of the number of possible histories, and next to nothing far below it; so it is also
  offered at fewer times, every d-th of the calendar, or those of a window.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise, product
from math import comb, log, sqrt
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from changeling_protocol import (
    MOST_EPSILON,
    MOST_JOINT_BITS,
    MOST_SCORE,
    MOST_TIMES,
    Agreeing,
    Group,
    History,
    Joint,
    MutationSpace,
    Odds,
    Randomizer,
    Space,
    StateSpace,
    Track,
    most_telling,
)

from ..estimate import Floats, Indices
from ..estimation.entries import GroupEdges, persistence
from ..estimation.network import whitened
from ..randomizers.counterpart import agreeing_offers, change_offers, class_variances, state_offers
from .prediction import ANY_CHANGE, LEAST_EPSILON, Span, Wish, odds_within, reports_that_tell

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
    weights: of a slot for a state, and of one for a change. threshold: τ.
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


def _spaced(front: list[_Noisy], most: int) -> list[_Noisy]:
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
        (of_states,) = _weighing(_agreed(np.array([state.chance]), slots.states - without_state), heavy)
        of_changes = _weighing(_agreed(p, slots.changes - without_change), light)
        by_score = np.array([np.convolve(of_states, each) for each in of_changes])
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


def _weighing(by_count: Floats, weight: int) -> Floats:
    """The distributions of what agreeing slots weigh together, from those of how many they are, (chances, scores)."""
    by_score = np.zeros((len(by_count), weight * (by_count.shape[1] - 1) + 1))
    by_score[:, ::weight] = by_count
    return by_score


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


def best_state(answers: int, null: bool, budget: Decimal, reports: int) -> Randomizer | None:
    """The best randomizer for reports of a state; None if the budget is so small that they would say nothing.

    answers: z. null: whether NULL is one of the states.
    budget: for all reports together, in nats. reports: how many an entry sends.
    """
    odds = odds_within(budget, Decimal(reports))
    if odds is None:
        return None
    offers = state_offers(StateSpace(answers, null), odds)
    return min(offers, key=lambda offer: class_variances(offer, False).came, default=None)


def best_change(wish: Wish, span: Span, budget: Decimal, moved: float) -> Randomizer | None:
    """The best randomizer for reports of changes; None if the budget is so small that they would say nothing.

    span: the nodes that are reported on. budget: for all of them together, in nats.
    moved: the share of the entries that change their answer over a node.
    """
    offers: list[Randomizer] = []
    told_moves = wish.closed and span.first > 0
    for kind in change_offers():
        odds = odds_within(budget, reports_that_tell(wish, span, kind.unit))
        if odds is not None:
            offers += kind.offers(MutationSpace(wish.answers, null=not told_moves), odds, moved, wish.closed)
    return min(offers, key=lambda offer: class_variances(offer, wish.closed).mixed(moved), default=None)


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


TOGETHER = (1, 2, 3, 5, 10, 30, 100)
"""About how many questions an entry reports, where there are as many; or about all."""

MOST_SLOTS_TOGETHER = 128
"""The most slots of a group about several questions: most are alike, and a device counts them together."""

MOST_JOINT_SLOTS, MOST_PANEL_SLOTS = 32, 64
"""A group with more slots than that gives each report a budget of its own: a device would take long over it. States
that are one track take less of it."""


@dataclass(frozen=True)
class Candidate:
    """A group that a plan may be made of.

    kind: panel, changes, hierarchy, mix or history.
    group: its tracks, with a share of 1.
    ends: when each of its E edges ends, rising, shape (E,).
    rows: R over the times 1..T, whitened, so that R'R is what an entry tells, by the edges' ends, shape (E, T).
    told: R'R, shape (T, T). Of rows and told only the one that the wish takes is kept: rows online, told in the end.
    least: the share of the devices from which on all its nodes are expected to have reports enough to be published.
    family: which candidates are like it; they have equal families.
    about: about how many of the wish's questions its entries report. Its group is then the view of one of them, and
    what it tells is scaled by the chance that this one is among an entry's questions.
    copies: into how many groups of a plan its entries are divided, so that they are about each question alike.
    """

    kind: str
    group: Group
    ends: Indices
    rows: Floats
    told: Floats
    least: float
    family: object = field(default=None)
    about: int = 1
    copies: int = 1

    @property
    def tracks(self) -> int:
        """How many tracks of a plan its groups have together."""
        return len(self.group.tracks) * self.about * self.copies

    def groups(self, share: int, questions: int) -> list[Group]:
        """The groups of a plan that the candidate stands for.

        share: that of all of them together, over the number of questions.
        """
        if questions == 1:
            return [replace(self.group, share=share)]
        return [self._group(first, questions, share * questions // self.copies) for first in range(self.copies)]

    def _group(self, first: int, questions: int, share: int) -> Group:
        """The group about so many questions from the first on; after the last comes the first of all."""
        tracks = (
            replace(track, question=(first + copy) % questions)
            for copy in range(self.about)
            for track in self.group.tracks
        )
        return Group(tuple(tracks), share, self.group.joint)


class Maker:
    """Makes candidates for a wish.

    wish: what they are for. about: how many of its questions an entry reports on, in one joint response.
    """

    def __init__(self, wish: Wish, about: int = 1) -> None:
        self.wish, self.about = wish, about
        self._odds = Odds.within(min(wish.epsilon * (1 - Decimal("1e-12")), Decimal(MOST_EPSILON)))
        self._scarce = wish.minimum / wish.devices * (1 - 1e-9)
        self._copies = wish.questions if about < wish.questions else 1

    def candidates(
        self, kind: str, states: Sequence[Span], changes: Sequence[Span], most: int, family: object = None
    ) -> Iterator[Candidate]:
        """The groups that report states and changes on these nodes, with `most` ways to divide the budget at most.

        There are none if nothing can be told, or not all nodes would be published if all devices were in the group.
        """
        changes = [span for span in changes if span.count]
        scarcest = max((span.count / span.reports for span in (*states, *changes)), default=0)
        if scarcest * self._scarce * self._copies > 1:
            return
        told = [span for span in changes if self._slots(span)]
        groups = self._still(states, changes) if states and changes and not told else self._groups(states, told, most)
        for group in groups:
            yield self._candidate(kind, GroupEdges.of(group), family)

    def histories(self, times: Iterable[range] | None = None) -> Iterator[Candidate]:
        """The history groups of some times, or of those that are worth trying."""
        if self.about > 1:
            return
        for group in history_groups(self.wish, self._odds, times):
            yield self._candidate("history", GroupEdges.of(group), None)

    def without(self, candidate: Candidate, lost: int) -> Candidate:
        """The rest of a candidate if no node is published that ends with a period."""
        return self._candidate(candidate.kind, GroupEdges.of(candidate.group).without(lost), candidate.family)

    def _candidate(self, kind: str, edges: GroupEdges, family: object) -> Candidate:
        wish, copies = self.wish, self._copies
        whole = whitened(edges, wish.answers, wish.expected, wish.closed, wish.periods)
        rows, nothing = np.ascontiguousarray(whole.rows(wish.periods)[:, 1:]), np.zeros((0, 0))
        rows *= sqrt(self.about / wish.questions)
        least = copies * self._scarce * max(track.count / track.reports for track in edges.group.tracks)
        rows, told = (nothing, rows.T @ rows) if wish.retrospective else (rows, nothing)
        return Candidate(kind, edges.group, edges.end, rows, told, least, family, self.about, copies)

    def _groups(self, states: Sequence[Span], changes: Sequence[Span], most: int) -> Iterator[Group]:
        asked, telling = sum(span.reports for span in states), [self._slots(span) for span in changes]
        slots_in_all = (asked + sum(telling)) * self.about
        most_slots = MOST_PANEL_SLOTS if len(states) == 1 and not changes else MOST_JOINT_SLOTS
        if self.about > 1:
            most_slots = MOST_SLOTS_TOGETHER
        if slots_in_all == 0:
            return
        if slots_in_all == 1 or slots_in_all > most_slots:
            if (alone := self._alone(states, changes)) is not None:
                yield alone
            return
        slots = JointSlots(
            states=asked * self.about,
            changes=sum(telling) * self.about,
            state_space=StateSpace(self.wish.answers, null=not self.wish.closed),
            change_space=self._mutations(changes),
            moved=self._moved(min((span.width for span in changes), default=1)),
            conserved=self.wish.closed,
        )
        for choice in joint_choices(slots, self._odds, most):
            if choice.bits(slots) <= MOST_JOINT_BITS:
                yield self._jointly(states, changes, telling, choice)

    def _jointly(
        self, states: Sequence[Span], changes: Sequence[Span], telling: Sequence[int], choice: JointChoice
    ) -> Group:
        tracks: list[Track] = []
        if choice.state is not None:
            tracks += [span.track(choice.state) for span in states]
        if choice.change is not None:
            tracks += [span.track(choice.change) for span in changes]
        heavy, light = choice.weights
        joint = Joint(
            self._odds,
            choice.threshold,
            ((heavy,) * len(states) + (light,) * len(changes)) * self.about,
            (*(span.reports for span in states), *telling) * self.about,
        )
        whole = [replace(track, question=copy) for copy in range(self.about) for track in tracks]
        return Group.jointly(whole, joint).about(0)

    def _alone(self, states: Sequence[Span], changes: Sequence[Span]) -> Group | None:
        """The group with a budget for each report: states or changes, not both; None if the budget is too small."""
        wish = self.wish
        if (states and changes) or self.about > 1:
            return None
        if states:
            offer = best_state(wish.answers, not wish.closed, wish.epsilon, sum(span.reports for span in states))
            return None if offer is None else Group(tuple(span.track(offer) for span in states))
        if wish.epsilon / len(changes) < LEAST_EPSILON:
            return None
        offers = [best_change(wish, span, wish.epsilon / len(changes), self._moved(span.width)) for span in changes]
        made = [span.track(offer) for span, offer in zip(changes, offers, strict=True) if offer is not None]
        return Group(tuple(made)) if len(made) == len(changes) else None

    def _still(self, states: Sequence[Span], changes: Sequence[Span]) -> Iterator[Group]:
        """States on the whole budget, and changes that nobody may make, which cost nothing and connect the times."""
        if self.about > 1:
            return
        state = self._alone(states, ())
        offers = [best_change(self.wish, span, self.wish.epsilon, 0.0) for span in changes]
        made = [span.track(offer) for span, offer in zip(changes, offers, strict=True) if offer is not None]
        if state is not None and made:
            yield Group((*state.tracks, *made))

    def _slots(self, span: Span) -> int:
        """How many reports on these nodes may tell of a change."""
        wish = self.wish
        return most_telling(span.track(ANY_CHANGE), wish.calendar, wish.constraint, wish.closed)

    def _mutations(self, changes: Sequence[Span]) -> MutationSpace:
        """The mutations that changes are about: moves alone if everybody has an answer when they are reported."""
        return MutationSpace(self.wish.answers, null=not (self.wish.closed and all(span.first > 0 for span in changes)))

    def _moved(self, width: int) -> float:
        """The share of the entries with an answer that have another one so many periods later."""
        z = self.wish.answers
        return float((1 - 1 / z) * (1 - persistence(z, self.wish.expected) ** width))


PANELS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)
"""How many states a panel reports, one in each of so many stretches."""
MANY_STATES = (24, 32, 48, MOST_PANEL_SLOTS)
"""How many states a panel reports at random times, or at all."""
MIXED = (1, 2, 3, 4, 6, 8)
"""How many states a mix reports."""
PHASES, MIX_PHASES = 8, 4
"""A stretch of a panel, or of a mix, is cut into at most so many parts, of which an entry uses one and the same: its
reports are evener spaced."""
STEADY, EARLY = 1.0, (1.6,)
"""Stretches may grow with a power of time, as an online estimate has little to go by at first."""
FIRST_STRETCHES = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
"""The shares of the horizon, from its start, in which some entries may report their state once."""
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""The widths of nodes of changes, in periods."""
RANDOM, RANDOM_WIDTHS = (2, 8, 32), (1, 2, 4, 8)
"""Numbers of random nodes that changes may be reported on, and their widths."""
MIXED_WIDTHS = (1, 2, 4, 8, 16, 32)
"""The widths of nodes of changes in mixes."""
BRANCHINGS, LAYERS = (3, 5, 8, 16), (2, 3)
"""The shapes of hierarchies."""
COARSE, FINE = 3, 8
"""The number of ways in which a mix divides its budget at first, and where it turned out to be of use."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A family of mixes.

    states: how many it reports. power: of time, with which its stretches grow. width: of its nodes of changes.
    reported: on how many of them an entry reports; None for all. phases: into how many parts stretches are cut.
    ways: how many ways to divide the budget.
    """

    states: int
    power: float
    width: int
    reported: int | None = None
    phases: int = 1
    ways: int = COARSE


def first_look(maker: Maker) -> Iterator[Candidate]:
    """Every kind of group in a few forms."""
    wish = maker.wish
    yield from _panels(maker)
    yield from maker.histories()
    later = int(wish.closed)
    yield from _cadences(maker)
    for branching, layers in product(BRANCHINGS, LAYERS):
        if 2 * branching ** (layers - 1) <= wish.periods:
            spans = [Span(branching**i, later, wish.periods) for i in range(layers)]
            yield from maker.candidates("hierarchy", [Span(1, 0, 1)] if wish.closed else (), spans, 2)
    for states, width in product(MIXED, MIXED_WIDTHS):
        if (states <= 2 or width == 1) and max(2 * width, states) <= wish.periods:
            yield from _mixes(maker, Mix(states, STEADY, width))
    if wish.closed and wish.periods > 1:
        for width in (width for width in MIXED_WIDTHS if 2 * width <= wish.periods):
            changes = (Span(width, later, wish.periods),)
            yield from maker.candidates("mix", (Span(1, 0, 1),), changes, COARSE, Mix(0, STEADY, width))


def closer_look(maker: Maker, used: Iterable[Candidate]) -> Iterator[Candidate]:
    """More of the families of mixes that were of use: finer divisions, phases, growing stretches, fewer nodes."""
    wish = maker.wish
    families = {each.family for each in used if isinstance(each.family, Mix)}
    for mix in sorted(families, key=lambda mix: (mix.states, mix.width)):
        if mix.states == 0:
            changes = (Span(mix.width, 1, wish.periods),)
            yield from maker.candidates("mix", (Span(1, 0, 1),), changes, FINE, mix)
            continue
        fine = replace(mix, ways=FINE)
        yield from _mixes(maker, fine)
        for power in _powers(wish.retrospective):
            for phases in {1, MIX_PHASES} - ({1} if power == STEADY else set()):
                yield from _mixes(maker, replace(fine, power=power, phases=phases, ways=COARSE))
        for reported in RANDOM:
            if reported < (wish.periods - int(wish.closed)) // mix.width:
                yield from _mixes(maker, replace(fine, reported=reported, ways=1))


def stretched(maker: Maker, used: Iterable[Candidate], factor: int) -> Iterator[Candidate]:
    """Candidates of a calendar with wider periods, as they would be with periods `factor` times as short.

    Their changes are reported on nodes as wide as they were, and on ones of as many periods as they had, or a few.
    """
    periods, closed, made = maker.wish.periods, maker.wish.closed, set[object]()
    yield from maker.candidates("panel", (Span(1, 0, periods, 1),), (), 1)  # these tell all periods, whatever the rest
    at_first = [Span(1, 0, 1)] if closed else []
    yield from maker.candidates("mix" if closed else "changes", at_first, (Span(1, int(closed), periods),), 1)
    for each in used:
        if isinstance(each.group.joint, History):
            told = each.group.joint.periods
            longer = range(told.start * factor, min(periods, told[-1] * factor) + 1, told.step * factor)
            yield from maker.histories([longer])
            continue
        spans = [(track.reports_changes, Span.of(track)) for track in each.group.tracks]
        states = tuple(_stretched(span, factor, periods, 1) for changes, span in spans if not changes)
        for finer in sorted({1, 2, 4, factor}):
            changes = tuple(_stretched(span, factor, periods, span.width * finer) for told, span in spans if told)
            if (states, changes) not in made and all(span.count for span in changes):
                made.add((states, changes))
                yield from maker.candidates(each.kind, states, changes, FINE)


def _stretched(span: Span, factor: int, periods: int, width: int) -> Span:
    """The span over as long a time. One that begins after the first period, or ends with the last, still does."""
    first = span.first * factor if span.first > 1 else span.first
    last = span.last * factor if (span.last + 1) * factor <= periods else periods
    if span.last == 1:
        return Span(width, 0, 1)
    reported = span.reported
    if span.count == 1 and width == 1:
        reported = 1
    return Span(width, first, last, reported)


def _panels(maker: Maker) -> Iterator[Candidate]:
    wish = maker.wish
    for states, power in product(PANELS, _powers(wish.retrospective)):
        if states == 1 and power != STEADY:
            continue
        phases = next((p for p in (PHASES, PHASES // 2, 2, 1) if states > 1 and states * p <= wish.periods), 1)
        for stretches in _stretches(wish.periods, states, power, phases):
            yield from maker.candidates("panel", stretches, (), 1)
    for states in (states for states in MANY_STATES if states < wish.periods):
        yield from maker.candidates("panel", (Span(1, 0, wish.periods, states),), (), 1)
    if PANELS[-1] < wish.periods <= MOST_PANEL_SLOTS:
        yield from maker.candidates("panel", (Span(1, 0, wish.periods),), (), 1)
    if not wish.retrospective:
        for last in sorted({max(1, round(wish.periods * share)) for share in FIRST_STRETCHES} - {wish.periods}):
            yield from maker.candidates("panel", _stretch(0, last), (), 1)


def _cadences(maker: Maker) -> Iterator[Candidate]:
    wish, later = maker.wish, int(maker.wish.closed)
    for width in (width for width in WIDTHS if width <= wish.periods):
        for first in sorted({later, width if wish.closed else 0}):
            yield from maker.candidates("changes", (), (Span(width, first, wish.periods),), 1)
    for width, reported in product(RANDOM_WIDTHS, RANDOM):
        if reported < (wish.periods - later) // width:
            yield from maker.candidates("changes", (), (Span(width, later, wish.periods, reported),), 1)


def _mixes(maker: Maker, mix: Mix) -> Iterator[Candidate]:
    wish = maker.wish
    changes = (Span(mix.width, int(wish.closed), wish.periods, mix.reported),)
    family = replace(mix, reported=None, phases=1, power=STEADY, ways=COARSE)
    for stretches in _stretches(wish.periods, mix.states, mix.power, mix.phases):
        yield from maker.candidates("mix", stretches, changes, mix.ways, family)


def _powers(retrospective: bool) -> tuple[float, ...]:
    return (STEADY,) if retrospective else (STEADY, *EARLY)


def _stretches(periods: int, pieces: int, power: float, phases: int) -> Iterator[list[Span]]:
    """The stretches of (0, periods] in each of which a state is reported once, for each phase; none if too many."""
    if pieces * phases <= periods:
        cuts = _cut(periods, pieces * phases, power)
        for phase in range(phases):
            yield [span for start, end in list(pairwise(cuts))[phase::phases] for span in _stretch(start, end)]


def _stretch(start: int, end: int) -> list[Span]:
    return [Span(1, start, end, 1) if end - start > 1 else Span(1, start, end)]


def _cut(periods: int, pieces: int, power: float) -> list[int]:
    """The bounds of some pieces of (0, periods], each at least one period long, that grow with a power of time."""
    cuts = [round(periods * (i / pieces) ** power) for i in range(pieces + 1)]
    for i in range(1, pieces):
        cuts[i] = max(cuts[i], cuts[i - 1] + 1)
    for i in range(pieces - 1, 0, -1):
        cuts[i] = min(cuts[i], cuts[i + 1] - 1)
    return cuts
