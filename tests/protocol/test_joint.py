"""Joint responses: the kernel against every pattern of agreements, what it costs, and what is refused by name."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import prod

import pytest
from changeling_protocol import (
    MOST_SCORE,
    AtMost,
    Calendar,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    Kernel,
    MalformedBytes,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Survey,
    TimeBounded,
    Track,
    UnaryEncoding,
    agreeing,
    lives_cost,
    micro,
    most_telling,
    plan_cost,
    signed,
)
from hypothesis import given
from hypothesis import strategies as st

from .examples import AUTHORITY, PINNED, joint_plan, survey

ANY = Odds(2, 1)
JOINT_FORMS = [
    KaryResponse(StateSpace(2), Odds(3, 2)),
    KaryResponse(StateSpace(3, null=False), Odds(3, 1)),
    SubsetSelection(StateSpace(3), Odds(3, 1), 2),
    SignedSubset(MutationSpace(2), Odds(3, 1)),
    SignedSubset(MutationSpace(3), Odds(3, 1), 1, Fraction(2, 5)),
    SignedSubset(MutationSpace(3, null=False), Odds(7, 2), spoken=Fraction(1, 3)),
    KaryChange(MutationSpace(2), Odds(3, 1)),
    KaryChange(MutationSpace(3, null=False), Odds(3, 1)),
]


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    tracks = draw(st.integers(1, 3))
    weights = draw(st.lists(st.integers(1, 3), min_size=tracks, max_size=tracks))
    slots = draw(st.lists(st.integers(1, 3 if tracks == 1 else 2), min_size=tracks, max_size=tracks))
    heaviest = sum(w * n for w, n in zip(weights, slots, strict=True))
    odds = Odds(draw(st.integers(2, 50)), 1)
    joint = Joint(odds, draw(st.integers(1, heaviest)), tuple(weights), tuple(slots))
    denominators = st.integers(2, 9).flatmap(lambda d: st.integers(1, d - 1).map(lambda n: Fraction(n, d)))
    return Kernel(joint, tuple(draw(denominators) for _ in range(tracks)))


def weighed_patterns(kernel: Kernel) -> dict[tuple[int, ...], Fraction]:
    """Every pattern of agreements, slots in the order of tracks, with its probability: by the definition."""
    joint, places = kernel.joint, slot_places(kernel)
    weights = {}
    for pattern in product((0, 1), repeat=len(places)):
        high = sum(joint.weights[p] * x for p, x in zip(places, pattern, strict=True)) >= joint.threshold
        weights[pattern] = base_chance(kernel, pattern) * (joint.odds.favoured if high else joint.odds.other)
    whole = sum(weights.values())
    return {pattern: weight / whole for pattern, weight in weights.items()}


def slot_places(kernel: Kernel) -> list[int]:
    return [place for place, slots in enumerate(kernel.joint.slots) for _ in range(slots)]


def base_chance(kernel: Kernel, pattern: tuple[int, ...]) -> Fraction:
    chances = (
        kernel.agreements[p] if x else 1 - kernel.agreements[p]
        for p, x in zip(slot_places(kernel), pattern, strict=True)
    )
    return prod(chances, start=Fraction(1))


@given(kernels(), st.data())
def test_each_slot_is_drawn_as_all_patterns_say_given_the_slots_before_it(kernel, data):
    """Whatever slots were used, in any order, and however they agreed. The score may be cut at the threshold. The slots
    of a track are alike: before anything is known each agrees as its marginal odds say."""
    joint, chances, places = kernel.joint, weighed_patterns(kernel), slot_places(kernel)
    order = data.draw(st.permutations(range(len(places))))
    pattern = data.draw(st.tuples(*[st.integers(0, 1)] * len(places)))
    used, score, cut = [0] * len(joint.slots), 0, 0
    for step, slot in enumerate(order):
        fits = {each: p for each, p in chances.items() if all(each[i] == pattern[i] for i in order[:step])}
        place = places[slot]
        alone = kernel.agreements[place]
        for odds, known in ((kernel.conditional_odds(place, used, score), fits), (kernel.marginal(place), chances)):
            agreed = sum(p for each, p in known.items() if each[slot]) / sum(known.values())
            assert Fraction(odds.favoured, odds.other) == (agreed / alone) / ((1 - agreed) / (1 - alone))
        assert kernel.conditional_odds(place, used, cut) == kernel.conditional_odds(place, used, score)
        base = sum(base_chance(kernel, each) for each in fits)
        assert kernel.density(used, score) == sum(fits.values()) / base * kernel.density([0] * len(used), 0)
        used[place] += 1
        cut = kernel.scored(place, cut, bool(pattern[slot]))
        score += joint.weights[place] * pattern[slot]
        assert cut == min(score, joint.threshold)
    most = Fraction(joint.odds.favoured, joint.odds.other)
    assert (kernel.density(joint.slots, 0), kernel.density(joint.slots, joint.heaviest)) == (1, most)
    assert 1 < kernel.density([0] * len(joint.slots), 0) < most


def drawn_law(randomizer, true: int, odds: Odds) -> dict[int, Fraction]:
    """How likely each symbol is, over all integers that a device may draw."""
    total = randomizer.favoured_total(true, odds)
    counted = Counter(randomizer.favoured_symbol_at(drawn, true, odds) for drawn in range(total))
    return {symbol: Fraction(counted[symbol], total) for symbol in range(randomizer.symbols)}


@pytest.mark.parametrize("randomizer", JOINT_FORMS, ids=lambda r: f"{r.kind} {r.space}")
def test_odds_favour_just_the_symbols_that_agree(randomizer):
    """Each is a:b times as likely, relative to the base, as each that does not; so at the randomizer's own odds. Of the
    base as much agrees with each input that tells; what tells nothing is answered from the base, as is all at 1:1."""
    assert randomizer.tells(0) != randomizer.space.reports_changes
    base = drawn_law(randomizer, 0, Odds(1, 1))
    for true in range(randomizer.space.size):
        assert drawn_law(randomizer, true, Odds(1, 1)) == base
        for odds in (Odds(5, 3), Odds(11, 1)):
            told, law = randomizer.at_odds(odds), drawn_law(randomizer, true, odds)
            assert (told.odds, told.agreement, told.space) == (odds, randomizer.agreement, randomizer.space)
            assert law == {s: Fraction(told.weight(s, true), told.total(true)) for s in range(randomizer.symbols)}
            if not randomizer.tells(true):
                assert law == base
                continue
            agreeing = {symbol for symbol in base if randomizer.agrees(symbol, true)}
            assert sum(base[symbol] for symbol in agreeing) == randomizer.agreement
            (favoured,) = {law[symbol] / base[symbol] for symbol in agreeing}
            (other,) = {law[symbol] / base[symbol] for symbol in base if symbol not in agreeing}
            assert favoured / other == Fraction(odds.favoured, odds.other)


def test_a_joint_group_costs_its_odds_and_is_signed_without_those_of_its_tracks():
    """They follow from the group, and are less, so a survey cannot state others."""
    plan, calendar = joint_plan(3, 8), Calendar(0, 60, 8)
    group = plan.groups[0]
    assert plan_cost(plan, calendar, AtMost(3)) == group.joint.odds.epsilon
    assert survey(plan).epsilon_micro == micro(group.joint.odds.epsilon)
    assert all(0 < track.randomizer.odds.epsilon < group.joint.odds.epsilon for track in group.tracks)
    (fields,) = survey(plan).as_fields()["plan"]
    assert not any("odds" in track["randomizer"] for track in fields["tracks"])
    assert fields["joint"] == {"odds": [55, 1], "threshold": 4, "weights": [2, 1], "slots": [2, 3]}
    both = ReleasePlan((*plan.groups, Group((STATES,), 5)))
    assert Survey.from_payload(survey(both).payload).plan == both


def test_more_lives_of_an_entry_cost_more():
    """As often its cost where each report is drawn by itself; of a joint group twice its odds for each further life."""
    calendar, constraint = Calendar(0, 60, 8), AtMost(3)
    for lives, joint in product((1, 2, 3, 7), (False, True)):
        plan = joint_plan(3, 8) if joint else survey().plan
        once = Fraction(plan_cost(plan, calendar, constraint))
        times = 2 * lives - 1 if joint else lives
        excess = Fraction(lives_cost(plan, calendar, constraint, lives=lives)) - times * once
        assert 0 <= excess < Fraction(1, 10**40)


def test_how_many_reports_may_tell_follows_from_the_constraint():
    """Every state; of changes as many nodes as mutations can lie in, one less after a closed cohort's insertion, and
    never more than are reported."""
    calendar = Calendar(0, 60, 8)
    states = Track(1, KaryResponse(StateSpace(3), ANY), 0, 8, reported=5)
    changes = Track(1, SignedSubset(MutationSpace(3), ANY), 0, 8)
    later = Track(1, SignedSubset(MutationSpace(3, null=False), ANY), 1, 8)
    some = Track(1, SignedSubset(MutationSpace(3), ANY), 0, 8, reported=2)
    wide = Track(4, SignedSubset(MutationSpace(3), ANY), 0, 8)
    told = [most_telling(track, calendar, AtMost(3)) for track in (states, changes, some, wide)]
    assert told == [5, 3, 2, 2]
    assert most_telling(later, calendar, AtMost(3), closed=True) == 2
    assert most_telling(changes, calendar, AtMost(3), closed=True) == 3
    assert most_telling(changes, calendar, TimeBounded(100)) == 3
    assert most_telling(later, calendar, TimeBounded(100), closed=True) == 3


STATES = Track(1, KaryResponse(StateSpace(3), ANY), 0, 8, reported=2)
CHANGES = Track(2, SignedSubset(MutationSpace(3), ANY), 0, 8)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Joint(Odds(1, 1), 1, (1,), (1,)), "1:1 say nothing"),
        (lambda: Joint(Odds(2, 1), 8, (2, 1), (3, 1)), "1 to 7, .* got 8"),
        (lambda: Joint(Odds(2, 1), 0, (2, 1), (3, 1)), "1 to 7, .* got 0"),
        (lambda: Joint(Odds(2, 1), 1, (0,), (1,)), "positive integers"),
        (lambda: Joint(Odds(2, 1), 1, (1,), (0,)), "positive integers"),
        (lambda: Joint(Odds(2, 1), 1, (1, 1), (1,)), "for each track"),
        (lambda: Joint(Odds(2, 1), 1, (), ()), "for each track"),
        (lambda: Joint(Odds(2, 1), 1, (1,), (MOST_SCORE + 1,)), f"at most {MOST_SCORE} together, got {MOST_SCORE + 1}"),
        (lambda: Group.jointly([STATES], Joint(Odds(2, 1), 1, (1, 1), (1, 1))), "2 tracks is none of 1"),
        (lambda: Group.jointly([STATES, CHANGES], Joint(Odds(2, 1), 4, (4, 1), (2, 3))), "track 1 .* says nothing"),
        (lambda: Group((STATES,), joint=Joint(Odds(9, 2), 2, (1,), (2,))), "tracks of a joint group follow"),
        (lambda: Group((STATES,)).kernel, "drawn by itself"),
        (lambda: joint_plan(3, 8).groups[0].kernel.conditional_odds(0, [2, 0], 0), "every slot of this track is used"),
        (
            lambda: Group.jointly(
                [Track(1, UnaryEncoding(StateSpace(3), ANY), 0, 8)], Joint(Odds(2, 1), 1, (1,), (8,))
            ),
            "'unary' has no joint form",
        ),
        (lambda: agreeing(KaryResponse(MutationSpace(3), ANY)), "'k-rr' tells even that nothing changed"),
    ],
)  # fmt: skip
def test_what_cannot_be_joint_is_refused_by_name(build, says):
    """With the value that is wrong and what would do."""
    with pytest.raises(ValueError, match=says):
        build()


def test_slots_that_do_not_cover_the_constraint_are_refused():
    """By whoever makes the survey, and by whoever reads it: a report without a slot would not count."""
    short = Group.jointly([STATES, CHANGES], Joint(Odds(9, 1), 3, (1, 1), (2, 2)))
    with pytest.raises(ValueError, match="has 2 slots, and up to 3"):
        survey(ReleasePlan((short,)))
    assert survey(ReleasePlan((short,)), constraint=AtMost(2)).cost == Odds(9, 1).epsilon
    panel = Group.jointly([STATES], Joint(Odds(9, 1), 1, (1,), (1,)))
    with pytest.raises(ValueError, match="has 1 slots, and up to 2"):
        survey(ReleasePlan((panel,)))


def test_symbols_beyond_63_bits_are_refused_in_a_joint_group_as_elsewhere():
    """Also where the bytes leave the odds out."""
    fields = survey(joint_plan(3, 8)).as_fields()
    fields["questions"][0]["answers"] = [str(i) for i in range(70)]
    with pytest.raises(MalformedBytes, match="63 bits"):
        Survey.from_signed(signed("survey", fields, AUTHORITY), PINNED)
