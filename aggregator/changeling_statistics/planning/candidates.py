"""The groups that a plan may be made of: how one is made for a wish, and which are worth trying.

An entry draws one group and spends all there. A group is one joint response, with the whole budget for everything it
says; only what has more slots than a device counts gives each report a budget of its own. There is a first look at all
families, and a closer one at those that are of use:

- A panel reports the state at r random nodes, one in each of r stretches of the horizon.
- A cadence reports changes over the nodes of one width, all of them or some at random; from the start or, in a closed
  cohort, from after the first period.
- A hierarchy is several cadences; in a closed cohort beside the state at the end of the first period.
- A mix reports states as a panel does, and changes as well.
- A history reports all states at some times, or a possible history that is none of its own (`histories`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise, product
from math import sqrt

import numpy as np
from changeling_protocol import (
    MOST_EPSILON,
    MOST_JOINT_BITS,
    Group,
    History,
    Joint,
    KaryChange,
    MutationSpace,
    Odds,
    StateSpace,
    Track,
    most_telling,
)

from ..estimate import Floats
from ..estimation.entries import GroupEdges, persistence
from ..estimation.network import Indices
from ..estimation.weights import whitened
from .responses import JointChoice, JointSlots, best_change, best_state, history_groups, joint_choices
from .wish import LEAST_EPSILON, Span, Wish

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
        if self.about > 1 or self.wish.most_later() == 0:  # reports that are all the same have a singular covariance
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
            return None if offer is None else Group(tuple(span.track(offer.make()) for span in states))
        if wish.epsilon / len(changes) < LEAST_EPSILON:
            return None
        offers = [best_change(wish, span, wish.epsilon / len(changes), self._moved(span.width)) for span in changes]
        made = [span.track(offer.make()) for span, offer in zip(changes, offers, strict=True) if offer is not None]
        return Group(tuple(made)) if len(made) == len(changes) else None

    def _still(self, states: Sequence[Span], changes: Sequence[Span]) -> Iterator[Group]:
        """States on the whole budget, and changes that nobody may make, which cost nothing and connect the times."""
        if self.about > 1:
            return
        state = self._alone(states, ())
        offers = [best_change(self.wish, span, self.wish.epsilon, 0.0) for span in changes]
        made = [span.track(offer.make()) for span, offer in zip(changes, offers, strict=True) if offer is not None]
        if state is not None and made:
            yield Group((*state.tracks, *made))

    def _slots(self, span: Span) -> int:
        """How many reports on these nodes may tell of a change."""
        wish = self.wish
        track = span.track(KaryChange(MutationSpace(wish.answers), Odds(2, 1)))
        return most_telling(track, wish.calendar, wish.constraint, wish.closed)

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
