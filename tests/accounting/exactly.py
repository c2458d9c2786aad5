"""Exact privacy curves by enumeration: of transcripts for every pair of changelogs, and of shuffled histograms."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, permutations

from changeling_protocol import AtMost, Calendar, Group, Randomizer, ReleasePlan, Survey, Track
from changeling_statistics import SILENT, PrivacyCurve, curve_of, merged, worst_curve

from tests.enumeration import changelogs, group_inputs, probability

from ..protocol.examples import survey

Law = dict[tuple[int, ...], Fraction]


def surveyed(*groups: Group, k: int = 2, closed: bool = False) -> Survey:
    """The survey of these groups that ends with their last node."""
    calendar, answers = Calendar(0, 60, _periods(*groups)), groups[0].tracks[0].randomizer.space.answers
    plan = ReleasePlan(groups)
    return survey(plan, answers=tuple("abcdefgh"[:answers]), calendar=calendar, constraint=AtMost(k), closed=closed)


def flat(randomizer: Randomizer, periods: int, reported: int | None = None) -> Group:
    return Group((Track(1, randomizer, 0, periods, reported),))


def relayed(survey: Survey) -> Survey:
    """The same survey, with a relay declared."""
    return replace(survey, relay="https://relay.example.org")


def histories(group: Group, most: int, closed: bool = False) -> list[tuple[int, ...]]:
    """Every changelog of an entry that changes so often, over the periods of the group."""
    answers = group.tracks[0].randomizer.space.answers
    return list(changelogs(answers, Calendar(0, 60, _periods(group)), AtMost(most), closed))


def _periods(*groups: Group) -> int:
    return max(track.last for group in groups for track in group.tracks)


def listed(randomizer: Randomizer, u: int, v: int) -> PrivacyCurve:
    """The curve of one report, symbol by symbol."""
    symbols = range(randomizer.symbols)
    weights = [(randomizer.weight(o, u), randomizer.weight(o, v), 1) for o in symbols]
    return curve_of(merged(weights, randomizer.total(u), randomizer.total(v)))


def transcript_curve(group: Group, one: tuple[int, ...], other: tuple[int, ...]) -> PrivacyCurve:
    """Everything an entry of the group reports under one changelog against another."""
    return _of_reports(_differing(group, one, other))


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
    *others, last = differing
    return _of_reports(tuple(others)).together(listed(*last))


def worst_transcript_curve(group: Group, most: int, closed: bool = False) -> PrivacyCurve:
    """The largest δ at every ε over all pairs of changelogs."""
    differing = {_differing(group, one, other) for one, other in permutations(histories(group, most, closed), 2)}
    return worst_curve([SILENT, *map(_of_reports, differing)])


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
