"""Everything that a device sends, over all its coins, while clocks leap, apps misbehave and copies come back.

The laws are read off the client's own code (`attack`), which knows nothing of how a joint response or a history is
drawn, or how questions share a budget. Then the law of a joint group and of a backup, symbol by symbol.
"""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from itertools import product

import pytest
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Breakdown,
    Calendar,
    Constraint,
    Group,
    History,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    SignedSubset,
    StateSpace,
    StratumNumber,
    SubsetSelection,
    Survey,
    TimeBounded,
    Track,
    lives_cost,
    micro,
    respond,
)
from changeling_statistics.testing import questions, transcripts, worst_of_laws

from tests.coins import SeededCoins
from tests.enumeration import defined_law, log_from_below

from ..protocol.examples import mixed
from .attack import Device, Moment, moments
from .device import LATE, PLAIN, START, asking

ANY, ONE = Odds(2, 1), MutationSpace(1)
HALF = Fraction(1, 2)
BEGIN, PERIOD = 1_000, 10


def jointly(*tracks: Track, odds: int, threshold: int, weights: tuple[int, ...], slots: tuple[int, ...]) -> Group:
    return Group.jointly(tracks, Joint(Odds(odds, 1), threshold, weights, slots))


few_periods = partial(asking, start=BEGIN, period=PERIOD, skew=0, spread=1, grace=12, answers=1, constraint=AtMost(2))


SURVEYS = {
    "a change at random, a state": few_periods(
        jointly(
            Track(1, SignedSubset(ONE, ANY, spoken=HALF), 0, 3, reported=2),
            Track(3, KaryResponse(StateSpace(1), ANY), 0, 3),
            odds=5, threshold=3, weights=(1, 2), slots=(2, 1),
        ),
        periods=3,
    ),
    "layers": few_periods(
        jointly(
            Track(1, KaryChange(ONE, ANY), 0, 2),
            Track(2, SignedSubset(ONE, ANY), 0, 2),
            odds=4, threshold=2, weights=(1, 1), slots=(2, 1),
        ),
        periods=2,
    ),
    "more slots than are used": few_periods(
        jointly(Track(1, KaryChange(ONE, ANY), 0, 3), odds=3, threshold=2, weights=(1,), slots=(4,)), periods=3
    ),
    "fewer changes than nodes": few_periods(
        jointly(Track(1, SignedSubset(ONE, ANY), 0, 4), odds=3, threshold=1, weights=(1,), slots=(1,)),
        periods=4, constraint=AtMost(1),
    ),
    "time-bounded": few_periods(
        jointly(Track(1, SignedSubset(ONE, ANY), 0, 3), odds=4, threshold=1, weights=(2,), slots=(2,)),
        periods=3, constraint=TimeBounded(10),
    ),
    "each by itself": few_periods(Group((Track(1, KaryResponse(ONE, Odds(3, 2)), 0, 3),)), periods=3),
    "states of a panel": few_periods(
        jointly(
            Track(1, KaryResponse(StateSpace(1), ANY), 0, 3), odds=5, threshold=2, weights=(1,), slots=(3,)
        ),
        periods=3,
    ),
    "hybrid, a group each": few_periods(
        jointly(Track(1, SignedSubset(ONE, ANY), 0, 3), odds=4, threshold=2, weights=(1,), slots=(2,)),
        Group((Track(3, KaryResponse(StateSpace(1), Odds(3, 1)), 0, 3),)),
        periods=3, constraint=Hybrid((AtMost(2), TimeBounded(5))),
    ),
    "closed, moves after a state": few_periods(
        jointly(
            Track(1, SubsetSelection(StateSpace(2, null=False), ANY, 1), 0, 1),
            Track(1, SignedSubset(MutationSpace(2, null=False), ANY, spoken=Fraction(2, 3)), 1, 3),
            odds=6, threshold=2, weights=(1, 1), slots=(1, 1),
        ),
        periods=3, answers=2, closed=True,
    ),
    "sets of two states": few_periods(
        jointly(Track(1, SubsetSelection(StateSpace(2), ANY, 2), 0, 2), odds=5, threshold=2, weights=(1,), slots=(2,)),
        periods=2, answers=2,
    ),
}  # fmt: skip


def honest(periods: int, *, odd: float = -5) -> list[Moment]:
    """The app may record once in each period, and flushes after it."""
    return [
        moment
        for period in range(1, periods + 1)
        for moment in (Moment(BEGIN + PERIOD * period + odd, act=True), Moment(BEGIN + PERIOD * period + 2))
    ]


def set_back(periods: int) -> list[Moment]:
    """Each flush sees a clock that is nine seconds ahead, each record the true time; what is late is dropped."""
    return [
        moment
        for period in range(1, periods + 1)
        for moment in (Moment(BEGIN + PERIOD * period - 4, act=True), Moment(BEGIN + PERIOD * period + 9))
    ] + [Moment(BEGIN + PERIOD * periods + 2)]


def heard(periods: int) -> list[Moment]:
    """Records are dated by a clock that is ahead until, at the second flush, the server tells the time."""
    return [
        *honest(periods)[:2],
        Moment(BEGIN + PERIOD * periods - 1, act=True),
        Moment(BEGIN + 12, hears=BEGIN + 12),
        *honest(periods)[2:],
    ]


def offline(periods: int) -> list[Moment]:
    """One record at the bound of a period and one just after it; the first flush comes when some of it is too late."""
    return [
        Moment(BEGIN + PERIOD, act=True),
        Moment(BEGIN + PERIOD + 0.001, act=True),
        Moment(BEGIN + PERIOD * periods + 1, act=True),
        Moment(BEGIN + PERIOD * periods + 4, may_drop=False),
        Moment(BEGIN + PERIOD * periods + 5, hears=BEGIN + PERIOD * periods + 5),
    ]


@cache
def worst(name: str, schedule: Callable[[int], list[Moment]]) -> Fraction:
    """The largest ratio of an entry that enrols before the survey begins, which is within the stated loss."""
    asked = SURVEYS[name]
    return Device(asked, schedule(asked.calendar.periods), BEGIN - 5).within_the_stated_loss()


@pytest.mark.parametrize("schedule", [honest, set_back, heard, offline])
@pytest.mark.parametrize("name", SURVEYS)
def test_nothing_that_is_sent_tells_two_changelogs_apart_beyond_the_stated_loss(name, schedule):
    """Over all that an app may record at each moment, too often or after the end included, and all coins: the uploads'
    sizes, number and contents, and what is dropped, are at most e^ε times likelier for the one than for the other. In a
    joint group that nothing keeps from its slots some pair reaches exactly that."""
    ratio, joint = worst(name, schedule), SURVEYS[name].plan.groups[0].joint
    if schedule is honest and joint is not None:
        assert (ratio == joint.odds.favoured) is (name != "more slots than are used")


@pytest.mark.parametrize("late", [BEGIN + 5, BEGIN + PERIOD + 5], ids=["in the first", "in the second"])
def test_an_entry_that_enrols_late_loses_no_more(late):
    """Whether it enrols within a node or after some have closed."""
    asked = SURVEYS["a change at random, a state"]
    assert Device(asked, honest(3), late, delay=999).worst_ratio() <= 5


BREAKDOWNS = (Breakdown("system", ("linux", "mac", "windows")), Breakdown("channel", ("release", "beta")))


@pytest.mark.parametrize("name", SURVEYS)
def test_strata_change_nothing_of_the_loss(name):
    """The same fraction where strata and standings are seen too: the app tells the first of six strata as the entry
    enrols, and another before the last flush."""
    schedule = (honest, set_back, heard, offline)[[*SURVEYS].index(name) % 4]
    before = schedule(SURVEYS[name].calendar.periods)
    told = replace(SURVEYS[name], breakdowns=BREAKDOWNS, stratum_changes=1)
    changed = [*before[:-1], replace(before[-1], tells=StratumNumber(5))]
    assert Device(told, changed, BEGIN - 5).worst_ratio() == worst(name, schedule)


HISTORY = Odds(3, 1)
CONSTRAINTS = (
    AtMost(2),
    AtMostWithin(2, 11),
    TimeBounded(10),
    Hybrid((AtMost(2), TimeBounded(6))),
    Hybrid((AtMost(1), AtMost(2))),
)
HOW: dict[str, tuple[tuple[float, ...], int, int, int]] = {
    "as each closes": ((1.5, 2.5, 3.5), 1, 1, 10**6),
    "late and all at once": ((3.5,), 1, 1, 10**6),
    "too late for some": ((1.5, 3.5), 1, 1, 14),
    "every other, from the second": ((1.5, 2.5, 3.5), 2, 2, 14),
}
"""When it flushes, in periods; at which closings of which it has a report, and from which on; and the grace."""


def history_of(
    constraint: Constraint, closed: bool, periods: int = 3, every: int = 1, first: int = 1, grace: int = 10**6
) -> Survey:
    """A history group beside another one, which costs nothing, at whose closings an entry of the first may have no
    report."""
    calendar, z = Calendar(BEGIN, PERIOD, periods), 1 + closed
    history = History.of(HISTORY, range(first, periods + 1, every), constraint, calendar, closed)
    other = Group((Track(1, KaryResponse(StateSpace(z, not closed), Odds(1, 1)), 0, periods),))
    options = {"answers": z, "constraint": constraint, "closed": closed, "grace": grace}
    return few_periods(Group.of_history(history, z), other, periods=periods, **options)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize(
    "constraint",
    [pytest.param(each, marks=[pytest.mark.heavy] * (each not in CONSTRAINTS[:2])) for each in CONSTRAINTS],
)
def test_no_attempts_at_a_history_are_told_apart_beyond_its_odds(constraint, closed, how):
    """Two attempts in some period, entries that enrol at the start and later; the odds are reached where nothing is
    dropped."""
    flushes, every, first, grace = HOW[how]
    made = history_of(constraint, closed, 3, every, first, grace)
    for enrols in (0,) if closed else (0, 1):
        acts = tuple(time for time in (0.3, 0.8, 1.3, 2.3) if time > enrols)
        device = Device(made, moments(BEGIN, PERIOD, acts, flushes), BEGIN + PERIOD * enrols + 0.5, idle=False)
        worst = device.worst_ratio()
        assert worst <= 3
        assert worst == 3 or enrols or "too late" in how  # where reports are dropped, less is told


COPIES = {"in the second period": ((3, 0),), "a copy of a copy": ((1, 0), (3, 1)), "two of the first": ((1, 0), (3, 0))}
"""Before which moment of `moments`, and of which life."""


@pytest.mark.parametrize(
    "copies", ["in the second period", *(pytest.param(each, marks=pytest.mark.heavy) for each in [*COPIES][1:])]
)
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_lives_that_begin_with_copies_of_copies_cost_the_odds_of_a_history_once_each(copies, closed):
    """A copy of the store made at a time, of a life that was itself begun with a copy, and lived on with other answers:
    n lives are told apart by at most 3^n, whatever each of them attempts."""
    periods = 2 if closed and len(COPIES[copies]) > 1 else 3
    schedule = moments(BEGIN, PERIOD, (0.3, 1.6, 2.6)[:periods], (1.5, 2.5, 3.5)[:periods])
    device = Device(history_of(AtMost(2), closed, periods), schedule, BEGIN - 5, idle=False)
    assert 3 < device.worst_ratio(*COPIES[copies]) <= 3 ** (1 + len(COPIES[copies]))


@pytest.mark.parametrize("backup", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["layers", "closed, moves after a state", "fewer changes than nodes", "each by itself"]
)
def test_two_lives_lose_no_more_together_than_the_ledger_states(name, backup):
    """A backup made before a moment, put back when the first life has ended; each life records what it likes."""
    asked = SURVEYS[name]
    schedule = honest(asked.calendar.periods)[:4]
    Device(asked, schedule, BEGIN - 5).within_the_stated_loss((backup, 0))


@pytest.mark.heavy
def test_a_backup_of_a_joint_group_can_cost_more_than_its_odds_twice():
    """Which is why the ledger counts three times the odds: of one that was made after a report. Each by itself, and
    before the first, it is exactly twice. Put back twice, it keeps to the bound on three lives."""
    schedule = moments(BEGIN, PERIOD, (0.5, 1.5), (1.2, 2.2, 3.2))
    joint, apart, few = (SURVEYS[name] for name in ("states of a panel", "each by itself", "fewer changes than nodes"))
    assert Device(joint, schedule, BEGIN - 5, idle=False).within_the_stated_loss((2, 0)) > 5**2
    device = Device(apart, schedule, BEGIN - 5)
    assert device.worst_ratio((0, 0)) == device.worst_ratio() ** 2
    device = Device(few, honest(2), BEGIN - 5, idle=False)
    for copies in (((2, 0), (2, 0)), ((0, 0), (2, 0))):
        device.within_the_stated_loss(*copies)


def one(name: str, constraint: Constraint) -> Question:
    return Question(name, f"{name}?", ("yes",), constraint)


def changes(question: int) -> Track:
    return Track(1, KaryChange(ONE, ANY), 0, 2, question=question)


def states(question: int, width: int = 1, reported: int | None = None, answers: int = 1) -> Track:
    return Track(width, KaryResponse(StateSpace(answers), ANY), 0, 2, reported, question)


NUMBERS = (1.5, 4.0, 900.0)
"""Between the thresholds of 0 and 10 minutes for some of the offsets, and beyond the last level."""
TWO = one("x", AtMost(1)), one("y", AtMost(2))
BOTH = one("x", TimeBounded(5)), one("y", AtMost(1))
NUMBER = Question.of_number("minutes", "How long?", ["0", "10"], AtMost(2), "min"), one("y", AtMost(1))
CALENDAR = Calendar(BEGIN, PERIOD, 2)
OF_ONE = Group.of_history(History.of(Odds(6, 1), range(1, 3), AtMost(2), CALENDAR, closed=False), 1, question=1)
SEVERAL = {
    "changes of one, states of the other": few_periods(
        jointly(changes(0), states(1), odds=5, threshold=3, weights=(2, 1), slots=(1, 2)), questions=TWO, periods=2
    ),
    "bounds of both kinds": few_periods(
        jointly(changes(0), changes(1), odds=4, threshold=3, weights=(1, 2), slots=(2, 1)), questions=BOTH, periods=2
    ),
    "each by itself": few_periods(Group((changes(0), states(1, width=2))), questions=TWO, periods=2),
    "a history of one, or a panel of the other": few_periods(
        OF_ONE,
        jointly(states(0, reported=1), changes(1), odds=6, threshold=2, weights=(1, 1), slots=(1, 2)),
        questions=TWO,
        periods=2,
    ),
    "a number": few_periods(
        jointly(states(0, width=2, answers=2), changes(1), odds=3, threshold=2, weights=(1, 1), slots=(1, 1)),
        questions=NUMBER,
        periods=2,
    ),
}
"""Surveys of two questions that share one budget."""


def recording(*first: float, late: bool = False) -> list[Moment]:
    """A record of whichever question at these times of the first period and one in the second, and a flush after each
    period; late, the first closing is past its grace before anything is flushed."""
    return [
        *(Moment(BEGIN + PERIOD * at, act=True) for at in first),
        *([] if late else [Moment(BEGIN + PERIOD + 2)]),
        Moment(BEGIN + PERIOD + 5, act=True),
        Moment(BEGIN + 2 * PERIOD + (3 if late else 2)),
    ]


@pytest.mark.parametrize("late", [False, True], ids=["in time", "the first too late"])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.heavy] * (each == "a number")) for each in SEVERAL]
)
def test_nothing_that_is_sent_about_all_questions_tells_two_lives_apart_beyond_the_stated_loss(name, late):
    """Over all that an app may record of either question, and all coins: group, offset, nodes and symbols together."""
    Device(SEVERAL[name], recording(0.4, late=late), BEGIN - 5, numbers=NUMBERS[1:]).within_the_stated_loss()


@pytest.mark.heavy
@pytest.mark.parametrize("name", SEVERAL)
def test_what_all_questions_cost_together_is_reached_and_no_more_where_answers_change_within_a_period(name):
    """Both questions may change in the first period, or one twice; all of a joint group's one budget is spent."""
    device = Device(SEVERAL[name], recording(0.3, 0.4), BEGIN - 5, numbers=NUMBERS)
    worst, joint = device.within_the_stated_loss(), SEVERAL[name].plan.groups[-1].joint
    assert joint is None or worst == joint.odds.favoured


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", ["bounds of both kinds", "each by itself", "a history of one, or a panel of the other"]
)
def test_two_lives_lose_no_more_about_all_questions_than_the_ledger_states(name):
    """A backup is made before the first closing, and goes on when the first life has ended; each records at will."""
    Device(SEVERAL[name], recording(0.4), BEGIN - 5, idle=False).within_the_stated_loss((1, 0))


JOINT = Joint(Odds(50, 1), 2, (1,), (3,))


def test_the_ledger_says_what_a_backup_put_back_can_have_cost(begin):
    """Twice the cost where each report is drawn by itself, three times where they are drawn jointly, rounded up."""
    joint = asking(Group.jointly([Track(1, SignedSubset(MutationSpace(3), ANY), 0, 8)], JOINT))
    plans = {PLAIN: 2, asking(*mixed(3, 8).groups): 2, joint: 3}
    device = begin(*plans).device
    for asked, times in plans.items():
        ledger = device.join(asked.id).ledger()
        assert ledger.epsilon == asked.epsilon
        assert ledger.per_week == asked.per_week >= asked.epsilon * 604_800 / (8 * 60)
        assert abs(ledger.epsilon_if_restored - times * asked.cost) <= Decimal("0.000001")
        assert ledger.epsilon_if_restored >= lives_cost(asked.plan, asked.calendar, asked.constraint, lives=2)
        assert micro(ledger.epsilon_if_restored) == ledger.epsilon_if_restored * 10**6


@pytest.mark.parametrize("joint", [False, True], ids=["plain", "joint"])
def test_a_restored_backup_answers_again_under_new_ids_and_from_fresh_coins(tmp_path, joined, begin, joint):
    """No id of one life is in another, whatever was recorded: no symbol of the one can be laid beside one of the other
    as if a single draw had given both. With scripted coins each life's reports are exactly those drawn."""
    track = Track(1, SignedSubset(MutationSpace(3), Odds(3, 1)), 0, 8)
    group = Group.jointly([track], JOINT) if joint else Group((track,))
    asked = asking(group)
    handle, device, server, _ = joined(asked, coins=SeededCoins(1))
    handle.record("tea")
    device.at(START + 140).flush()
    device.close()
    backup, before, ids = (tmp_path / "store.db").read_bytes(), server.answers(), []
    sent = [report.symbol for _, (report,) in before]
    for seed, state, answer in ((7, 2, "coffee"), (8, 3, "neither")):
        (tmp_path / "store.db").write_bytes(backup)
        server.bodies.clear()
        device = begin(server=server, now=START + 150, coins=SeededCoins(seed)).device
        device.join(asked.id).record(answer)
        device.at(LATE).flush()
        device.close()
        states = (0, 1, 1, *[state] * 6)
        _, slots = transcripts(group, questions(group, states)[: len(sent)])[tuple(sent)]
        coins, expected = SeededCoins(seed), []
        for place, true in questions(group, states)[2:]:
            symbol, slots = respond(group, place, true, slots, coins)
            expected.append((coins.below(2**128).to_bytes(16), symbol))
            coins.below(1000 * asked.spread)
        assert [(closing.id, report.symbol) for closing, (report,) in server.answers()] == expected
        ids += [id_ for id_, _ in expected]
    assert len({*ids, *(closing.id for closing, _ in before)}) == 2 + 6 + 6


JOINT_GROUPS = {
    "states": Group.jointly([Track(1, KaryResponse(StateSpace(2), ANY), 0, 3)], Joint(Odds(7, 2), 2, (1,), (3,))),
    "sets": Group.jointly([Track(1, SubsetSelection(StateSpace(2), ANY, 2), 0, 3)], Joint(Odds(3, 1), 3, (1,), (3,))),
    "changes": Group.jointly([Track(1, SignedSubset(ONE, ANY), 0, 4)], Joint(Odds(5, 1), 1, (1,), (2,))),
    "changes with silence": Group.jointly(
        [Track(1, SignedSubset(ONE, ANY, spoken=Fraction(2, 3)), 0, 3)], Joint(Odds(5, 1), 2, (1,), (2,))
    ),
    "mutations": Group.jointly([Track(1, KaryChange(ONE, ANY), 0, 3)], Joint(Odds(4, 1), 1, (1,), (2,))),
    "moves": Group.jointly(
        [Track(1, SignedSubset(MutationSpace(2, null=False), ANY), 1, 4)], Joint(Odds(4, 1), 2, (1,), (2,))
    ),
    "weighed": Group.jointly(
        [Track(2, KaryResponse(StateSpace(2, null=False), ANY), 0, 4), Track(1, SignedSubset(ONE, ANY), 0, 2)],
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
