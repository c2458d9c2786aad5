"""Everything that a device sends, over all its coins, while clocks leap, apps misbehave and copies come back.

The laws are read off the client's own code (`attack`). Nothing here knows how a joint response or a history is drawn,
or how questions share a budget.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

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
    ReleasePlan,
    SignedSubset,
    StateSpace,
    StratumNumber,
    SubsetSelection,
    Survey,
    TimeBounded,
    Track,
    lives_cost,
)

from tests.enumeration import log_from_below

from .attack import Device, Moment

ANY, ONE = Odds(2, 1), MutationSpace(1)
HALF = Fraction(1, 2)
BEGIN, PERIOD = 1_000, 10


def jointly(*tracks: Track, odds: int, threshold: int, weights: tuple[int, ...], slots: tuple[int, ...]) -> Group:
    return Group.jointly(tracks, Joint(Odds(odds, 1), threshold, weights, slots))


def asking(
    *groups: Group,
    periods: int,
    answers: int = 1,
    constraint: Constraint = AtMost(2),  # noqa: B008
    closed: bool = False,
    questions: tuple[Question, ...] = (),
    grace: int = 12,
) -> Survey:
    questions = questions or (Question("which", "Which?", tuple("ab"[:answers]), constraint),)
    return Survey.at_cost(
        questions=questions,
        calendar=Calendar(BEGIN, PERIOD, periods),
        plan=ReleasePlan(groups),
        skew=0,
        spread=1,
        grace=grace,
        minimum=1,
        closed=closed,
    )


SURVEYS = {
    "a change at random, a state": asking(
        jointly(
            Track(1, SignedSubset(ONE, ANY, spoken=HALF), 0, 3, reported=2),
            Track(3, KaryResponse(StateSpace(1), ANY), 0, 3),
            odds=5, threshold=3, weights=(1, 2), slots=(2, 1),
        ),
        periods=3,
    ),
    "layers": asking(
        jointly(
            Track(1, KaryChange(ONE, ANY), 0, 2),
            Track(2, SignedSubset(ONE, ANY), 0, 2),
            odds=4, threshold=2, weights=(1, 1), slots=(2, 1),
        ),
        periods=2,
    ),
    "more slots than are used": asking(
        jointly(Track(1, KaryChange(ONE, ANY), 0, 3), odds=3, threshold=2, weights=(1,), slots=(4,)), periods=3
    ),
    "fewer changes than nodes": asking(
        jointly(Track(1, SignedSubset(ONE, ANY), 0, 4), odds=3, threshold=1, weights=(1,), slots=(1,)),
        periods=4, constraint=AtMost(1),
    ),
    "time-bounded": asking(
        jointly(Track(1, SignedSubset(ONE, ANY), 0, 3), odds=4, threshold=1, weights=(2,), slots=(2,)),
        periods=3, constraint=TimeBounded(10),
    ),
    "each by itself": asking(Group((Track(1, KaryResponse(ONE, Odds(3, 2)), 0, 3),)), periods=3),
    "states of a panel": asking(
        jointly(
            Track(1, KaryResponse(StateSpace(1), ANY), 0, 3), odds=5, threshold=2, weights=(1,), slots=(3,)
        ),
        periods=3,
    ),
    "hybrid, a group each": asking(
        jointly(Track(1, SignedSubset(ONE, ANY), 0, 3), odds=4, threshold=2, weights=(1,), slots=(2,)),
        Group((Track(3, KaryResponse(StateSpace(1), Odds(3, 1)), 0, 3),)),
        periods=3, constraint=Hybrid((AtMost(2), TimeBounded(5))),
    ),
    "closed, moves after a state": asking(
        jointly(
            Track(1, SubsetSelection(StateSpace(2, null=False), ANY, 1), 0, 1),
            Track(1, SignedSubset(MutationSpace(2, null=False), ANY, spoken=Fraction(2, 3)), 1, 3),
            odds=6, threshold=2, weights=(1, 1), slots=(1, 1),
        ),
        periods=3, answers=2, closed=True,
    ),
    "sets of two states": asking(
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
    """The largest ratio of an entry that enrols before the survey begins."""
    asked = SURVEYS[name]
    return Device(asked, schedule(asked.calendar.periods), BEGIN - 5).worst_ratio()


@pytest.mark.parametrize("schedule", [honest, set_back, heard, offline])
@pytest.mark.parametrize("name", SURVEYS)
def test_nothing_that_is_sent_tells_two_changelogs_apart_beyond_the_stated_loss(name, schedule):
    """Over all that an app may record at each moment, too often or after the end included, and all coins: the uploads'
    sizes, number and contents, and what is dropped, are at most e^ε times likelier for the one than for the other. In a
    joint group that nothing keeps from its slots some pair reaches exactly that."""
    assert log_from_below(worst(name, schedule)) <= SURVEYS[name].epsilon
    joint = SURVEYS[name].plan.groups[0].joint
    if schedule is honest and joint is not None:
        assert (worst(name, honest) == joint.odds.favoured) is (name != "more slots than are used")


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
    moments = schedule(SURVEYS[name].calendar.periods)
    told = replace(SURVEYS[name], breakdowns=BREAKDOWNS, stratum_changes=1)
    changed = [*moments[:-1], replace(moments[-1], tells=StratumNumber(5))]
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
    return asking(Group.of_history(history, z), other, periods=periods, **options)


def moments_of(acts: tuple[float, ...], flushes: tuple[float, ...]) -> list[Moment]:
    """Those at which the app may record, and at which it flushes, in periods; the last flush hears the time."""
    *before, last = (Moment(BEGIN + PERIOD * time, act=time in acts) for time in sorted((*acts, *flushes)))
    return [*before, replace(last, hears=int(last.now))]


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
        device = Device(made, moments_of(acts, flushes), BEGIN + PERIOD * enrols + 0.5, idle=False)
        worst = device.worst_ratio()
        assert worst <= 3
        assert worst == 3 or enrols or "too late" in how  # where reports are dropped, less is told


COPIES = {
    "in the second period": ((3, 0),),
    "a copy of a copy": ((1, 0), (3, 1)),
    "two of the first": ((1, 0), (3, 0)),
}
"""Before which moment of `moments_of`, and of which life."""


@pytest.mark.parametrize(
    "copies", ["in the second period", *(pytest.param(each, marks=pytest.mark.heavy) for each in [*COPIES][1:])]
)
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_lives_that_begin_with_copies_of_copies_cost_the_odds_of_a_history_once_each(copies, closed):
    """A copy of the store made at a time, of a life that was itself begun with a copy, and lived on with other answers:
    n lives are told apart by at most 3^n, whatever each of them attempts."""
    periods = 2 if closed and len(COPIES[copies]) > 1 else 3
    moments = moments_of((0.3, 1.6, 2.6)[:periods], (1.5, 2.5, 3.5)[:periods])
    device = Device(history_of(AtMost(2), closed, periods), moments, BEGIN - 5, idle=False)
    assert 3 < device.worst_ratio(*COPIES[copies]) <= 3 ** (1 + len(COPIES[copies]))


@pytest.mark.parametrize("backup", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["layers", "closed, moves after a state", "fewer changes than nodes", "each by itself"]
)
def test_two_lives_lose_no_more_together_than_the_ledger_states(name, backup):
    """A backup made before a moment, put back when the first life has ended; each life records what it likes."""
    asked = SURVEYS[name]
    schedule = honest(asked.calendar.periods)[:4]
    stated = lives_cost(asked.plan, asked.calendar, asked.constraint, asked.closed, lives=2)
    assert log_from_below(Device(asked, schedule, BEGIN - 5).worst_ratio((backup, 0))) <= stated


@pytest.mark.heavy
def test_a_backup_of_a_joint_group_can_cost_more_than_its_odds_twice():
    """Which is why the ledger counts three times the odds: of one that was made after a report. Each by itself, and
    before the first, it is exactly twice. Put back twice, it keeps to the bound on three lives."""
    moments = moments_of((0.5, 1.5), (1.2, 2.2, 3.2))
    joint, apart, few = (SURVEYS[name] for name in ("states of a panel", "each by itself", "fewer changes than nodes"))
    twice = log_from_below(Device(joint, moments, BEGIN - 5, idle=False).worst_ratio((2, 0)))
    assert 2 * joint.plan.groups[0].joint.odds.epsilon < twice
    assert twice <= lives_cost(joint.plan, joint.calendar, joint.constraint, lives=2)
    device = Device(apart, moments, BEGIN - 5)
    assert device.worst_ratio((0, 0)) == device.worst_ratio() ** 2
    stated = lives_cost(few.plan, few.calendar, few.constraint, lives=3)
    device = Device(few, honest(2), BEGIN - 5, idle=False)
    for copies in (((2, 0), (2, 0)), ((0, 0), (2, 0))):
        assert log_from_below(device.worst_ratio(*copies)) <= stated


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
    "changes of one, states of the other": asking(
        jointly(changes(0), states(1), odds=5, threshold=3, weights=(2, 1), slots=(1, 2)), questions=TWO, periods=2
    ),
    "bounds of both kinds": asking(
        jointly(changes(0), changes(1), odds=4, threshold=3, weights=(1, 2), slots=(2, 1)), questions=BOTH, periods=2
    ),
    "each by itself": asking(Group((changes(0), states(1, width=2))), questions=TWO, periods=2),
    "a history of one, or a panel of the other": asking(
        OF_ONE,
        jointly(states(0, reported=1), changes(1), odds=6, threshold=2, weights=(1, 1), slots=(1, 2)),
        questions=TWO,
        periods=2,
    ),
    "a number": asking(
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
    device = Device(SEVERAL[name], recording(0.4, late=late), BEGIN - 5, numbers=NUMBERS[1:])
    assert log_from_below(device.worst_ratio()) <= SEVERAL[name].epsilon


@pytest.mark.heavy
@pytest.mark.parametrize("name", SEVERAL)
def test_what_all_questions_cost_together_is_reached_and_no_more_where_answers_change_within_a_period(name):
    """Both questions may change in the first period, or one twice; all of a joint group's one budget is spent."""
    device = Device(SEVERAL[name], recording(0.3, 0.4), BEGIN - 5, numbers=NUMBERS)
    worst, joint = device.worst_ratio(), SEVERAL[name].plan.groups[-1].joint
    assert log_from_below(worst) <= SEVERAL[name].epsilon
    assert joint is None or worst == joint.odds.favoured


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", ["bounds of both kinds", "each by itself", "a history of one, or a panel of the other"]
)
def test_two_lives_lose_no_more_about_all_questions_than_the_ledger_states(name):
    """A backup is made before the first closing, and goes on when the first life has ended; each records at will."""
    made = SEVERAL[name]
    stated = lives_cost(made.plan, made.calendar, made.constraints, lives=2)
    assert log_from_below(Device(made, recording(0.4), BEGIN - 5, idle=False).worst_ratio((1, 0))) <= stated
