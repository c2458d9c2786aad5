"""The freezing question: what a device answers by itself about the changes that it turns down, and what that tells,
also under lives that go wrong."""

import logging
import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from changeling_client import Recorded
from changeling_client.testing import FakeServer, Household, ManualClock, audit, make_client, stored
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    Group,
    Hybrid,
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

from tests.enumeration import log_from_below

from .attack import Device, Moment

DAY, START, HOUR = 86_400, 1_798_761_600, 3_600
TRUTHFUL, ANY = Odds(2**63, 1), Odds(2, 1)
DRINKS, FOODS = ("tea", "coffee", "milk"), ("rice", "bread")
CONSTRAINTS = (
    AtMost(1),
    AtMost(2),
    TimeBounded(DAY),
    TimeBounded(3 * DAY),
    AtMostWithin(3, DAY),
    Hybrid((AtMost(2), TimeBounded(2 * DAY))),
)


def asking(
    constraint: Constraint,
    closed: bool = False,
    periods: int = 4,
    food: Constraint | None = None,
    groups: Sequence[Sequence[int]] | None = None,
) -> Survey:
    """A survey whose devices tell every day the truth about all questions; each has a freezing question before it.

    groups: the questions of each group, by their places; None for one that is asked all.
    """
    asked = [Question("drink", "What do you drink?", DRINKS, constraint)]
    asked += [Question("food", "What do you eat?", FOODS, food)] if food else []
    questions = [each for one in asked for each in (Question.of_freezing(one), one)]
    tracks = [
        Track(1, KaryResponse(StateSpace(len(each.answers), not closed), TRUTHFUL), 0, periods, None, place)
        for place, each in enumerate(questions)
    ]
    plan = ReleasePlan(tuple(Group(tuple(tracks[at] for at in each)) for each in groups or [range(len(tracks))]))
    return survey_of(questions, plan, closed, periods)


def survey_of(questions: Sequence[Question], plan: ReleasePlan, closed: bool, periods: int) -> Survey:
    return Survey.at_cost(
        questions=tuple(questions),
        calendar=Calendar(START, DAY, periods),
        plan=plan,
        closed=closed,
        skew=60,
        spread=HOUR,
        grace=30 * DAY,
        minimum=1,
    )


def told(server: FakeServer) -> dict[tuple[int, int], str]:
    """What was said, by period and question."""
    tracks = {survey.id: survey.plan.tracks for survey in server._surveys.values()}
    return {
        (report.node.end, tracks[report.survey][report.track].question): report.says.rpartition(": ")[2]
        for report in server.reports
    }


C, F, P, U = Recorded.COUNTED, Recorded.FROZEN, Recorded.PENDING, Recorded.UNCHANGED
NONE = "no answer"
TURNED_DOWN = {
    "beyond the bound, for good; the same answer is no change": (
        asking(AtMost(2)),
        [(0.5, "tea", C), (0.5, "coffee", C), (0.5, "coffee", U), (2.5, "milk", F), (3.3, "coffee", U)],
        ["coffee"] * 4,
        ["no", "no", "yes", "yes"],
    ),
    "of an entry that is asked only whether it is frozen": (
        asking(AtMost(2), groups=[[0]]),
        [(0.5, "tea", C), (1.5, "coffee", C), (2.5, "tea", F)],
        [None] * 4,
        ["no", "no", "yes", "yes"],
    ),
    "before the first answer nothing": (
        asking(AtMost(1)),
        [(1.5, "tea", C), (2.5, None, F)],
        [NONE, "tea", "tea", "tea"],
        [NONE, "no", "yes", "yes"],
    ),
    "what time forbids, once the time is known": (
        asking(TimeBounded(3 * DAY // 4)),
        [(0.2, "tea", C), (0.8, "coffee", C), (1.6, "milk", P)],
        ["coffee"] * 4,
        ["no", "yes", "yes", "yes"],
    ),
}


@pytest.mark.parametrize("how", ["in one run", "started anew each time", "before the survey is known"])
@pytest.mark.parametrize("name", TURNED_DOWN)
def test_a_change_that_is_turned_down_is_told_from_its_period_on(tmp_path, name, how):
    """What becomes of each record, at a time in days, and what is told at each closing: of the drink, and of whether it
    is frozen, which is one write with the record. Whoever starts again, or judges later, tells the same."""
    made, records, drinks, frozen = TURNED_DOWN[name]
    server = FakeServer(ManualClock(START + HOUR))
    sid, signed = server.publish(made), None if how.startswith("before") else server.signed(made)
    device = make_client(tmp_path, server)
    device.join(sid, signed=signed)
    for at, value, expected in records:
        server.clock.now = START + DAY * at
        if how.startswith("started"):
            device.close()
            device = make_client(tmp_path, server)
        handle = device.join(sid)
        recorded = handle.retract() if value is None else handle.record(value)
        assert recorded is expected or signed is None
    server.clock.now = START + 4 * DAY + 2 * HOUR
    device.flush()
    device.flush()
    device.close()
    said = told(server)
    assert [said.get((day, 1)) for day in range(1, 5)] == drinks
    assert [said[day, 0] for day in range(1, 5)] == frozen


def test_in_a_closed_cohort_the_last_answer_stands_and_to_take_it_back_freezes_nothing(tmp_path):
    """It is joined with an answer to the one question that apps answer, and the truth is the last answer given."""
    server = FakeServer(ManualClock(START + HOUR))
    sid = server.publish(asking(AtMost(2), closed=True, groups=[[1], [0], [0, 1]]))
    with make_client(tmp_path, server, seed=1) as device:
        handle = device.join(sid, entries=12, answers=["tea"] * 12, signed=server.signed(server._surveys[sid]))
        for number in range(12):
            assert (handle.retract(number), handle.record("coffee", number)) == (F, C)
        server.clock.now = START + 1.5 * DAY
        for number in range(6):
            assert handle.record("milk", number) is F
        server.clock.now = START + 4 * DAY + 2 * HOUR
        device.flush()
        groups = [entry.group for entry, _ in stored(device, sid)]
    tracks = server._surveys[sid].plan.tracks
    frozen = [(each.node.end, each.says) for each in server.reports if tracks[each.track].question == 0]
    assert set(groups) == {0, 1, 2}
    assert len(frozen) == sum(1 for group in groups if group) * 4
    assert {says.rpartition(": ")[2] for end, says in frozen if end == 1} == {"no"}
    assert sum(says.endswith("yes") for end, says in frozen if end > 1) == sum(1 for group in groups[:6] if group) * 3


def test_no_app_answers_it(kit):
    """Its name is refused, and the one other question needs none."""
    made = asking(AtMost(2))
    device, server = kit()
    handle = device.join(made.id, signed=server.signed(made))
    for name in ("drink-frozen", "food"):
        with pytest.raises(ValueError, match="question"):
            handle.question(name).record("yes")
    assert handle.record("tea") is C
    assert handle.question("drink").answer() == "tea"


def test_a_freezing_question_is_about_one_that_apps_answer_and_no_other_form():
    """Another constraint would freeze it as well, and two about one question would tell the same twice."""
    made = asking(AtMost(2))
    frozen, drink = made.questions
    assert Survey.from_payload(made.payload) == made
    with pytest.raises(ValueError, match="at most two changes"):
        Question("f", "?", ("no", "yes"), AtMost(1), freezing_of="drink")
    for questions in ((frozen,), (drink, frozen, Question.of_freezing(frozen))):
        with pytest.raises(ValueError, match="is about one that apps answer"):
            survey_of(questions, ReleasePlan((Group((Track(1, KaryResponse(StateSpace(2), ANY), 0, 4),)),)), False, 4)


@pytest.mark.parametrize("constraint", [TimeBounded(DAY), AtMostWithin(2, DAY)], ids=["time", "both"])
def test_a_change_that_waits_for_the_time_is_told_at_the_first_closing_that_it_is_not_in(tmp_path, constraint):
    """The device judges it once the server tells the time, which is after that closing was answered."""
    server = FakeServer()
    sid = server.publish(asking(constraint))
    with make_client(tmp_path, server) as device:
        handle = device.join(sid)
        device.flush()
        handle.record("tea")
        for day in range(1, 5):
            if day == 3:
                assert handle.record("coffee") is P
            server.clock.advance(days=1)
            device.flush()
    said = told(server)
    assert [said[day, 1] for day in range(1, 5)] == ["tea"] * 4
    assert [said[day, 0] for day in range(1, 5)] == ["no", "no", "yes", "yes"]


def test_a_change_that_was_given_after_a_closing_freezes_nothing_there(tmp_path):
    """Nor one that changes nothing, or takes back an answer of a closed cohort, though both wait."""
    server = FakeServer()
    sid = server.publish(asking(TimeBounded(DAY), closed=True))
    with make_client(tmp_path, server) as device:
        handle = device.join(sid, answers=["tea"])
        device.flush()
        server.clock.advance(days=2.5)
        device.flush()
        assert handle.retract() is F
        assert handle.record("tea") is U
        server.clock.advance(hours=12)
        server.clock.advance(minutes=1)
        assert handle.record("coffee") is P
        server.clock.advance(hours=2)
        device.flush()
    said = told(server)
    assert [said[day, 0] for day in (1, 2, 3)] == ["no"] * 3


def test_what_waits_since_the_clock_was_ahead_is_told_where_it_is_not_counted(tmp_path):
    """Recorded after the calendar's end, by the device's clock, it counts from the time on that a server tells."""
    server = FakeServer()
    sid = server.publish(asking(AtMost(3)))
    ahead = [0.0]
    with make_client(tmp_path, server, clock=lambda: server.clock.now + ahead[0]) as device:
        handle = device.join(sid)
        device.flush()
        handle.record("tea")
        ahead[0] = 40 * DAY
        assert handle.record("coffee") is P
        ahead[0] = 0
        for _ in range(3):
            server.clock.advance(days=1)
            device.flush()
    said = told(server)
    assert [said[day, 1] for day in (1, 2, 3)] == ["tea", "coffee", "coffee"]
    assert [said[day, 0] for day in (1, 2, 3)] == ["yes"] * 3


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 120), marks=pytest.mark.heavy)], ids=len)
def test_at_every_closing_an_entry_reports_what_it_holds_or_that_it_is_frozen(tmp_path, seeds):
    """Over random lives: servers that are away, apps that start again, changes and retractions at any time of day.

    Yes is said for good, and by nobody all of whose changes were counted at once.
    """
    for seed in seeds:
        chosen = random.Random(seed)
        closed, food = chosen.random() < 0.4, chosen.choice([None, AtMost(1), TimeBounded(2 * DAY)])
        made = asking(chosen.choice(CONSTRAINTS), closed, periods=6, food=food)
        live_at_random(tmp_path / str(seed), made, chosen)


def live_at_random(folder: Any, made: Survey, chosen: random.Random) -> None:
    server, names = FakeServer(ManualClock()), [each.name for each in made.asked]
    sid, given = server.publish(made), {each.name: each.answers for each in made.asked}
    first = {name: chosen.choice(given[name]) for name in names}
    held = {name: [(server.clock.now, first[name])] if made.closed else [] for name in names}
    uncounted: dict[str, list[float]] = {name: [] for name in names}
    device = make_client(folder, server, seed=chosen.randrange(2**32))
    device.join(sid, answers=[first] if made.closed else None)
    device.flush()
    while server.clock.now < START + 7 * DAY:
        what = chosen.random()
        if what < 0.45:
            name = chosen.choice(names)
            value = chosen.choice([*given[name], None])
            handle = device.join(sid).question(name)
            recorded = handle.retract() if value is None else handle.record(value)
            if not made.closed or value is not None:
                held[name].append((server.clock.now, value))
            if recorded not in (Recorded.COUNTED, Recorded.UNCHANGED):
                uncounted[name].append(server.clock.now)
        elif what < 0.75:
            server.clock.advance(hours=chosen.choice((1, 3, 8, 14, 24)))
        elif what < 0.92:
            device.flush()
        elif what < 0.95:
            device.close()
            device = make_client(folder, server, seed=chosen.randrange(2**32))
        else:
            chosen.choice([server.recover, server.go_offline, lambda: server.fail_with(503)])()
    server.recover()
    for _ in range(8):
        server.clock.advance(hours=9)
        device.flush()
    device.close()
    said = told(server)
    assert {period for period, _ in said} == set(range(1, 7))
    for name in names:
        place, frozen = made.place_of(name), False
        for period in range(1, 7):
            closing = START + DAY * period
            holds = [value for at, value in held[name] if at <= closing][-1:]
            true = holds[0] if holds and holds[0] is not None else "no answer"
            yes = said[period, place - 1] == "yes"
            assert yes or said[period, place] == true
            assert yes or not frozen
            assert not yes or any(at <= closing for at in uncounted[name])
            frozen = yes


BEGIN, PERIOD = 1_000, 10


def enumerated(name: str) -> Survey:
    """Two periods, one answer or two, and groups about the question, whether it is frozen, or both on one budget."""
    closed = name == "closed"
    constraint = {"time": TimeBounded(5), "both": AtMostWithin(2, 5)}.get(name, AtMost(1))
    drink = Question("x", "x?", ("tea", "coffee") if closed else ("tea",), constraint)
    z = len(drink.answers)
    if name != "changes":
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


def at(*seconds: int) -> list[Moment]:
    """When the app may record."""
    return [Moment(BEGIN + each, act=True) for each in seconds]


def flush(second: int, heard: bool = False) -> Moment:
    return Moment(BEGIN + second, hears=BEGIN + second if heard else None)


SCHEDULES = {
    "in time": [*at(4), flush(12), *at(14, 16), flush(22)],
    "the first too late": [*at(4, 14, 16), flush(23)],
    "a clock that leaps": [*at(4, 95), flush(12), *at(14), flush(22, heard=True)],
    "a clock set back": [*at(4), flush(12), *at(14), flush(21), *at(9), flush(22, heard=True)],
}
"""A record in each period, twice in one of them, and a flush after each period, perhaps too late; by any clock."""
LIVED = [
    *product(("states", "time", "closed"), SCHEDULES),
    *(pytest.param(*each, marks=pytest.mark.heavy) for each in product(("both", "changes"), [*SCHEDULES][:2])),
]


@pytest.mark.parametrize(("name", "how"), LIVED)
def test_two_lives_with_other_answers_are_told_apart_within_the_stated_loss_by_all_that_is_said(name, how):
    """Over all that an app may record, and all coins; what the device adds of its own is counted in the stated loss."""
    made = enumerated(name)
    assert log_from_below(Device(made, SCHEDULES[how], BEGIN - 5).worst_ratio()) <= made.epsilon


@pytest.mark.parametrize("name", ["states", "closed", "time"])
def test_a_store_that_was_put_back_loses_no_more_than_the_ledger_states(name):
    """A backup is made before the first closing, and both lives record at will."""
    made = enumerated(name)
    stated = lives_cost(made.plan, made.calendar, made.constraints, lives=2)
    assert (
        log_from_below(Device(made, [*at(4), flush(12), *at(14), flush(22)], BEGIN - 5).worst_ratio(backup=1)) <= stated
    )


def lives() -> Iterator[tuple[str | None, ...]]:
    """What is recorded each day: nothing more, the same again, one change, many, and answers taken back."""
    yield ("tea",) * 12
    yield ("tea", *("coffee", "milk") * 5, "tea")
    yield ("tea", "coffee", *[None] * 10)
    yield ("tea", None, "coffee", None, "milk", None) * 2
    yield ("tea", *["tea"] * 9, "milk", "coffee")


@pytest.mark.parametrize("key", [None, bytes(32)], ids=["plain", "encrypted"])
@pytest.mark.parametrize("constraint", CONSTRAINTS[:4], ids=repr)
def test_changes_that_are_turned_down_are_seen_in_no_request_line_or_error(caplog, constraint, key):
    """Nor in what is logged down to debug level, in what a flush says, or in what an encrypted store takes."""
    made, seen = asking(constraint, periods=5), []

    def app(household: Household, life: tuple[str | None, ...]) -> None:
        caplog.clear()
        told_app, lengths = [], []
        sid = household.server.publish(made)
        with household.client(key=key, on_error=told_app.append) as device:
            handle = device.join(sid)
            device.flush()
            for hour, value in enumerate(life):
                household.clock.advance(hours=10)
                handle.retract() if value is None else handle.record(value)
                lengths += [kept_bytes(device)] if key else []
                if hour == 5:
                    household.server.go_offline()
                told_app.append(device.flush())
                household.server.recover()
            assert len(stored(device, sid)) == 1
        seen.append((told_app, [each.getMessage() for each in caplog.records], lengths))

    with caplog.at_level(logging.DEBUG):
        assert audit(app, lives()) == []
    assert all(each == seen[0] for each in seen)


def kept_bytes(device: Any) -> int:
    store = device._device.store
    with store.transaction() as db:
        return int(db.execute("SELECT sum(length(private)) FROM entries").fetchone()[0])
