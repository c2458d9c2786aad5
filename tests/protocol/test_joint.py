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
from changeling_protocol.plan import plan_as_fields, plan_from_fields
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
forms = pytest.mark.parametrize("randomizer", JOINT_FORMS, ids=lambda r: f"{r.kind} {r.space}")


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
        likely = prod(
            (kernel.agreements[p] if x else 1 - kernel.agreements[p] for p, x in zip(places, pattern, strict=True)),
            start=Fraction(1),
        )
        high = sum(joint.weights[p] * x for p, x in zip(places, pattern, strict=True)) >= joint.threshold
        weights[pattern] = likely * (joint.odds.favoured if high else joint.odds.other)
    whole = sum(weights.values())
    return {pattern: weight / whole for pattern, weight in weights.items()}


def slot_places(kernel: Kernel) -> list[int]:
    return [place for place, slots in enumerate(kernel.joint.slots) for _ in range(slots)]


@given(kernels(), st.data())
def test_each_slot_is_drawn_as_all_patterns_say_given_the_slots_before_it(kernel, data):
    """Whatever slots were used, in any order, and however they agreed. The score may be cut at the threshold."""
    chances, places = weighed_patterns(kernel), slot_places(kernel)
    order = data.draw(st.permutations(range(len(places))))
    pattern = data.draw(st.tuples(*[st.integers(0, 1)] * len(places)))
    used, score, cut = [0] * len(kernel.joint.slots), 0, 0
    for step, slot in enumerate(order):
        known = order[:step]
        fits = {each: p for each, p in chances.items() if all(each[i] == pattern[i] for i in known)}
        agreed = sum(p for each, p in fits.items() if each[slot]) / sum(fits.values())
        place = places[slot]
        alone = kernel.agreements[place]
        odds = kernel.conditional_odds(place, used, score)
        assert odds == kernel.conditional_odds(place, used, cut)
        assert Fraction(odds.favoured, odds.other) == (agreed / alone) / ((1 - agreed) / (1 - alone))
        independent = {each: base_chance(kernel, each) for each in fits}
        density = sum(fits.values()) / sum(independent.values()) * kernel.density([0] * len(used), 0)
        assert kernel.density(used, score) == density
        used[place] += 1
        cut = kernel.scored(place, cut, bool(pattern[slot]))
        score += kernel.joint.weights[place] * pattern[slot]
        assert cut == min(score, kernel.joint.threshold)


def base_chance(kernel: Kernel, pattern: tuple[int, ...]) -> Fraction:
    places = slot_places(kernel)
    return prod(
        (kernel.agreements[p] if x else 1 - kernel.agreements[p] for p, x in zip(places, pattern, strict=True)),
        start=Fraction(1),
    )


@given(kernels())
def test_every_density_lies_between_one_and_the_odds(kernel):
    """Its ends are reached by the patterns with no agreement and with every one; G lies between."""
    joint = kernel.joint
    most = Fraction(joint.odds.favoured, joint.odds.other)
    assert kernel.density(joint.slots, 0) == 1
    assert kernel.density(joint.slots, joint.heaviest) == most
    assert 1 < kernel.density([0] * len(joint.slots), 0) < most


@given(kernels())
def test_the_slots_of_a_track_are_alike(kernel):
    """Whichever slot of a track a report has, it agrees with the same probability: that of the marginal odds."""
    chances, places = weighed_patterns(kernel), slot_places(kernel)
    for slot, place in enumerate(places):
        agreed = sum(p for pattern, p in chances.items() if pattern[slot])
        odds, alone = kernel.marginal(place), kernel.agreements[place]
        assert agreed == odds.favoured * alone / (odds.favoured * alone + odds.other * (1 - alone))


def test_a_slot_that_is_not_there_is_not_asked_for():
    """The device answers from the base instead."""
    kernel = Kernel(Joint(Odds(9, 1), 1, (1, 1), (2, 1)), (Fraction(1, 3), Fraction(1, 2)))
    assert kernel.conditional_odds(0, [1, 1], 0).favoured > 1
    for place, used in ((0, [2, 0]), (1, [0, 1])):
        with pytest.raises(ValueError, match="every slot of this track is used"):
            kernel.conditional_odds(place, used, 0)


@forms
def test_every_telling_input_agrees_with_as_much_of_the_base(randomizer):
    """How likely a symbol of the base agrees is the same for all. An input that tells nothing is answered
    from the base, and so is one that tells, at odds of 1:1."""
    even = Odds(1, 1)
    laws = []
    for true in range(randomizer.space.size):
        total = randomizer.favoured_total(true, even)
        counted = Counter(randomizer.favoured_symbol_at(drawn, true, even) for drawn in range(total))
        laws.append({symbol: Fraction(count, total) for symbol, count in counted.items()})
        if randomizer.tells(true):
            agreed = sum(chance for symbol, chance in laws[-1].items() if randomizer.agrees(symbol, true))
            assert agreed == randomizer.agreement
    assert all(law == laws[0] for law in laws)
    assert randomizer.tells(0) != randomizer.space.reports_changes


@forms
@pytest.mark.parametrize("odds", [Odds(5, 3), Odds(11, 1)], ids=str)
def test_odds_favour_just_the_symbols_that_agree(randomizer, odds):
    """Each is a:b times as likely, relative to the base, as each that does not; so at the randomizer's own odds."""
    told = randomizer.at_odds(odds)
    assert told.odds == odds
    assert (told.agreement, told.space) == (randomizer.agreement, randomizer.space)
    for true in range(randomizer.space.size):
        total = randomizer.favoured_total(true, odds)
        counted = Counter(randomizer.favoured_symbol_at(drawn, true, odds) for drawn in range(total))
        assert total == told.total(true)
        for symbol in range(randomizer.symbols):
            assert Fraction(counted[symbol], total) == Fraction(told.weight(symbol, true), told.total(true))
        if not randomizer.tells(true):
            continue
        even = Odds(1, 1)
        base_total = randomizer.favoured_total(true, even)
        base = Counter(randomizer.favoured_symbol_at(drawn, true, even) for drawn in range(base_total))
        ratios = {
            agrees: {
                Fraction(counted[s], base[s]) for s in range(randomizer.symbols) if randomizer.agrees(s, true) == agrees
            }
            for agrees in (True, False)
        }
        assert len(ratios[True]) == len(ratios[False]) == 1
        assert ratios[True].pop() / ratios[False].pop() == Fraction(odds.favoured, odds.other)


def test_a_joint_group_costs_its_odds_whatever_it_reports():
    """And states them; its tracks have the odds of one report by itself, which are less."""
    plan, calendar = joint_plan(3, 8), Calendar(0, 60, 8)
    group = plan.groups[0]
    assert plan_cost(plan, calendar, AtMost(3)) == group.joint.odds.epsilon
    assert survey(plan).epsilon_micro == micro(group.joint.odds.epsilon)
    for track in group.tracks:
        assert 0 < track.randomizer.odds.epsilon < group.joint.odds.epsilon
    assert group.kernel.marginal(0) == group.tracks[0].randomizer.odds
    assert Group.jointly(group.tracks, group.joint) == group


@pytest.mark.parametrize("lives", [1, 2, 3, 7])
def test_more_lives_of_an_entry_cost_more(lives):
    """As often its cost where each report is drawn by itself; of a joint group twice its odds for each further life."""
    calendar, constraint = Calendar(0, 60, 8), AtMost(3)
    for plan, times in ((survey().plan, lives), (joint_plan(3, 8), 2 * lives - 1)):
        once = Fraction(plan_cost(plan, calendar, constraint))
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
        (lambda: Joint(Odds(7, 7), 1, (1,), (1,)), "7:7 say nothing"),
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


def test_a_joint_group_comes_back_from_its_fields_without_its_tracks_odds():
    """They follow from the group, so a survey cannot state others."""
    plan = joint_plan(3, 8)
    (group,) = fields = plan_as_fields(plan)
    assert not any("odds" in track["randomizer"] for track in group["tracks"])
    assert group["joint"] == {"odds": [55, 1], "threshold": 4, "weights": [2, 1], "slots": [2, 3]}
    assert plan_from_fields(fields, [3]) == plan
    both = ReleasePlan((*plan.groups, Group((STATES,), 5)))
    assert plan_from_fields(plan_as_fields(both), [3]) == both
