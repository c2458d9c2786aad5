"""Surveys of several questions and of numbers under attack: what is sent, when, and what is left on the device.

The laws are read off the client's own code (`attack`); nothing here knows how questions share a budget.
"""

import pytest
from changeling_client import BadEnrolment, Recorded
from changeling_client.testing import stored
from changeling_protocol import (
    AtMost,
    Calendar,
    Constraint,
    Group,
    History,
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
from .device import LATE, START, URL, Clock, FakeServer, client
from .test_handover_attacked import Middle
from .test_questions import asked as drink_and_minutes

BEGIN, PERIOD = 1_000, 10
ANY = Odds(2, 1)
NUMBERS = (1.5, 4.0, 900.0)
"""Between the thresholds of 0 and 10 minutes for some of the offsets, and beyond the last level."""


def one(name: str, constraint: Constraint) -> Question:
    return Question(name, f"{name}?", ("yes",), constraint)


def changes(question: int, last: int = 2) -> Track:
    return Track(1, KaryChange(MutationSpace(1), ANY), 0, last, question=question)


def states(question: int, width: int = 1, reported: int | None = None, answers: int = 1) -> Track:
    return Track(width, KaryResponse(StateSpace(answers), ANY), 0, 2, reported, question)


def asking(questions: tuple[Question, ...], *groups: Group, closed: bool = False) -> Survey:
    return Survey.at_cost(
        questions=questions,
        calendar=Calendar(BEGIN, PERIOD, 2),
        plan=ReleasePlan(groups),
        skew=0,
        spread=1,
        grace=12,
        minimum=1,
        closed=closed,
    )


TWO = one("x", AtMost(1)), one("y", AtMost(2))
MINUTES = Question.of_number("minutes", "How long?", ["0", "10"], AtMost(2), "min")
SURVEYS = {
    "changes of one, states of the other": asking(
        TWO, Group.jointly([changes(0), states(1)], Joint(Odds(5, 1), 3, (2, 1), (1, 2)))
    ),
    "bounds of both kinds": asking(
        (one("x", TimeBounded(5)), one("y", AtMost(1))),
        Group.jointly([changes(0), changes(1)], Joint(Odds(4, 1), 3, (1, 2), (2, 1))),
    ),
    "each by itself": asking(TWO, Group((changes(0), states(1, width=2)))),
    "a history of one, or a panel of the other": asking(
        TWO,
        Group.of_history(
            History.of(Odds(6, 1), range(1, 3), AtMost(2), Calendar(BEGIN, PERIOD, 2), closed=False), 1, question=1
        ),
        Group.jointly([states(0, reported=1), changes(1)], Joint(Odds(6, 1), 2, (1, 1), (1, 2))),
    ),
    "a number": asking(
        (MINUTES, one("y", AtMost(1))),
        Group.jointly([states(0, width=2, answers=2), changes(1)], Joint(Odds(3, 1), 2, (1, 1), (1, 1))),
    ),
}


def schedule(*, late: bool = False, first: tuple[int, ...] = (4,)) -> list[Moment]:
    """A record of whichever question in each period, and a flush after it.

    late: the first flush comes when the first closing is past its grace. first: when records are in the first period.
    """
    flush = [] if late else [Moment(BEGIN + PERIOD + 2)]
    second = [Moment(BEGIN + PERIOD + 5, act=True), Moment(BEGIN + 2 * PERIOD + (3 if late else 2))]
    return [*(Moment(BEGIN + at, act=True) for at in first), *flush, *second]


@pytest.mark.parametrize("late", [False, True], ids=["in time", "the first too late"])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.heavy] * (each == "a number")) for each in SURVEYS]
)
def test_nothing_that_is_sent_about_all_questions_tells_two_lives_apart_beyond_the_stated_loss(name, late):
    """Over all that an app may record of either question, and all coins: group, offset, nodes and symbols together."""
    device = Device(SURVEYS[name], schedule(late=late), BEGIN - 5, numbers=NUMBERS[1:])
    assert log_from_below(device.worst_ratio()) <= SURVEYS[name].epsilon


@pytest.mark.heavy
@pytest.mark.parametrize("name", SURVEYS)
def test_what_all_questions_cost_together_is_reached_and_no_more_where_answers_change_within_a_period(name):
    """Both questions may change in the first period, or one twice; all of a joint group's one budget is spent."""
    device = Device(SURVEYS[name], schedule(first=(3, 4)), BEGIN - 5, numbers=NUMBERS)
    worst, joint = device.worst_ratio(), SURVEYS[name].plan.groups[-1].joint
    assert log_from_below(worst) <= SURVEYS[name].epsilon
    assert joint is None or worst == joint.odds.favoured


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", ["bounds of both kinds", "each by itself", "a history of one, or a panel of the other"]
)
def test_two_lives_lose_no_more_about_all_questions_than_the_ledger_states(name):
    """A backup is made before the first closing, and goes on when the first life has ended; each records at will."""
    made = SURVEYS[name]
    stated = lives_cost(made.plan, made.calendar, made.constraints, lives=2)
    assert log_from_below(Device(made, schedule(), BEGIN - 5).worst_ratio(backup=1)) <= stated


def test_after_the_end_a_record_of_any_question_changes_nothing_and_no_count_of_numbers_is_left(tmp_path):
    """Nor while the last answers wait to be sent: it is FROZEN, and no answer is known."""
    made, clock = drink_and_minutes(), Clock()
    server = FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        minutes = handle.question("minutes")
        minutes.record(500)
        assert handle.ledger().clipped == 1
        server.refused = [[at, "unknown-key"] for at in range(64)]
        clock.now = LATE
        assert device.flush().waiting
        for ended in (False, True):
            assert [minutes.record(600), minutes.retract(), handle.question("drink").record("tea")] == [
                *[Recorded.FROZEN] * 3
            ]
            assert (minutes.answer(), handle.question("drink").answer(), handle.ledger().clipped) == (None, None, 0)
            ((entry, _),) = stored(device, made.id)
            assert not any((entry.states, entry.mutations, entry.clipped, *(each.states for each in entry.others)))
            server.refused = []
            assert ended or device.flush().waiting == 0


def test_a_number_that_waits_or_is_frozen_is_not_counted_twice(tmp_path):
    """Beyond the levels counts what stands: once, however long it waited to be judged, and not when frozen."""
    made, clock = drink_and_minutes(), Clock()
    with client(tmp_path, FakeServer(made), clock) as device:
        handle = device.join(made.id, signed=None)
        handle.question("minutes").record(500)
        device.flush()
        assert handle.ledger().clipped == 1
        given = [handle.question("minutes").record(number) for number in (-1, 500, -1)]
        assert given == [Recorded.COUNTED, Recorded.COUNTED, Recorded.FROZEN]
        assert handle.ledger().clipped == 3


def test_an_entry_with_more_than_255_changes_goes_on_to_report_as_any_other(tmp_path):
    """Also where each has a slot of a joint group; else the silence would tell how often an answer changed."""
    periods = 264
    group = Group.jointly(
        [Track(1, KaryChange(MutationSpace(2), ANY), 0, periods)], Joint(Odds(9, 1), 99, (1,), (periods,))
    )
    made = Survey.at_cost(
        question="Which?",
        answers=["tea", "coffee"],
        constraint=AtMost(periods),
        calendar=Calendar(START, 60, periods),
        plan=ReleasePlan((group,)),
        skew=1,
        spread=1,
        grace=10**6,
        minimum=1,
    )
    clock, server = Clock(), FakeServer(made)
    with client(tmp_path, server, clock) as device:
        handle = device.join(made.id)
        for period in range(1, periods + 1):
            clock.now = made.calendar.time(period) - 30
            handle.record(made.answers[period % 2])
            if period in (200, 258, 262):
                clock.now = made.calendar.time(period) + 3
                assert device.flush().waiting == 0
                ((entry, _),) = stored(device, made.id)
                assert entry.slots.used == (period,)
    assert len(server.closings()) == 262


@pytest.mark.parametrize("behind", [0, 10], ids=["a clock alike", "the server's is behind"])
def test_what_happens_between_two_requests_and_before_hanging_up_hangs_on_no_record(tmp_path, monkeypatch, behind):
    """A flush that answers nothing does the same on the disk while a server can see how long it takes, whether or not
    the app has recorded since the last one: the past is erased after the connection has ended."""
    made, seen = drink_and_minutes(), []
    for records in (False, True):
        (folder := tmp_path / str(records)).mkdir()
        clock, server, done = Clock(), FakeServer(made), []

        def hear(request, done=done):
            done.append(request.url.path)

        with client(folder, server, clock) as device:
            handle = device.join(made.id)
            handle.question("drink").record("tea")
            clock.now = START + 77 + behind
            server.reply, server.refused = hear, [[0, "unknown-survey"]]
            server.clock = lambda clock=clock: clock.now - behind
            assert device.flush().waiting == 1
            clock.now += 20
            if records:
                handle.question("drink").record("coffee")
            done.clear()
            device.store._connection.set_trace_callback(lambda each, done=done: done.append(each.split("(")[0][:20]))
            line = device._device._servers.at(URL)._exchanges
            monkeypatch.setattr(line, "hang_up", lambda done=done: done.append("hung up"))
            device.flush()
        assert "VACUUM" not in done[: done.index("hung up")]
        seen.append(done[: done.index("hung up")])
    assert seen[0] == seen[1]


def test_the_size_of_a_parcel_does_not_say_how_many_of_many_questions_were_answered(tmp_path):
    """Whatever was recorded of forty questions, what is handed over has one length."""
    questions = tuple(one(f"question {place}", AtMost(3)) for place in range(40))
    made = asking(questions, Group(tuple(changes(place) for place in range(40))))
    sizes = set()
    for answered in (0, 13, 27, 40):
        (folder := tmp_path / str(answered)).mkdir()
        (folder / "new").mkdir()
        server, clock = FakeServer(made), Clock(BEGIN + 1)
        with client(folder, server, clock, Middle()) as old, client(folder / "new", server, clock) as new:
            handle = old.join(made.id)
            for question in questions[:answered]:
                handle.question(question.name).record("yes")
            sizes.add(len(old.hand_over(new.invite(old.hand_over_key()))))
    assert len(sizes) == 1


def test_whether_a_closed_cohort_takes_an_entry_does_not_hang_on_the_group_that_it_draws(tmp_path):
    """Who has no answer to one of the questions is refused, also by chance of a group that does not ask it: who asks
    again would else be in that group more often than not."""
    first, second = (
        Group((Track(1, KaryResponse(StateSpace(2, null=False), ANY), 0, 2, question=place),)) for place in (0, 1)
    )
    questions = tuple(Question(name, "?", ("tea", "coffee"), AtMost(2)) for name in ("x", "y"))
    made = asking(questions, first, second, closed=True)
    groups = set()
    for seed in range(8):
        (folder := tmp_path / str(seed)).mkdir()
        with client(folder, FakeServer(made), Clock(BEGIN + 1), SeededCoins(seed)) as device:
            for few in ({"x": "tea"}, {"y": "coffee"}):
                with pytest.raises(BadEnrolment):
                    device.join(made.id, answers=[few])
            device.join(made.id, answers=[{"x": "tea", "y": "coffee"}])
            groups.add(stored(device, made.id)[0][0].group)
    assert groups == {0, 1}


def test_half_a_pair_of_surrogates_is_a_wrong_answer_before_the_survey_is_known_too(tmp_path):
    """It cannot be kept: an error of the store's would stop the app, and what Python raises holds the answer."""
    made = drink_and_minutes()
    for strict in (True, False):
        with client(tmp_path, FakeServer(made), Clock(), strict=strict) as device:
            drink = device.join(made.id, signed=None).question("drink")
            if strict:
                with pytest.raises(ValueError, match="an answer is a text") as raised:
                    drink.record("tea\ud800")
                assert raised.value.__context__ is None
            else:
                assert drink.record("tea\ud800") is Recorded.DROPPED
