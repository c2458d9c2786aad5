"""The (ε, δ) of a joint group's transcript against every pair of changelogs, and what shuffling adds."""

from fractions import Fraction
from itertools import combinations, permutations, product

import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Group,
    History,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    TimeBounded,
    Track,
)
from changeling_statistics import (
    SILENT,
    curve_of,
    delta_at,
    epsilon_at,
    shuffled_loss,
    worst_curve,
)
from changeling_statistics.accounting import joint_curve
from changeling_statistics.shuffled import differing_rounds, linked_round
from changeling_statistics.testing import questions, transcripts

from tests.enumeration import all_inputs, changelogs
from tests.joint_enumeration import defined_law

from ..protocol.examples import survey
from .exactly import histories, relayed, surveyed

ANY = Odds(2, 1)
EPSILONS = [0.0, 0.1, 0.35, 0.8, 1.2, 2.0, 3.1]
RATIOS = [Fraction(1), Fraction(8, 7), Fraction(3, 2), Fraction(3), Fraction(11, 2), Fraction(40)]


def jointly(joint, *tracks, share=1):
    return Group.jointly(tracks, joint, share)


def quiet(space, u=Fraction(1, 2)):
    return SignedSubset(space, ANY, spoken=u)


MOVES = MutationSpace(2, null=False)
LIVE = StateSpace(2, null=False)

SMALL = {
    "signed": (jointly(Joint(Odds(3, 1), 1, (1,), (2,)), Track(1, quiet(MOVES), 1, 3)), 3, True),
    "kary": (jointly(Joint(Odds(3, 1), 2, (1,), (2,)), Track(1, KaryChange(MOVES, ANY), 1, 3)), 3, True),
    "anchored": (
        jointly(
            Joint(Odds(9, 2), 2, (2, 1), (1, 2)),
            Track(1, KaryResponse(LIVE, ANY), 0, 1),
            Track(1, quiet(MOVES, Fraction(1)), 1, 3),
        ),
        3,
        True,
    ),
    "states and one random change": (
        jointly(
            Joint(Odds(9, 2), 3, (1, 1), (2, 1)),
            Track(1, KaryResponse(LIVE, ANY), 0, 2),
            Track(1, KaryChange(MOVES, ANY), 1, 3, reported=1),
        ),
        3,
        True,
    ),
    "panel": (
        jointly(Joint(Odds(9, 1), 2, (1,), (2,)), Track(1, SubsetSelection(StateSpace(2), ANY, 2), 0, 2)),
        1,
        False,
    ),
    "open, few nodes": (
        jointly(Joint(Odds(4, 1), 2, (1,), (2,)), Track(1, quiet(MutationSpace(1)), 0, 2)),
        2,
        False,
    ),
    "open": (
        jointly(Joint(Odds(4, 1), 1, (1,), (1,)), Track(1, SignedSubset(MutationSpace(1), ANY), 0, 3)),
        1,
        False,
    ),
    "spare": (jointly(Joint(Odds(4, 1), 2, (1,), (3,)), Track(1, quiet(MOVES), 1, 3)), 3, True),
}

REACHED = ["signed", "kary", "anchored", "states and one random change"]
"""Closed cohorts, where two changelogs can make opposite changes on all slots. The panel's states, NULL among them, are
told at any time but cannot all differ before k = 1 is used up; in an open cohort first mutations are insertions, which
differ less than a mutation and its reverse."""


def enumerated(group, most, closed):
    """The largest δ at every ε over all pairs of changelogs, from every transcript of every draw of nodes."""
    every = [all_inputs(group, states) for states in histories(group, most, closed)]
    curves = {SILENT}
    for drawn in product(*(combinations(range(track.count), track.reports) for track in group.tracks)):
        shown = {
            tuple(tuple(trues[i] for i in nodes) for trues, nodes in zip(inputs, drawn, strict=True))
            for inputs in every
        }
        laws = [defined_law(group, inputs) for inputs in shown]
        curves |= {curve_of([(one[sent], other[sent]) for sent in one]) for one, other in permutations(laws, 2)}
    return worst_curve(curves)


@pytest.mark.parametrize("name", SMALL)
def test_no_pair_of_changelogs_is_told_apart_beyond_the_curve_of_a_joint_group(name):
    """Exactly, at every ratio, and on the named cases some pair has just this curve; δ(ε) of a survey is the curve's,
    rounded up, and 0 from the charge on."""
    group, most, closed = SMALL[name]
    exact, curve, stated = enumerated(group, most, closed), joint_curve(group), surveyed(group, k=most, closed=closed)
    for ratio in RATIOS:
        assert exact.delta_at_ratio(ratio) <= curve.delta_at_ratio(ratio)
    if name in REACHED:
        assert exact == curve
    for epsilon in EPSILONS:
        assert delta_at(stated, epsilon) >= curve.delta_at(epsilon) * (1 - 1e-12)
        assert delta_at(stated, epsilon) == pytest.approx(curve.delta_at(epsilon), rel=1e-8, abs=1e-12)
    assert delta_at(stated, float(stated.cost) + 1e-9) == 0


def test_the_threshold_moves_delta_and_not_the_pure_figure():
    """Eight slots at odds e^8: one charge, a δ for each threshold, and ε(δ) is its inverse."""
    space = MutationSpace(4)
    stated = [
        surveyed(jointly(Joint(Odds.within(8), tau, (1,), (8,)), Track(1, quiet(space), 0, 64)), k=8)
        for tau in (1, 3, 5)
    ]
    assert len({each.cost for each in stated}) == 1
    assert len({delta_at(each, 6.0) for each in stated}) == 3
    for each in stated:
        assert epsilon_at(each, delta_at(each, 6.0)) == pytest.approx(6.0, abs=1e-6)


def test_the_most_slots_are_answered_at_once():
    """256 slots, exactly, in about a second."""
    group = jointly(Joint(Odds.within(4), 128, (1,), (256,)), Track(1, quiet(MutationSpace(4)), 0, 1000))
    assert 0 < joint_curve(group).delta_at(1.0) < 1


def test_shuffled_joint_transcripts_are_bounded_as_one_report():
    """The figure falls with the crowd and never exceeds (ε, δ); as reports hang together, no rounds are composed."""
    group, most, closed = SMALL["anchored"]
    stated = relayed(surveyed(group, k=most, closed=closed))
    losses = [shuffled_loss(stated, 1e-6, entries) for entries in (10, 10_000, 1_000_000)]
    found = [epsilon_at(stated, 1e-6), *(each.epsilon for each in losses)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.1
    assert "whole transcript as one report" in losses[-1].source
    with pytest.raises(ValueError, match="rounds of a joint group depend on each other"):
        differing_rounds(group, stated.calendar, stated.constraint, closed)


@pytest.mark.parametrize(
    ("constraint", "closed"),
    [(AtMost(2), True), (TimeBounded(11), False), (Hybrid((AtMost(2), TimeBounded(11))), True)],
)
def test_the_curve_of_a_history_group_is_that_of_every_pair_of_changelogs(constraint, closed):
    """Exact at every ε, from every transcript of a device. A survey's figure is never below it, nor far above."""
    calendar = Calendar(0, 10, 3)
    history = History.of(Odds(30, 1), range(1, 4), constraint, calendar, closed)
    group = Group.of_history(history, 2)
    every = [questions(group, states) for states in changelogs(2, calendar, constraint, closed)]
    laws = [{sent: chance for sent, (chance, _) in transcripts(group, asked).items()} for asked in every]
    worst = worst_curve([curve_of([(one[sent], other[sent]) for sent in one]) for one, other in permutations(laws, 2)])
    assert joint_curve(group) == worst
    made = survey(ReleasePlan((group,)), answers=("a", "b"), calendar=calendar, constraint=constraint, closed=closed)
    for epsilon in EPSILONS:
        exact = float(worst.delta_at(epsilon))
        assert exact <= delta_at(made, epsilon) <= exact * (1 + 1e-6) + 1e-9


def test_shuffled_histories_hide_among_uniform_ones():
    """A million entries: the blanket of k-RR over all possible histories, far below the local figure; a thousand hide
    less, and where histories are too many to be counted in floats the general bound stands."""
    calendar = Calendar(0, 60, 6)
    history = History.of(Odds.within(4), range(1, 7), AtMost(2), calendar, closed=True)
    group = Group.of_history(history, 2)
    plan = ReleasePlan((group,))
    made = relayed(survey(plan, answers=("a", "b"), calendar=calendar, constraint=AtMost(2), closed=True))
    many, few = (shuffled_loss(made, 1e-6, entries) for entries in (10**6, 1000))
    assert many.epsilon < 0.1 < few.epsilon <= epsilon_at(made, 1e-6)
    assert "privacy blanket" in many.source
    whole = linked_round(group, calendar, AtMost(2), closed=True)
    assert whole.blanket.symbols == 12
    assert whole.blanket.truth + 11 * whole.blanket.other == pytest.approx(1)
    wide = Group.of_history(History.of(Odds(9, 1), range(1, 65), AtMost(64), Calendar(0, 60, 64), closed=True), 4)
    assert linked_round(wide, Calendar(0, 60, 64), AtMost(64), closed=True).blanket is None
