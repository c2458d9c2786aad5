"""A group that a plan may be made of, and how one is made for a wish. An entry draws one group and spends all there.

A group is one joint response, with the whole budget for everything it says. Only what has more slots than a device
counts gives each report a budget of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
from changeling_protocol import (
    MOST_EPSILON,
    Group,
    Joint,
    KaryChange,
    MutationSpace,
    Odds,
    StateSpace,
    Track,
    most_telling,
)

from ..estimate import Floats
from ..estimation.entry_covariance import GroupEdges
from ..estimation.expected import persistence
from ..estimation.network import Indices
from ..estimation.weights import whitened
from .bridges import edges_without
from .joint_choice import JointChoice, Slots, joint_choices
from .losses import Span
from .randomizer_choice import best_change, best_state
from .wish import LEAST_EPSILON, Wish

MOST_JOINT_SLOTS = 32
"""A group with more slots than that gives each report a budget of its own: a device would take long over it."""


@dataclass(frozen=True)
class Candidate:
    """A group that a plan may be made of.

    kind: panel, changes, hierarchy or mix.
    group: its tracks, with a share of 1.
    ends: when each of its E edges ends, rising, shape (E,).
    rows: R over the times 1..T, whitened, so that R'R is what an entry tells, by the edges' ends, shape (E, T).
    told: R'R, shape (T, T). Of rows and told only the one that the wish takes is kept: rows online, told in the end.
    family: which candidates are like it; they have equal families.
    """

    kind: str
    group: Group
    ends: Indices
    rows: Floats
    told: Floats
    family: object = field(default=None)


class Maker:
    """Makes candidates for a wish.

    wish: what they are for.
    """

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self._odds = Odds.within(min(wish.epsilon * (1 - Decimal("1e-12")), Decimal(MOST_EPSILON)))

    def candidates(
        self, kind: str, states: Sequence[Span], changes: Sequence[Span], most: int, family: object = None
    ) -> Iterator[Candidate]:
        """The groups that report states and changes on these nodes, with `most` ways to divide the budget at most.

        A state is reported once in each of its spans. There are none if nothing can be told.
        """
        for group in self._groups(states, [span for span in changes if self._slots(span)], most):
            yield self._candidate(kind, GroupEdges.of(group), family)

    def without(self, candidate: Candidate, lost: int) -> Candidate:
        """What is left of a candidate if no node is published that ends with a period."""
        return self._candidate(candidate.kind, edges_without(candidate.group, lost), candidate.family)

    def _candidate(self, kind: str, edges: GroupEdges, family: object) -> Candidate:
        wish = self.wish
        whole = whitened(edges, wish.answers, wish.expected, wish.closed, wish.periods)
        rows, nothing = np.ascontiguousarray(whole.rows(wish.periods)[:, 1:]), np.zeros((0, 0))
        if wish.retrospective:
            return Candidate(kind, edges.group, edges.end, nothing, rows.T @ rows, family)
        return Candidate(kind, edges.group, edges.end, rows, nothing, family)

    def _groups(self, states: Sequence[Span], changes: Sequence[Span], most: int) -> Iterator[Group]:
        telling = [self._slots(span) for span in changes]
        if len(states) + sum(telling) == 0:
            return
        if len(states) + sum(telling) == 1 or len(states) + sum(telling) > MOST_JOINT_SLOTS:
            if (alone := self._alone(states, changes)) is not None:
                yield alone
            return
        slots = Slots(
            states=len(states),
            changes=sum(telling),
            state_space=StateSpace(self.wish.answers, null=not self.wish.closed),
            change_space=self._mutations(changes),
            moved=self._moved(min((span.width for span in changes), default=1)),
            conserved=self.wish.closed,
        )
        for choice in joint_choices(slots, self._odds, most):
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
        return Group.jointly(
            tracks,
            Joint(
                self._odds,
                choice.threshold,
                (heavy,) * len(states) + (light,) * len(changes),
                (1,) * len(states) + tuple(telling),
            ),
        )

    def _alone(self, states: Sequence[Span], changes: Sequence[Span]) -> Group | None:
        """The group with a budget for each report: states or changes, not both; None if the budget is too small."""
        wish = self.wish
        if states and changes:
            return None
        if states:
            offer = best_state(wish.answers, not wish.closed, wish.epsilon, len(states))
            return None if offer is None else Group(tuple(span.track(offer.make()) for span in states))
        if wish.epsilon / len(changes) < LEAST_EPSILON:
            return None
        offers = [best_change(wish, span, wish.epsilon / len(changes), self._moved(span.width)) for span in changes]
        made = [span.track(offer.make()) for span, offer in zip(changes, offers, strict=True) if offer is not None]
        return Group(tuple(made)) if len(made) == len(changes) else None

    def _slots(self, span: Span) -> int:
        """How many reports on these nodes may tell of a change."""
        wish = self.wish
        if span.count < 1:
            return 0
        track = span.track(KaryChange(MutationSpace(wish.answers), Odds(2, 1)))
        return most_telling(track, wish.calendar, wish.constraint, wish.closed)

    def _mutations(self, changes: Sequence[Span]) -> MutationSpace:
        """What changes are about: moves alone if everybody has an answer by the time they are reported."""
        return MutationSpace(self.wish.answers, null=not (self.wish.closed and all(span.first > 0 for span in changes)))

    def _moved(self, width: int) -> float:
        """The share of the entries with an answer that have another one so many periods later."""
        z = self.wish.answers
        return float((1 - 1 / z) * (1 - persistence(z, self.wish.expected) ** width))
