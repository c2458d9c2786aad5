"""The surveys that are audited, and in which two ways an app lives whose transcripts are then told apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import permutations, product
from typing import TypeAlias

from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
)

from tests.enumeration import all_inputs, changelogs, enumerated_loss, probability
from tests.joint_enumeration import defined_law

from .client_audit_bound import lower_bound
from .client_audit_transcripts import States

Pair: TypeAlias = tuple[States, States]
Law: TypeAlias = dict[tuple[int, ...], Fraction]
"""What an entry may send, the symbols track by track, and how likely it is."""


@dataclass(frozen=True)
class Case:
    """A survey, small enough that its exact loss is known by enumeration."""

    survey: Survey

    @cached_property
    def exact(self) -> Decimal:
        """The largest log ratio of the probabilities of any transcript under any two changelogs, in nats."""
        return enumerated_loss(self.survey.plan, self.survey.calendar, self.survey.constraint)

    def worst_pair(self, count: int) -> Pair:
        """The two changelogs that so many transcripts of each should tell apart best, by their exact law."""
        survey = self.survey
        every = sorted(changelogs(len(survey.answers), survey.calendar, survey.constraint), reverse=True)
        laws = {states: law(survey.plan.groups[0], states) for states in every}
        one, other = max(permutations(every, 2), key=lambda pair: _expected(laws[pair[0]], laws[pair[1]], count))
        return one[1:], other[1:]

    @property
    def restless_pair(self) -> Pair:
        """Two apps that say something new in every period, the one from the first on, the other from the second."""
        periods = range(self.survey.calendar.periods)
        return tuple(1 - period % 2 for period in periods), tuple(period % 2 for period in periods)


def _case(answers: Sequence[str], track: Track, constraint: AtMost, joint: Joint | None = None) -> Case:
    return Case(
        Survey.at_cost(
            question="Do you use the dark theme?",
            answers=answers,
            calendar=Calendar(1_800_000_000, 60, track.last),
            constraint=constraint,
            plan=ReleasePlan((Group((track,)) if joint is None else Group.jointly([track], joint),)),
            skew=5,
            spread=10,
            grace=30 * 86_400,
            minimum=1,
        )
    )


KRR = _case(("yes",), Track(1, KaryResponse(MutationSpace(1, repeats=True), Odds(5, 2)), 0, 3), AtMost(1))
"""The papers' own: k-RR on all (z+1)² pairs, afresh in each of three periods, for one mutation: 2κε₀ = 2 ln 2.5."""
JOINT = _case(
    ("yes", "no"),
    Track(1, KaryChange(MutationSpace(2), Odds(2, 1)), 0, 2),
    AtMost(2),
    Joint(Odds(5, 1), threshold=1, weights=(1,), slots=(2,)),
)
"""One budget of ln 5 for two mutations in two periods: 5:1 where any of the two reports agrees."""
SIGNED = _case(("yes",), Track(1, SignedSubset(MutationSpace(1), Odds(5, 2)), 0, 3), AtMost(1))
"""Signed subsets in three periods, for one mutation: κλ = ln 2.5."""
STATES = _case(("yes",), Track(1, KaryResponse(StateSpace(1), Odds(5, 2)), 0, 1), AtMost(1))
"""One report of a state: ln 2.5."""
CASES = {"krr": KRR, "joint": JOINT, "signed": SIGNED, "states": STATES}


def law(group: Group, states: States) -> Law:
    """The exact probability of every transcript of an entry with these states at the ends of periods 0 to T."""
    inputs = all_inputs(group, states)
    if group.joint is not None:
        return defined_law(group, inputs)
    asked = [(track.randomizer, true) for track, trues in zip(group.tracks, inputs, strict=True) for true in trues]
    chances: Law = {(): Fraction(1)}
    for randomizer, true in asked:
        chances = {
            (*sent, symbol): chance * probability(randomizer, symbol, true)
            for (sent, chance), symbol in product(chances.items(), range(randomizer.symbols))
        }
    return chances


def _expected(one: Law, other: Law, count: int) -> float:
    """The lower bound if the transcripts came as often as their law says, for the best event."""
    best, p, q = 0.0, Fraction(0), Fraction(0)
    for sent in sorted(one, key=lambda sent: one[sent] / other[sent], reverse=True):
        p += one[sent]
        q += other[sent]
        best = max(best, lower_bound((round(count * p), count), (round(count * q), count)))
    return best
