"""The freezing question: what a device answers by itself about the changes that it turns down, also under lives that go
wrong."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from changeling_client import Recorded
from changeling_client.testing import FakeServer, ManualClock, make_client
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    Group,
    Hybrid,
    KaryResponse,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
)

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


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 48), marks=pytest.mark.heavy)], ids=len)
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
