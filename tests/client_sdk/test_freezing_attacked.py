"""Surveys with a freezing question under lives that go wrong: what is told, what it can tell apart, what is seen."""

import logging
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import product
from math import log
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
import pytest
from changeling_client import Recorded, flushing
from changeling_client.recording import Recorder
from changeling_client.testing import FakeServer, Household, ManualClock, audit, make_client, stored
from changeling_protocol import (
    AtMost,
    AtMostWithin,
    Calendar,
    Constraint,
    Group,
    Hybrid,
    KaryResponse,
    MutationSpace,
    Odds,
    Question,
    ReleasePlan,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
)

from .attack import MemoryStore, Moment, answer, enrol

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
Inputs: TypeAlias = tuple[tuple[int, int], ...]
"""The tracks that an entry reported on, in order, each with the true input."""


def asking(constraint: Constraint, closed: bool = False, periods: int = 5, food: Constraint | None = None) -> Survey:
    """A survey whose devices tell every day the truth about all questions; each has a freezing question."""
    asked = [Question("drink", "What do you drink?", DRINKS, constraint)]
    asked += [Question("food", "What do you eat?", FOODS, food)] if food else []
    questions = [each for one in asked for each in (Question.of_freezing(one), one)]
    tracks = tuple(
        Track(1, KaryResponse(StateSpace(len(each.answers)), TRUTHFUL), 0, periods, None, place)
        for place, each in enumerate(questions)
    )
    return survey_of(questions, ReleasePlan((Group(tracks),)), closed, periods)


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
    """What was said, by period and track."""
    return {(report.node.end, report.track): report.says for report in server.reports}


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
                assert handle.record("coffee") is Recorded.PENDING
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
        assert handle.retract() is Recorded.FROZEN
        assert handle.record("tea") is Recorded.UNCHANGED
        server.clock.advance(hours=12)
        server.clock.advance(minutes=1)
        assert handle.record("coffee") is Recorded.PENDING
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
        assert handle.record("coffee") is Recorded.PENDING
        ahead[0] = 0
        for _ in range(3):
            server.clock.advance(days=1)
            device.flush()
    said = told(server)
    assert [said[day, 1] for day in (1, 2, 3)] == ["tea", "coffee", "coffee"]
    assert [said[day, 0] for day in (1, 2, 3)] == ["yes"] * 3


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 300), marks=pytest.mark.heavy)], ids=len)
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


def at(time: float) -> Moment:
    return Moment(START + DAY * time, act=True)


def flush(time: float, heard: bool = False) -> Moment:
    return Moment(START + DAY * time, hears=int(START + DAY * time) if heard else None)


SCHEDULES = {
    "each day": (at(0.2), flush(1.1), at(1.2), flush(2.1), at(2.2), flush(3.1)),
    "all at the end": (at(0.2), at(1.2), at(2.2), flush(3.1, heard=True)),
    "a clock that leaps": (at(0.2), at(9), flush(1.1), at(1.2), flush(2.1, heard=True), flush(3.1)),
    "a clock set back": (at(0.2), flush(1.1), at(1.2), flush(2.1), at(1.1), flush(3.1, heard=True)),
}


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_two_lives_with_a_freezing_question_are_told_apart_beyond_the_stated_loss(schedule, closed):
    """Over all that an app may record at these times, for every constraint, all groups and all symbols.

    The inputs that lives report from are those of the device's own code; the laws of symbols are the randomizers'.
    """
    for constraint in CONSTRAINTS:
        drink = Question("drink", "What do you drink?", ("tea", "coffee"), constraint)
        change, state = (KaryResponse(each(2), ANY) for each in (MutationSpace, StateSpace))
        tracks = [(change, 0), (change, 1)], [(change, 1)], [(state, 1), (change, 0)]
        groups = tuple(Group(tuple(Track(1, law, 0, 3, None, place) for law, place in each)) for each in tracks)
        for group in groups:
            made = survey_of((drink, Question.of_freezing(drink)), ReleasePlan((group,)), closed, 3)
            assert Decimal(worst_loss(group, every_inputs(made, SCHEDULES[schedule]))) <= made.epsilon


def every_inputs(made: Survey, schedule: Sequence[Moment]) -> set[Inputs]:
    """What one entry reports from, over all that its app may record; nothing that is seen hangs on it."""
    store, steps = MemoryStore(), {}
    blank, answers = store.state(), made.asked[0].answers

    def step(before: Any, moment: Moment, act: str | None) -> tuple[Any, Inputs]:
        key = before, moment, act
        if key not in steps:
            store.put_back(before)
            reported: list[tuple[int, int]] = []

            def respond(_group: Group, place: int, true: int, memory: Any, _coins: Any) -> tuple[int, Any]:
                reported.append((place, true))
                return 0, memory

            if not moment.act:
                with patch.object(flushing, "respond", respond):
                    answer(store, moment, Zeros())
            elif act != "nothing":
                Recorder(store, strict=True, tell=print).record(made.id, act, 0, int(moment.now * 1000))
            steps[key] = store.state(), tuple(reported)
        return steps[key]

    ways: set[tuple[Any, Inputs]] = set()
    for first in answers if made.closed else (None,):
        store.put_back(blank)
        enrol(store, made, START + 60, None if first is None else [first], Zeros())
        ways.add((store.state(), ()))
    for moment in schedule:
        acts = ("nothing", None, *answers) if moment.act else ("nothing",)
        stepped = [(reported, step(before, moment, act)) for (before, reported), act in product(ways, acts)]
        ways = {(after, reported + more) for reported, (after, more) in stepped}
    return {reported for _, reported in ways}


class Zeros:
    """Coins that come down the same way each time; nothing that is looked at hangs on them."""

    def below(self, _n: int) -> int:
        return 0


def worst_loss(group: Group, lives: set[Inputs]) -> float:
    """The largest log ratio between two lives, over all symbols, less what floats may add."""
    places = {tuple(place for place, _ in life) for life in lives}
    assert len(places) == 1, "which nodes are reported hangs on what is recorded"
    true = np.array([[each for _, each in life] for life in lives])
    apart = np.zeros((len(lives), len(lives)))
    for at_, place in enumerate(places.pop()):
        law = group.tracks[place].randomizer
        weights = np.array(
            [[log(law.weight(symbol, each)) - log(law.total(each)) for symbol in range(law.symbols)]
             for each in range(true[:, at_].max() + 1)]
        )  # fmt: skip
        table = (weights[:, None] - weights[None]).max(-1)
        apart += table[np.ix_(true[:, at_], true[:, at_])]
    return float(apart.max()) - 1e-9


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
