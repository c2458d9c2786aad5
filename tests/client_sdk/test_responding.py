"""What a device sends in a joint group: exactly the law that is charged, whatever the entry does."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product

import pytest
from changeling_protocol import (
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    Memory,
    MutationSpace,
    Odds,
    SignedSubset,
    SlotState,
    StateSpace,
    SubsetSelection,
    Track,
    first_memory,
    respond,
)

from tests.coins import ListedCoins
from tests.enumeration import log_from_below
from tests.joint_enumeration import defined_law

ANY = Odds(2, 1)
STATES, CHANGES = StateSpace(2, null=False), MutationSpace(1)
GROUPS = {
    "states": Group.jointly([Track(1, KaryResponse(StateSpace(2), ANY), 0, 3)], Joint(Odds(7, 2), 2, (1,), (3,))),
    "sets": Group.jointly([Track(1, SubsetSelection(StateSpace(2), ANY, 2), 0, 3)], Joint(Odds(3, 1), 3, (1,), (3,))),
    "changes": Group.jointly([Track(1, SignedSubset(CHANGES, ANY), 0, 4)], Joint(Odds(5, 1), 1, (1,), (2,))),
    "changes with silence": Group.jointly(
        [Track(1, SignedSubset(CHANGES, ANY, spoken=Fraction(2, 3)), 0, 3)], Joint(Odds(5, 1), 2, (1,), (2,))
    ),
    "mutations": Group.jointly([Track(1, KaryChange(CHANGES, ANY), 0, 3)], Joint(Odds(4, 1), 1, (1,), (2,))),
    "moves": Group.jointly(
        [Track(1, SignedSubset(MutationSpace(2, null=False), ANY), 1, 4)], Joint(Odds(4, 1), 2, (1,), (2,))
    ),
    "weighed": Group.jointly(
        [Track(2, KaryResponse(STATES, ANY), 0, 4), Track(1, SignedSubset(CHANGES, ANY), 0, 2)],
        Joint(Odds(9, 2), 3, (2, 1), (2, 1)),
    ),
}


@cache
def answers(group: Group, question: tuple[int, int], slots: Memory | None) -> dict[int, tuple[Fraction, Memory | None]]:
    """Each symbol that the device may send, with its probability and the slots that are left after it."""
    place, true = question
    asked = ListedCoins([0])
    respond(group, place, true, slots, asked)
    (total,) = asked.asked
    drawn = [respond(group, place, true, slots, ListedCoins([integer])) for integer in range(total)]
    left = dict(drawn)
    counted = Counter(symbol for symbol, _ in drawn)
    return {symbol: (Fraction(count, total), left[symbol]) for symbol, count in counted.items()}


def chance(group: Group, asked: Sequence[tuple[int, int]], sent: Sequence[int], slots: Memory | None) -> Fraction:
    """The probability that the device sends these symbols, from these slots on."""
    whole = Fraction(1)
    for question, symbol in zip(asked, sent, strict=True):
        each, slots = answers(group, question, slots).get(symbol, (Fraction(0), None))
        whole *= each
    return whole


def slots_after(group: Group, asked: Sequence[tuple[int, int]], sent: Sequence[int]) -> Memory | None:
    """The slots that are left when these symbols were sent."""
    slots = first_memory(group)
    for question, symbol in zip(asked, sent, strict=True):
        _, slots = answers(group, question, slots)[symbol]
    return slots


named = pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())


def every_history(group):
    """Every sequence of true inputs on all nodes of all tracks, whatever the constraint: more may tell than slots."""
    places = [place for place, track in enumerate(group.tracks) for _ in range(track.count)]
    sizes = [group.tracks[place].randomizer.space.size for place in places]
    for inputs in product(*map(range, sizes)):
        yield list(zip(places, inputs, strict=True))


def every_transcript(group):
    return product(*(range(track.randomizer.symbols) for track in group.tracks for _ in range(track.count)))


@named
def test_the_device_has_exactly_the_law_of_the_definition(group):
    """Over all inputs and transcripts: from every integer that may be drawn, against every pattern of agreements."""
    for asked in every_history(group):
        law = {sent: chance(group, asked, sent, first_memory(group)) for sent in every_transcript(group)}
        inputs = tuple(tuple(true for at, true in asked if at == place) for place in range(len(group.tracks)))
        assert law == defined_law(group, inputs)
        assert sum(law.values()) == 1


@named
def test_no_behaviour_costs_more_than_the_groups_odds(group):
    """Over all inputs, also where more tell than there are slots, the largest ratio is the odds, and it is reached."""
    worst = Fraction(0)
    for sent in every_transcript(group):
        likely = [chance(group, asked, sent, first_memory(group)) for asked in every_history(group)]
        worst = max(worst, max(likely) / min(likely))
    assert worst == Fraction(group.joint.odds.favoured, group.joint.odds.other)
    assert 0 <= group.joint.odds.epsilon - log_from_below(worst) < Decimal("1e-40")


@named
def test_one_report_by_itself_has_the_law_of_the_ordinary_randomizer(group):
    """At the marginal odds that its track states."""
    for place, track in enumerate(group.tracks):
        randomizer = track.randomizer
        for true in range(randomizer.space.size):
            law = [
                chance(group, [(place, true)], [symbol], first_memory(group)) for symbol in range(randomizer.symbols)
            ]
            weights = [
                Fraction(randomizer.weight(symbol, true), randomizer.total(true))
                for symbol in range(randomizer.symbols)
            ]
            assert law == weights


@named
def test_once_the_last_slot_is_used_nothing_is_kept_and_all_are_answered_from_the_base(group):
    """A telling input then has the law of one that tells nothing."""
    slots = first_memory(group)
    telling = [next(u for u in range(1, 9) if track.randomizer.tells(u)) for track in group.tracks]
    order = [place for place, count in enumerate(group.joint.slots) for _ in range(count)]
    for place in order:
        assert slots is not None
        _, slots = respond(group, place, telling[place], slots, ListedCoins([0]))
    assert slots is None
    for place, track in enumerate(group.tracks):
        randomizer = track.randomizer
        agreed = sum(
            chance(group, [(place, telling[place])], [symbol], None)
            for symbol in range(randomizer.symbols)
            if randomizer.agrees(symbol, telling[place])
        )
        assert agreed == randomizer.agreement


def test_a_track_without_slots_is_answered_from_the_base_while_others_have_some():
    """Its count stays as long as the group has any slot left, as the others' odds depend on it."""
    group = GROUPS["weighed"]
    slots = SlotState((0, 1), 1)
    assert chance(group, [(1, 1)], [0], slots) == Fraction(1, 2)
    _, after = respond(group, 1, 1, slots, ListedCoins([0]))
    assert after == slots
    assert chance(group, [(0, 0)], [0], slots) != chance(group, [(0, 0)], [0], SlotState((0, 1), 0))
    _, after = respond(group, 0, 0, slots, ListedCoins([0]))
    assert after == SlotState((1, 1), 3)


def test_a_report_drawn_by_itself_has_no_slots():
    """And its coins are one integer below its randomizer's total."""
    group = Group((Track(1, KaryResponse(STATES, ANY), 0, 3),))
    assert first_memory(group) is None
    coins = ListedCoins([2])
    assert respond(group, 0, 0, None, coins) == (1, None)
    assert coins.asked == [3]
