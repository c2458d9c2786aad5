"""Exact privacy curves by enumeration: of transcripts for every pair of changelogs, and of shuffled histograms."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, permutations

from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    History,
    Odds,
    Randomizer,
    ReleasePlan,
    Survey,
    Track,
)
from changeling_statistics import SILENT, PrivacyCurve, curve_of, worst_curve
from changeling_statistics.testing import questions, transcripts

from tests.enumeration import Law, changelogs, group_inputs, literal_laws, probability

from ..protocol.examples import survey


def surveyed(*groups: Group, k: int | Constraint = 2, closed: bool = False) -> Survey:
    """The survey of these groups that ends with their last node. k: how many mutations an entry may make, or when."""
    calendar, answers = Calendar(0, 60, _periods(*groups)), groups[0].tracks[0].randomizer.space.answers
    names, plan, constraint = tuple("abcdefgh"[:answers]), ReleasePlan(groups), AtMost(k) if isinstance(k, int) else k
    return survey(plan, answers=names, calendar=calendar, constraint=constraint, closed=closed)


def flat(randomizer: Randomizer, periods: int, reported: int | None = None) -> Group:
    return Group((Track(1, randomizer, 0, periods, reported),))


def relayed(survey: Survey) -> Survey:
    """The same survey, with a relay declared."""
    return replace(survey, relay="https://relay.example.org")


def remembered(k: int | Constraint, periods: int, closed: bool = False, odds: Odds = Odds(30, 1)) -> Group:  # noqa: B008
    """The group that reports a history of two answers at the end of every period."""
    constraint, calendar = AtMost(k) if isinstance(k, int) else k, Calendar(0, 60, periods)
    return Group.of_history(History.of(odds, range(1, periods + 1), constraint, calendar, closed), 2)


def _periods(*groups: Group) -> int:
    return max(track.last for group in groups for track in group.tracks)


def _differing(group: Group, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[tuple[Randomizer, int, int], ...]:
    """The reports whose true inputs differ, in an order of their own: which nodes they are on does not matter."""
    differing = [
        (track.randomizer, u, v)
        for (track, of_one), (_, of_other) in zip(group_inputs(group, one), group_inputs(group, other), strict=True)
        for u, v in zip(of_one, of_other, strict=True)
        if u != v
    ]
    return tuple(sorted(differing, key=str))


@cache
def _of_reports(differing: tuple[tuple[Randomizer, int, int], ...]) -> PrivacyCurve:
    if not differing:
        return SILENT
    *others, (randomizer, u, v) = differing
    law = [(probability(randomizer, o, u), probability(randomizer, o, v)) for o in range(randomizer.symbols)]
    return _of_reports(tuple(others)).together(curve_of(law))


def worst_transcript_curve(group: Group, k: int | Constraint, closed: bool = False) -> PrivacyCurve:
    """The largest δ at every ε over all pairs of changelogs.

    By the law of every transcript where reports hang together, or nodes are drawn.
    """
    made = surveyed(group, k=k, closed=closed)
    every = list(changelogs(len(made.answers), made.calendar, made.constraint, closed))
    if group.joint is None and not any(track.reported for track in group.tracks):
        differing = {_differing(group, one, other) for one, other in permutations(every, 2)}
        return worst_curve([SILENT, *map(_of_reports, differing)])
    if isinstance(group.joint, History):
        lives = (transcripts(group, questions(group, states)) for states in every)
        laws = [[{sent: chance for sent, (chance, _) in life.items()} for life in lives]]
    else:
        laws = literal_laws(group, every)
    pairs = (pair for of_draw in laws for pair in permutations(of_draw, 2))
    return worst_curve([SILENT, *(curve_of([(one[sent], other[sent]) for sent in one]) for one, other in pairs)])


def histogram_law(randomizer: Randomizer, inputs: Sequence[int]) -> Law:
    """The law of how often each symbol is sent by entries with these inputs: all that a shuffler lets through."""
    law: Law = {(0,) * randomizer.symbols: Fraction(1)}
    for true in inputs:
        sent: Law = {}
        for counts, p in law.items():
            for o in range(randomizer.symbols):
                key = (*counts[:o], counts[o] + 1, *counts[o + 1 :])
                sent[key] = sent.get(key, Fraction(0)) + p * probability(randomizer, o, true)
        law = sent
    return law


def against(one: Law, other: Law) -> PrivacyCurve:
    keys = one.keys() | other.keys()
    return curve_of([(one.get(key, Fraction(0)), other.get(key, Fraction(0))) for key in keys])


def shuffled_pairs(randomizer: Randomizer, entries: int) -> Iterator[PrivacyCurve]:
    """One shuffled round, for every pair of inputs of one entry and all inputs of the others."""
    inputs = range(randomizer.space.size)
    for others in combinations_with_replacement(inputs, entries - 1):
        laws = {u: histogram_law(randomizer, (u, *others)) for u in inputs}
        yield from (against(laws[u], laws[v]) for u, v in permutations(inputs, 2))
