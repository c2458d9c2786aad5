"""A backup of the store that is put back: nodes are answered again, at a cost that is finite and stated."""

import shutil
from collections import Counter
from decimal import Decimal

import pytest
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
    Track,
    first_memory,
    lives_cost,
    micro,
    plan_cost,
    respond,
)

from tests.coins import SeededCoins
from tests.enumeration import log_from_below

from ..protocol.examples import hierarchical, mixed, survey
from .device import LATE, PLAIN, START, Clock, FakeServer, client
from .lives import questions, worst_ratio_of_lives

ANY, ONE = Odds(2, 1), MutationSpace(1)
YES = ("yes",)


def jointly(*tracks: Track, joint: Joint) -> Group:
    return Group.jointly(tracks, joint)


GROUPS = {
    "k-RR": Group((Track(1, KaryResponse(ONE, Odds(3, 2)), 0, 3),)),
    "signed": Group((Track(1, SignedSubset(ONE, Odds(3, 1)), 0, 3),)),
    "layers": Group((Track(1, SignedSubset(ONE, Odds(3, 1)), 0, 2), Track(2, KaryChange(ONE, Odds(3, 1)), 0, 2))),
    "panel": Group((Track(1, KaryResponse(StateSpace(1), Odds(3, 1)), 0, 3),)),
    "joint signed": jointly(Track(1, SignedSubset(ONE, ANY), 0, 3), joint=Joint(Odds(4, 1), 1, (1,), (2,))),
    "joint signed, both": jointly(Track(1, SignedSubset(ONE, ANY), 0, 3), joint=Joint(Odds(4, 1), 2, (1,), (2,))),
    "joint mutations": jointly(Track(1, KaryChange(ONE, ANY), 0, 3), joint=Joint(Odds(3, 1), 1, (1,), (2,))),
    "joint panel": jointly(
        Track(1, KaryResponse(StateSpace(1), ANY), 0, 3), joint=Joint(Odds(5, 1), 2, (1,), (3,))
    ),
    "joint mix": jointly(
        Track(2, KaryResponse(StateSpace(1), ANY), 0, 2),
        Track(1, SignedSubset(ONE, ANY), 0, 2),
        joint=Joint(Odds(4, 1), 2, (2, 1), (1, 2)),
    ),
}  # fmt: skip


def periods(group: Group) -> int:
    return max(track.last for track in group.tracks)


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("name", GROUPS)
def test_both_lives_together_cost_no_more_than_is_stated(name, at):
    """Over every pair of ways to live, alike or not before the backup, and all that both lives send; at-most-2."""
    group = GROUPS[name]
    calendar, constraint, plan = Calendar(0, 10, periods(group)), AtMost(2), ReleasePlan((group,))
    once = worst_ratio_of_lives(group, calendar, constraint, [])
    twice = worst_ratio_of_lives(group, calendar, constraint, [min(at, periods(group) - 1)])
    assert log_from_below(once) <= plan_cost(plan, calendar, constraint)
    assert once <= twice
    assert log_from_below(twice) <= lives_cost(plan, calendar, constraint, lives=2)


@pytest.mark.parametrize("name", ["k-RR", "signed", "panel", "joint signed", "joint panel"])
def test_two_lives_from_the_start_cost_twice_as_much_and_reach_it(name):
    """A backup made before the first report begins an entry's whole life again: then a joint group, too, costs its odds
    twice."""
    group = GROUPS[name]
    calendar, constraint = Calendar(0, 10, periods(group)), AtMost(2)
    once = worst_ratio_of_lives(group, calendar, constraint, [])
    assert worst_ratio_of_lives(group, calendar, constraint, [0]) == once**2


def test_a_joint_group_may_cost_more_than_twice_its_odds_if_the_backup_was_made_later():
    """Which is why the ledger counts three times the odds, and not two: here 2.4 times are found."""
    group = GROUPS["joint panel"]
    twice = worst_ratio_of_lives(group, Calendar(0, 10, 3), AtMost(2), [1])
    assert log_from_below(twice) > 2 * group.joint.odds.epsilon


@pytest.mark.parametrize("name", ["signed", "panel", "joint signed", "joint mix"])
@pytest.mark.parametrize("backups", [(1, 1), (0, 1)])
def test_a_backup_put_back_twice_keeps_to_its_bound(name, backups):
    """Three lives."""
    group = GROUPS[name]
    calendar, constraint, plan = Calendar(0, 10, 2), AtMost(2), ReleasePlan((cut(group, 2),))
    thrice = worst_ratio_of_lives(cut(group, 2), calendar, constraint, backups)
    assert log_from_below(thrice) <= lives_cost(plan, calendar, constraint, lives=3)


def cut(group: Group, last: int) -> Group:
    """The group over the first periods only."""
    tracks = tuple(Track(track.width, track.randomizer, 0, last) for track in group.tracks)
    return Group(tracks, joint=group.joint)


def test_the_ledger_says_what_a_backup_put_back_can_have_cost(tmp_path):
    """Twice the cost where each report is drawn by itself, three times where they are drawn jointly, rounded up."""
    joint = ReleasePlan((jointly(Track(1, SignedSubset(MutationSpace(3), ANY), 0, 8), joint=JOINT),))
    plans = {PLAIN: 2, survey(mixed(3, 8), grace=10**6): 2, survey(joint, grace=10**6): 3}
    with client(tmp_path, FakeServer(*plans), Clock()) as device:
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
        clock.now = START + 140
        device.flush()
    before = server.answers()
    shutil.copy(folder / "store.db", folder / "backup.db")
    for answer, seed in zip(answers, seeds, strict=True):
        shutil.copy(folder / "backup.db", folder / "store.db")
        server.bodies.clear()
        clock.now = START + 150
        with client(folder, server, clock, None if seed is None else SeededCoins(seed)) as device:
            device.join(asked.id).record(answer)
            clock.now = LATE
            device.flush()
        lives.append(server.answers())
    return before, lives


@pytest.mark.parametrize("joint", [False, True], ids=["plain", "joint"])
def test_a_restored_backup_answers_again_under_new_ids_and_from_fresh_coins(tmp_path, joint):
    """No id of one life is in another, whatever was recorded: no symbol of the one can be laid beside one of the other
    as if a single draw had given both. With scripted coins each life's reports are exactly those drawn."""
    changes = SignedSubset(MutationSpace(3), Odds(3, 1))
    track = Track(1, changes, 0, 8)
    group = jointly(track, joint=JOINT) if joint else Group((track,))
    asked = survey(ReleasePlan((group,)), grace=10**6)
    before, lives = two_lives(tmp_path, asked, ("coffee", "neither"), (7, 8))
    ids = [closing.id for answers in (before, *lives) for closing, _ in answers]
    assert len(ids) == len(set(ids)) == 2 + 6 + 6
    for answers, seed, state in zip(lives, (7, 8), (2, 3), strict=True):
        states = (0, 1, 1, *[state] * 6)
        slots = slots_of(group, states, [report.symbol for _, (report,) in before])
        coins, expected = SeededCoins(seed), []
        for place, true in questions(group, states)[2:]:
            symbol, slots = respond(group, place, true, slots, coins)
            expected.append((coins.below(2**128).to_bytes(16), symbol))
            coins.below(1000 * asked.spread)
        assert [(closing.id, report.symbol) for closing, (report,) in answers] == expected


def slots_of(group, states, sent):
    """What is kept of a group's slots after the first reports of an entry."""
    slots = first_memory(group)
    if slots is None:
        return None
    for (place, true), symbol in zip(questions(group, states), sent, strict=False):
        if group.tracks[place].randomizer.tells(true):
            slots = slots.after(group, place, group.tracks[place].randomizer.agrees(symbol, true))
    return slots


def test_the_symbols_of_both_lives_are_drawn_apart(tmp_path):
    """Of 420 reports of 13 symbols that say almost nothing, given again with the same answers, one in 13 is the same:
    outside 5 to 70 less than once in 10^6 runs."""
    asked = survey(hierarchical(3, 8, (1,) * 70, Odds(101, 100)), grace=10**6)
    _, (first, second) = two_lives(tmp_path, asked, ("coffee", "coffee"))
    first, second = ([report for _, reports in answers for report in reports] for answers in (first, second))
    of_first = {(report.track, report.node): report.symbol for report in first}
    same = Counter(of_first[report.track, report.node] == report.symbol for report in second)
    assert same.total() == 420
    assert 5 < same[True] < 70
