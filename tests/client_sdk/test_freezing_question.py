"""The freezing question: what a device answers by itself about the changes that it turns down, and what that tells."""

import pytest
from changeling_client import Recorded
from changeling_client.testing import stored
from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
    lives_cost,
)

from tests.coins import SeededCoins
from tests.enumeration import log_from_below

from .attack import Device, Moment
from .device import START, TRUTHFUL, Clock, FakeServer, client

ANSWERS = ("tea", "coffee", "water")
PERIODS = 4
NULL, NO, YES = range(3)


def asking(constraint: Constraint, *groups: tuple[int, ...], closed: bool = False) -> Survey:
    """A survey whose devices tell every period the truth, of the drink (0), of whether it is frozen (1), or of both.

    groups: the questions of each group.
    """
    drink = Question("drink", "What do you drink?", ANSWERS, constraint)
    questions = (drink, Question.of_freezing(drink))
    plan = ReleasePlan(
        tuple(
            Group(
                tuple(
                    Track(
                        1,
                        KaryResponse(StateSpace(len(questions[place].answers), not closed), TRUTHFUL),
                        0,
                        PERIODS,
                        None,
                        place,
                    )
                    for place in places
                )
            )
            for places in groups
        )
    )
    times = {"skew": 5, "spread": 10, "grace": 10**6, "minimum": 1}
    return Survey.at_cost(questions=questions, calendar=Calendar(START, 60, PERIODS), plan=plan, closed=closed, **times)


def told(server: FakeServer, survey: Survey) -> list[tuple[int, ...]]:
    """The states that were reported at each closing, by the questions."""
    symbols: dict[int, list[int]] = {}
    for report, node, symbol in server.reports():
        space = survey.plan.tracks[report.track].randomizer.space
        symbols.setdefault(node.end, []).append(symbol if space.null else symbol + 1)
    return [tuple(symbols[period]) for period in sorted(symbols)]


def test_a_change_that_is_turned_down_is_told_from_its_period_on(tmp_path):
    """The first answer says no, the change beyond the bound yes, for good; what is the same answer is no change."""
    made, clock = asking(AtMost(2), (0, 1)), Clock(START + 30)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        assert [handle.record(each) for each in ("tea", "coffee", "coffee")] == [
            Recorded.COUNTED,
            Recorded.COUNTED,
            Recorded.UNCHANGED,
        ]
        clock.now = START + 150
        assert handle.record("water") is Recorded.FROZEN
        clock.now = START + 200
        assert handle.record("coffee") is Recorded.UNCHANGED
        assert handle.answer() == "coffee"
        clock.now = made.calendar.time(PERIODS) + 20
        device.flush()
    assert told(server, made) == [(2, NO), (2, NO), (2, YES), (2, YES)]


def test_an_entry_that_is_asked_only_whether_it_is_frozen_counts_its_changes_all_the_same(tmp_path):
    """It reports nothing of the answer, and what it reports is the same as if it did."""
    made, clock = asking(AtMost(2), (1,)), Clock(START + 30)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        for period, answer in enumerate(("tea", "coffee", "tea"), 1):
            clock.now = made.calendar.time(period) - 30
            handle.record(answer)
            clock.now = made.calendar.time(period) + 20
            device.flush()
    assert told(server, made) == [(NO,), (NO,), (YES,)]


def test_before_the_first_answer_nothing_is_said(tmp_path):
    """Who has no answer yet is neither frozen nor not, as for any question."""
    made, clock = asking(AtMost(1), (0, 1)), Clock(START + 30)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        clock.now = START + 90
        handle.record("tea")
        clock.now = START + 150
        handle.retract()
        clock.now = made.calendar.time(PERIODS) + 20
        device.flush()
    assert told(server, made) == [(NULL, NULL), (1, NO), (1, YES), (1, YES)]


def test_what_time_forbids_is_told_as_well(tmp_path):
    """A change later than the constraint's time after the first is turned down, once the time is known."""
    made, clock = asking(TimeBounded(45), (0, 1)), Clock(START + 10)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        handle.record("tea")
        clock.now = START + 50
        assert handle.record("coffee") is Recorded.COUNTED
        clock.now = START + 100
        assert handle.record("water") is Recorded.PENDING
        clock.now = made.calendar.time(PERIODS) + 20
        device.flush()
    assert told(server, made) == [(2, NO), (2, YES), (2, YES), (2, YES)]


def test_in_a_closed_cohort_the_last_answer_stands_and_to_take_it_back_freezes_nothing(tmp_path):
    """It is joined with an answer to the one question that apps answer, and the truth is the last answer given."""
    made, clock = asking(AtMost(2), (0,), (1,), (0, 1), closed=True), Clock(START + 30)
    server = FakeServer(made)
    with client(tmp_path, server, clock, SeededCoins(1)) as device:
        handle = device.join(made.id, entries=12, answers=["tea"] * 12)
        for number in range(12):
            assert handle.retract(entry=number) is Recorded.FROZEN
            assert handle.record("coffee", entry=number) is Recorded.COUNTED
        clock.now = START + 90
        for number in range(6):
            handle.record("water", entry=number)
        clock.now = made.calendar.time(PERIODS) + 20
        device.flush()
        groups = [entry.group for entry, _ in stored(device, made.id)]
    assert set(groups) == {0, 1, 2}
    frozen = [(report.track, node.end, symbol) for report, node, symbol in server.reports() if report.track in (1, 3)]
    expected = sum(1 for group in groups if group) * PERIODS
    assert len(frozen) == expected
    late = [symbol for _, end, symbol in frozen if end > 1]
    assert {symbol for _, end, symbol in frozen if end == 1} == {0}
    assert sum(late) == sum(1 for group in groups[:6] if group) * (PERIODS - 1)


def test_no_app_answers_it(tmp_path):
    """Its name is refused, and the one other question needs none."""
    made = asking(AtMost(2), (0, 1))
    with client(tmp_path, FakeServer(made), Clock(START + 30)) as device:
        handle = device.join(made.id)
        for name in ("drink-frozen", "food"):
            with pytest.raises(ValueError, match="question"):
                handle.question(name).record("yes")
        assert handle.record("tea") is Recorded.COUNTED
        assert handle.question("drink").answer() == "tea"


@pytest.mark.parametrize("known", [True, False], ids=["joined", "not known yet"])
def test_what_is_turned_down_outlives_the_process(tmp_path, known):
    """Whatever was recorded, a client that is opened again reports the same: it is one write with the answer's."""
    made, clock = asking(AtMost(2), (0, 1)), Clock(START + 30)
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id, **({} if known else {"signed": None}))
        for answer in ("tea", "coffee", "water"):
            handle.record(answer)
    clock.now = made.calendar.time(PERIODS) + 20
    with client(tmp_path, server, clock) as device:
        device.join(made.id)
        device.flush()
        device.flush()
    assert told(server, made)[-1] == (2, YES)


def test_a_freezing_question_is_about_one_that_apps_answer_and_no_other_form():
    """Another constraint would freeze it as well, and two about one question would tell the same twice."""
    made = asking(AtMost(2), (0, 1))
    drink, frozen = made.questions
    assert Survey.from_payload(made.payload) == made
    with pytest.raises(ValueError, match="at most two changes"):
        Question("f", "?", ("no", "yes"), AtMost(1), freezing_of="drink")
    for questions in ((frozen,), (drink, frozen, Question.of_freezing(frozen))):
        with pytest.raises(ValueError, match="is about one that apps answer"):
            Survey.at_cost(
                questions=questions,
                calendar=made.calendar,
                plan=ReleasePlan((Group((Track(1, KaryResponse(StateSpace(2), TRUTHFUL), 0, 4),)),)),
                skew=5,
                spread=10,
                grace=600,
                minimum=1,
            )


BEGIN, PERIOD = 1_000, 10
ANY = Odds(2, 1)


def enumerated(name: str) -> Survey:
    """Two periods, one answer or two, and groups about the question, whether it is frozen, or both on one budget."""
    closed = name == "closed"
    constraint = TimeBounded(5) if name == "time" else AtMost(1)
    drink = Question("x", "x?", ("tea", "coffee") if closed else ("tea",), constraint)
    z = len(drink.answers)
    if name in ("states", "closed"):
        of_both = [Track(1, KaryResponse(StateSpace(n, not closed), ANY), 0, 2, None, q) for n, q in ((z, 0), (2, 1))]
    else:
        of_both = [Track(1, KaryChange(MutationSpace(n), ANY), 0, 2, None, q) for n, q in ((z, 0), (2, 1))]
    groups = Group.jointly(of_both, Joint(Odds(5, 1), 3, (1, 1), (2, 2))), Group((of_both[1],))
    return Survey.at_cost(
        questions=(drink, Question.of_freezing(drink)),
        calendar=Calendar(BEGIN, PERIOD, 2),
        plan=ReleasePlan(groups),
        skew=0,
        spread=1,
        grace=12,
        minimum=1,
        closed=closed,
    )


def schedule(*, late: bool = False, twice: bool = True) -> list[Moment]:
    """A record in each period, perhaps twice in the second, and a flush after each, the first perhaps too late."""
    flush = [] if late else [Moment(BEGIN + PERIOD + 2)]
    second = [Moment(BEGIN + PERIOD + at, act=True) for at in ((4, 6) if twice else (4,))]
    return [Moment(BEGIN + 4, act=True), *flush, *second, Moment(BEGIN + 2 * PERIOD + (3 if late else 2))]


@pytest.mark.parametrize("late", [False, True], ids=["in time", "the first too late"])
@pytest.mark.parametrize("name", ["changes", "states", pytest.param("time", marks=pytest.mark.heavy), "closed"])
def test_two_lives_with_other_answers_are_told_apart_within_the_stated_loss_by_all_that_is_said(name, late):
    """Over all that an app may record, and all coins; what the device adds of its own is counted in the stated loss."""
    made = enumerated(name)
    assert log_from_below(Device(made, schedule(late=late), BEGIN - 5).worst_ratio()) <= made.epsilon


@pytest.mark.parametrize("name", ["states", "closed", pytest.param("time", marks=pytest.mark.heavy)])
def test_a_store_that_was_put_back_loses_no_more_than_the_ledger_states(name):
    """A backup is made before the first closing, and both lives record at will."""
    made = enumerated(name)
    stated = lives_cost(made.plan, made.calendar, made.constraints, lives=2)
    assert log_from_below(Device(made, schedule(twice=False), BEGIN - 5).worst_ratio(backup=1)) <= stated
