"""The surveys that are audited, and in which two ways an app lives whose transcripts are then told apart."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise, permutations, product
from math import log
from typing import TypeAlias

from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    Memory,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    Track,
    first_memory,
    respond,
)

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
    def exact(self) -> float:
        """The largest log ratio of the probabilities of any transcript under any two changelogs, in nats."""
        laws = self.laws.values()
        return log(max(one[sent] / other[sent] for one, other in permutations(laws, 2) for sent in one))

    @cached_property
    def laws(self) -> dict[States, Law]:
        """The law of each changelog that the survey admits."""
        every = sorted(changelogs(self.survey), reverse=True)
        return {states: law(self.survey.plan.groups[0], states) for states in every}

    def worst_pair(self, count: int) -> Pair:
        """The two changelogs that so many transcripts of each should tell apart best, by their exact law."""
        laws = self.laws
        one, other = max(permutations(laws, 2), key=lambda pair: _expected(laws[pair[0]], laws[pair[1]], count))
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


def changelogs(survey: Survey) -> list[States]:
    """All sequences of states at the ends of periods 0 to T that the survey's constraint, a number, admits."""
    states, periods = range(len(survey.answers) + 1), survey.calendar.periods
    every = ((0, *later) for later in product(states, repeat=periods))
    counted = ((each, sum(a != b for a, b in pairwise(each))) for each in every)
    return [each for each, changes in counted if changes == 0 or survey.constraint.admits(changes - 1, 0.0)]


def law(group: Group, states: States) -> Law:
    """The exact probability of every transcript of an entry with these states, whose group has one track.

    Read off `respond`: each integer that it might draw is tried.
    """
    (track,) = group.tracks
    chances: dict[tuple[tuple[int, ...], Memory | None], Fraction] = {((), first_memory(group)): Fraction(1)}
    for number in track.node_numbers():
        node = track.node(number)
        true = track.randomizer.space.index(states[node.start], states[node.end])
        after: dict[tuple[tuple[int, ...], Memory | None], Fraction] = {}
        for (sent, slots), chance in chances.items():
            for (symbol, left), likely in _outcomes(group, true, slots).items():
                key = (*sent, symbol), left
                after[key] = after.get(key, Fraction(0)) + chance * likely
        chances = after
    laws: Law = {}
    for (sent, _), chance in chances.items():
        laws[sent] = laws.get(sent, Fraction(0)) + chance
    return laws


@cache
def _outcomes(group: Group, true: int, slots: Memory | None) -> dict[tuple[int, Memory | None], Fraction]:
    totals: list[int] = []

    class Listed:
        def __init__(self, drawn: int) -> None:
            self._drawn = drawn

        def below(self, n: int) -> int:
            totals.append(n)
            return self._drawn

    respond(group, 0, true, slots, Listed(0))
    counts = Counter(respond(group, 0, true, slots, Listed(drawn)) for drawn in range(totals[0]))
    return {outcome: Fraction(count, totals[0]) for outcome, count in counts.items()}


def _expected(one: Law, other: Law, count: int) -> float:
    """The lower bound if the transcripts came as often as their law says, for the best event."""
    best, p, q = 0.0, Fraction(0), Fraction(0)
    for sent in sorted(one, key=lambda sent: one[sent] / other[sent], reverse=True):
        p += one[sent]
        q += other[sent]
        best = max(best, lower_bound((round(count * p), count), (round(count * q), count)))
    return best
