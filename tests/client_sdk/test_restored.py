"""What a device sends in a joint group: exactly the law that is charged, whatever the entry does. And a backup of the
store that is put back: nodes are answered again, at a cost that is finite and stated.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product

import pytest
from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    Memory,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    SlotState,
    StateSpace,
    SubsetSelection,
    Track,
    first_memory,
    lives_cost,
    micro,
    plan_cost,
    respond,
)

from tests.coins import ListedCoins, SeededCoins
from tests.enumeration import States, changelogs, log_from_below
from tests.joint_enumeration import defined_law

from ..protocol.examples import hierarchical, mixed, survey
from .device import LATE, PLAIN, START, Clock, FakeServer, client

ANY, ONE = Odds(2, 1), MutationSpace(1)


GROUPS = {
    "k-RR": Group((Track(1, KaryResponse(ONE, Odds(3, 2)), 0, 3),)),
    "layers": Group((Track(1, SignedSubset(ONE, Odds(3, 1)), 0, 2), Track(2, KaryChange(ONE, Odds(3, 1)), 0, 2))),
    "panel": Group((Track(1, KaryResponse(StateSpace(1), Odds(3, 1)), 0, 3),)),
    "joint signed": Group.jointly([Track(1, SignedSubset(ONE, ANY), 0, 3)], Joint(Odds(4, 1), 1, (1,), (2,))),
    "joint panel": Group.jointly(
        [Track(1, KaryResponse(StateSpace(1), ANY), 0, 3)], Joint(Odds(5, 1), 2, (1,), (3,))
    ),
    "joint mix": Group.jointly(
        [Track(2, KaryResponse(StateSpace(1), ANY), 0, 2), Track(1, SignedSubset(ONE, ANY), 0, 2)],
        Joint(Odds(4, 1), 2, (2, 1), (1, 2)),
    ),
}  # fmt: skip


def questions(group: Group, states: States) -> list[tuple[int, int]]:
    """What is asked of an entry with these states at the ends of periods 0 to T, closing by closing."""
    return [
        (place, track.randomizer.space.index(states[track.node(number).start], states[period]))
        for period in range(1, len(states))
        for place, track in enumerate(group.tracks)
        if (number := track.ending_at(period)) is not None
    ]


def worst_ratio_of_lives(group: Group, calendar: Calendar, constraint: Constraint, backups: Sequence[int]) -> Fraction:
    """The largest ratio of the probabilities of all that an entry sends, over all pairs of ways in which it may live.

    backups: for each life after the first, the period at whose end the backup was made that it began with. Each life
    keeps to the constraint, with what the entry did before the backup. Whoever reads the reports knows which belong to
    which life.
    """
    z = group.tracks[0].randomizer.space.answers
    every = [*changelogs(z, calendar, constraint)]
    most: dict[tuple[int, ...], Fraction] = {}
    least: dict[tuple[int, ...], Fraction] = {}
    for first in every:
        later = [[other for other in every if other[: at + 1] == first[: at + 1]] for at in backups]
        for lives in product(*later):
            for sent, likely in _transcripts(group, first, list(zip(backups, lives, strict=True))):
                most[sent] = max(likely, most.get(sent, likely))
                least[sent] = min(likely, least.get(sent, likely))
    return max(most[sent] / least[sent] for sent in most)


def _transcripts(
    group: Group, first: States, later: list[tuple[int, States]]
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every transcript of a first life and those that began with a backup of it, with its probability."""
    asked = questions(group, first)
    for sent in product(*(range(group.tracks[place].randomizer.symbols) for place, _ in asked)):
        known = [(sent, chance(group, asked, sent, first_memory(group)))]
        for at, states in later:
            before = len(questions(group, first[: at + 1]))
            slots = slots_after(group, asked[:before], sent[:before])
            again = questions(group, states)[before:]
            known = [
                ((*whole, *more), likely * chance(group, again, more, slots))
                for whole, likely in known
                for more in product(*(range(group.tracks[place].randomizer.symbols) for place, _ in again))
            ]
        yield from known


@pytest.mark.parametrize("name", GROUPS)
def test_all_lives_together_cost_no_more_than_is_stated(name):
    """Over every pair of ways to live, alike or not before the backup, and all that the lives send; at-most-2.

    A backup made before the first report begins an entry's whole life again, which costs as much again; of a joint
    group it may cost more if it was made later, which is why the ledger counts three times the odds, and not two.
    """
    group = GROUPS[name]
    last = max(track.last for track in group.tracks)
    calendar, constraint, plan = Calendar(0, 10, last), AtMost(2), ReleasePlan((group,))
    once = worst_ratio_of_lives(group, calendar, constraint, [])
    assert log_from_below(once) <= plan_cost(plan, calendar, constraint)
    twice = [worst_ratio_of_lives(group, calendar, constraint, [at]) for at in range(last)]
    assert once <= min(twice)
    assert log_from_below(max(twice)) <= lives_cost(plan, calendar, constraint, lives=2)
    if name != "joint mix" and name != "layers":
        assert twice[0] == once**2
    if name == "joint panel":
        assert log_from_below(twice[1]) > 2 * group.joint.odds.epsilon


@pytest.mark.parametrize("name", ["panel", "joint signed", "joint mix"])
@pytest.mark.parametrize("backups", [(1, 1), (0, 1)])
def test_a_backup_put_back_twice_keeps_to_its_bound(name, backups):
    """Three lives, over two periods."""
    tracks = tuple(Track(track.width, track.randomizer, 0, 2) for track in GROUPS[name].tracks)
    group = Group(tracks, joint=GROUPS[name].joint)
    calendar, constraint, plan = Calendar(0, 10, 2), AtMost(2), ReleasePlan((group,))
    thrice = worst_ratio_of_lives(group, calendar, constraint, backups)
    assert log_from_below(thrice) <= lives_cost(plan, calendar, constraint, lives=3)


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
        slots = slots_after(group, questions(group, states)[: len(sent)], sent)
        coins, expected = SeededCoins(seed), []
        for place, true in questions(group, states)[2:]:
            symbol, slots = respond(group, place, true, slots, coins)
            expected.append((coins.below(2**128).to_bytes(16), symbol))
            coins.below(1000 * asked.spread)
        assert [(closing.id, report.symbol) for closing, (report,) in answers] == expected


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


named = pytest.mark.parametrize("group", JOINT_GROUPS.values(), ids=JOINT_GROUPS.keys())


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
    group = JOINT_GROUPS["weighed"]
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
