"""What a device sends in a joint group: exactly the law that is charged, whatever the entry does. And a backup of the
store that is put back: nodes are answered again, at a cost that is finite and stated.
"""

import shutil
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest
from changeling_protocol import (
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    StateSpace,
    SubsetSelection,
    Track,
    lives_cost,
    micro,
    respond,
)
from changeling_statistics.testing import questions, transcripts, worst_of_laws

from tests.coins import SeededCoins
from tests.enumeration import log_from_below
from tests.joint_enumeration import defined_law

from ..protocol.examples import mixed, survey
from .device import LATE, PLAIN, START, Clock, FakeServer, client

ANY = Odds(2, 1)


def test_the_ledger_says_what_a_backup_put_back_can_have_cost(begin):
    """Twice the cost where each report is drawn by itself, three times where they are drawn jointly, rounded up."""
    joint = ReleasePlan((Group.jointly([Track(1, SignedSubset(MutationSpace(3), ANY), 0, 8)], JOINT),))
    plans = {PLAIN: 2, survey(mixed(3, 8), grace=10**6): 2, survey(joint, grace=10**6): 3}
    device = begin(*plans).device
    for asked, times in plans.items():
        ledger = device.join(asked.id).ledger()
        assert ledger.epsilon == asked.epsilon
        assert ledger.per_week == asked.per_week >= asked.epsilon * 604_800 / (8 * 60)
        assert abs(ledger.epsilon_if_restored - times * asked.cost) <= Decimal("0.000001")
        assert ledger.epsilon_if_restored >= lives_cost(asked.plan, asked.calendar, asked.constraint, lives=2)
        assert micro(ledger.epsilon_if_restored) == ledger.epsilon_if_restored * 10**6


JOINT = Joint(Odds(50, 1), 2, (1,), (3,))


def two_lives(folder, asked, answers, seeds=(None, None)):
    """The answers of a device that flushed at period 2, and of its two lives after a backup was made then and put back.

    answers: what each life records after it.
    """
    server, clock = FakeServer(asked), Clock()
    lives = []
    with client(folder, server, clock, SeededCoins(1)) as device:
        device.join(asked.id).record("tea")
        device.at(START + 140).flush()
    before = server.answers()
    shutil.copy(folder / "store.db", folder / "backup.db")
    for answer, seed in zip(answers, seeds, strict=True):
        shutil.copy(folder / "backup.db", folder / "store.db")
        server.bodies.clear()
        clock.now = START + 150
        with client(folder, server, clock, None if seed is None else SeededCoins(seed)) as device:
            device.join(asked.id).record(answer)
            device.at(LATE).flush()
        lives.append(server.answers())
    return before, lives


@pytest.mark.parametrize("joint", [False, True], ids=["plain", "joint"])
def test_a_restored_backup_answers_again_under_new_ids_and_from_fresh_coins(tmp_path, joint):
    """No id of one life is in another, whatever was recorded: no symbol of the one can be laid beside one of the other
    as if a single draw had given both. With scripted coins each life's reports are exactly those drawn."""
    changes = SignedSubset(MutationSpace(3), Odds(3, 1))
    track = Track(1, changes, 0, 8)
    group = Group.jointly([track], JOINT) if joint else Group((track,))
    asked = survey(ReleasePlan((group,)), grace=10**6)
    before, lives = two_lives(tmp_path, asked, ("coffee", "neither"), (7, 8))
    ids = [closing.id for answers in (before, *lives) for closing, _ in answers]
    assert len(ids) == len(set(ids)) == 2 + 6 + 6
    for answers, seed, state in zip(lives, (7, 8), (2, 3), strict=True):
        states = (0, 1, 1, *[state] * 6)
        sent = [report.symbol for _, (report,) in before]
        _, slots = transcripts(group, questions(group, states)[: len(sent)])[tuple(sent)]
        coins, expected = SeededCoins(seed), []
        for place, true in questions(group, states)[2:]:
            symbol, slots = respond(group, place, true, slots, coins)
            expected.append((coins.below(2**128).to_bytes(16), symbol))
            coins.below(1000 * asked.spread)
        assert [(closing.id, report.symbol) for closing, (report,) in answers] == expected


STATES, CHANGES = StateSpace(2, null=False), MutationSpace(1)
JOINT_GROUPS = {
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


@pytest.mark.parametrize("group", JOINT_GROUPS.values(), ids=JOINT_GROUPS.keys())
def test_the_device_has_exactly_the_law_of_the_definition_whatever_the_entry_does(group):
    """Over every integer that may be drawn, all transcripts and all inputs, whatever the constraint: also where more
    tell than there are slots, after which nothing is kept. The largest ratio is the odds, and is reached; and a report
    by itself has the law of its track's randomizer, by which it is decoded."""
    places = [place for place, track in enumerate(group.tracks) for _ in range(track.count)]
    spaces = [group.tracks[place].randomizer.space for place in places]
    laws = []
    for inputs in product(*(range(space.size) for space in spaces)):
        told = transcripts(group, list(zip(places, inputs, strict=True)))
        laws.append({sent: likely for sent, (likely, _) in told.items()})
        of_each = tuple(
            tuple(true for at, true in zip(places, inputs, strict=True) if at == place)
            for place in range(len(group.tracks))
        )
        assert laws[-1] == defined_law(group, of_each)
        telling = [
            sum(track.randomizer.tells(true) for true in of_this)
            for track, of_this in zip(group.tracks, of_each, strict=True)
        ]
        if all(tell >= slots for tell, slots in zip(telling, group.joint.slots, strict=True)):
            assert {left for _, left in told.values()} == {None}
    worst = worst_of_laws(laws)
    assert worst == Fraction(group.joint.odds.favoured, group.joint.odds.other)
    assert 0 <= group.joint.odds.epsilon - log_from_below(worst) < Decimal("1e-40")
    for place, track in enumerate(group.tracks):
        randomizer = track.randomizer
        for true in range(randomizer.space.size):
            alone = {symbol: likely for (symbol,), (likely, _) in transcripts(group, [(place, true)]).items()}
            whole = randomizer.total(true)
            symbols = range(randomizer.symbols)
            assert alone == {each: Fraction(randomizer.weight(each, true), whole) for each in symbols}
