"""The freezing question: what a device answers by itself about the changes that it turns down, also under lives that go
wrong; and all that it sends, enumerated in plans of every kind, by entries that change their device, enrol late, are
silent for some closings, or record nothing."""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from changeling_client import Recorded, entries, handover
from changeling_client.testing import FakeServer, Household, ManualClock, audit, make_client
from changeling_protocol import (
    AtMost,
    AtMostWithin,
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
    Survey,
    TimeBounded,
    Track,
)

from tests.coins import SeededCoins

from .attack import Branching, Device, MemoryStore, Moment, enrol, moments
from .device import asking

DAY, START, HOUR = 86_400, 1_798_761_600, 3_600
TRUTHFUL = Odds(2**63, 1)
DRINKS, FOODS = ("tea", "coffee", "milk"), ("rice", "bread")
CONSTRAINTS = (
    AtMost(1),
    AtMost(2),
    TimeBounded(DAY),
    TimeBounded(3 * DAY),
    AtMostWithin(3, DAY),
    Hybrid((AtMost(2), TimeBounded(2 * DAY))),
)


of_days = partial(asking, start=START, period=DAY, skew=60, spread=HOUR, grace=30 * DAY)


def truthful(
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
    made = (Group(tuple(tracks[at] for at in each)) for each in groups or [range(len(tracks))])
    return of_days(*made, questions=questions, closed=closed, periods=periods)


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
        truthful(AtMost(2)),
        [(0.5, "tea", C), (0.5, "coffee", C), (0.5, "coffee", U), (2.5, "milk", F), (3.3, "coffee", U)],
        ["coffee"] * 4,
        ["no", "no", "yes", "yes"],
    ),
    "of an entry that is asked only whether it is frozen": (
        truthful(AtMost(2), groups=[[0]]),
        [(0.5, "tea", C), (1.5, "coffee", C), (2.5, "tea", F)],
        [None] * 4,
        ["no", "no", "yes", "yes"],
    ),
    "before the first answer nothing": (
        truthful(AtMost(1)),
        [(1.5, "tea", C), (2.5, None, F)],
        [NONE, "tea", "tea", "tea"],
        [NONE, "no", "yes", "yes"],
    ),
    "what time forbids, once the time is known": (
        truthful(TimeBounded(3 * DAY // 4)),
        [(0.2, "tea", C), (0.8, "coffee", C), (1.6, "milk", P)],
        ["coffee"] * 4,
        ["no", "yes", "yes", "yes"],
    ),
}


@pytest.mark.parametrize("how", ["in one run", "started anew each time", "before the survey is known"])
@pytest.mark.parametrize("name", TURNED_DOWN)
def test_a_change_that_is_turned_down_is_told_from_its_period_on(kit, name, how):
    """What becomes of each record, at a time in days, and what is told at each closing: of the drink, and of whether it
    is frozen, which is one write with the record. Whoever starts again, or judges later, tells the same."""
    made, records, drinks, frozen = TURNED_DOWN[name]
    server = FakeServer(ManualClock(START + HOUR))
    sid, signed = server.publish(made), None if how.startswith("before") else server.signed(made)
    device, _ = kit(server)
    device.join(sid, signed=signed)
    for at, value, expected in records:
        server.clock.now = START + DAY * at
        if how.startswith("started"):
            device.close()
            device, _ = kit(server)
        handle = device.join(sid)
        recorded = handle.retract() if value is None else handle.record(value)
        assert recorded is expected or signed is None
    server.clock.now = START + 4 * DAY + 2 * HOUR
    device.flush()
    device.flush()
    said = told(server)
    assert [said.get((day, 1)) for day in range(1, 5)] == drinks
    assert [said[day, 0] for day in range(1, 5)] == frozen


def test_no_app_answers_it(kit):
    """Its name is refused, and the one other question needs none."""
    made = truthful(AtMost(2))
    device, server = kit()
    handle = device.join(made.id, signed=server.signed(made))
    for name in ("drink-frozen", "food"):
        with pytest.raises(ValueError, match="question"):
            handle.question(name).record("yes")
    assert handle.record("tea") is C
    assert handle.question("drink").answer() == "tea"
    with pytest.raises(ValueError, match="at most two changes"):
        Question("f", "?", ("no", "yes"), AtMost(1), freezing_of="drink")


def test_a_change_that_was_given_after_a_closing_freezes_nothing_there(kit):
    """Nor one that changes nothing, or takes back an answer of a closed cohort, though both wait."""
    device, server = kit()
    handle = device.join(server.publish(truthful(TimeBounded(DAY), closed=True)), answers=["tea"])
    device.flush()
    server.clock.advance(days=2.5)
    device.flush()
    assert handle.retract() is F
    assert handle.record("tea") is U
    server.clock.advance(hours=12, minutes=1)
    assert handle.record("coffee") is P
    server.clock.advance(hours=2)
    device.flush()
    said = told(server)
    assert [said[day, 0] for day in (1, 2, 3)] == ["no"] * 3


def test_what_waits_since_the_clock_was_ahead_is_told_where_it_is_not_counted(kit):
    """Recorded after the calendar's end, by the device's clock, it counts from the time on that a server tells."""
    ahead = ManualClock(0)
    device, server = kit(clock=lambda: server.clock.now + ahead.now)
    handle = device.join(server.publish(truthful(AtMost(3))))
    device.flush()
    handle.record("tea")
    ahead.now = 40 * DAY
    assert handle.record("coffee") is P
    ahead.now = 0
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
        made = truthful(chosen.choice(CONSTRAINTS), closed, periods=6, food=food)
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


ANY, ODDS = Odds(2, 1), Odds(3, 1)
KINDS = ("apart", "drawn", "joint", "joint signed", "history", "history of it")
SPAN = 5 * DAY // 4
BOUNDS = (AtMost(2), TimeBounded(SPAN), AtMostWithin(2, SPAN), Hybrid((AtMost(1), TimeBounded(SPAN))))
HEAVY = pytest.param(True, marks=pytest.mark.heavy)


def in_plan(
    kind: str, constraint: Constraint, closed: bool, periods: int = 2, grace: int = 40 * DAY, answers: int = 0
) -> Survey:
    """About one answer, or two in a closed cohort, in a plan of one group, which asks whether it is frozen as well."""
    drink = Question("drink", "What do you drink?", DRINKS[: answers or 1 + closed], constraint)
    questions, calendar = (drink, Question.of_freezing(drink)), Calendar(START, DAY, periods)
    if kind.startswith("history"):
        of = int(kind == "history of it")
        times = History.of(ODDS, range(1, 1 + periods), questions[of].constraint, calendar, closed)
        group = Group.of_history(times, len(questions[of].answers), question=of)
    else:
        states = [StateSpace(len(each.answers), null=not closed) for each in questions]
        spaces = [MutationSpace(each.answers, null=each.null) for each in states]
        drawn, law = 1 if kind == "drawn" else None, SignedSubset if kind == "joint signed" else KaryChange
        state = [Track(1, KaryResponse(each, ANY), 0, periods, drawn, at) for at, each in enumerate(states)]
        change = [Track(1, law(each, ANY), int(closed), periods, drawn, at) for at, each in enumerate(spaces)]
        mixed = {"drawn": (state[0], change[1]), "joint signed": tuple(change)}
        tracks = mixed.get(kind, (change[0], state[1]))
        slots = tuple(track.count for track in tracks)
        group = Group(tracks) if "joint" not in kind else Group.jointly(tracks, Joint(ODDS, periods, (1, 1), slots))
    return of_days(group, questions=questions, periods=periods, spread=600, grace=grace, closed=closed)


@dataclass(frozen=True, slots=True)
class Move(Moment):
    """A hand-over to a device that has joined the survey itself and answered nothing."""


class Moving(Device):
    """A device, and the one that it hands over to: what they send, and the size of the parcel."""

    def _flush(self, moment: Moment, coins: Branching) -> Any:
        if not isinstance(moment, Move):
            return super()._flush(moment, coins)
        old, new = self._store, MemoryStore()
        old.db.execute("DELETE FROM hand_over")
        enrol(new, self.survey, START + 60, ["tea"] if self.survey.closed else None, SeededCoins(0))
        parcel = handover.pack(old, handover.invite(new, handover.own_key(old)))
        handover.unpack(new, parcel, Decimal(10**9))
        with old.transaction() as db:
            assert not entries.numbers(db, self.survey.id)
        old.put_back(new.state())
        new.db.close()
        return len(parcel)


WAYS = (
    (1.3, (1.2, 2.2), 0, True, 0, 40 * DAY),
    (0.5, (1.2, 2.2), 0, False, -0.02, 40 * DAY),
    (1.3, (2.2,), 0, True, 0.6, DAY // 2),
    (1.3, (2.2,), 0, True, 0.6, 40 * DAY),
    (1.1, (1.2, 2.2), 1, True, 0, 40 * DAY),
)
"""When it is handed over, in days, and flushes; when it enrols; whether it hears the time at its last flush, or never;
by how many days the new device's clock is ahead; and the grace, which may be over for what is due."""


def schedule(moves: float, flushes: tuple[float, ...], begins: int, hears: bool, ahead: float) -> list[Moment]:
    """As `WAYS` says it, with three moments at which something may be recorded."""
    acts = [time for time in (0.2, 0.9, 1.05, 1.6) if time > begins][-3:]
    times = sorted([(time, Moment) for time in (*acts, *flushes)] + [(moves, Move)], key=lambda each: each[0])
    made = []
    for time, kind in times:
        shown, told = START + DAY * (time + ahead * (time > moves)), int(START + DAY * time)
        last = time == flushes[-1]
        made.append(kind(shown, act=time in acts, hears=told if last and hears else None, may_drop=not last or hears))
    return made


@pytest.mark.parametrize("all_", [False, HEAVY], ids=["one", "all"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_two_lives_are_told_apart_beyond_the_stated_loss(kind, closed, all_):
    """Over all that may be recorded, or not, and all coins; some closings are too late where the grace is short."""
    ways = [(way, bound) for way in WAYS[: 5 - closed] for bound in BOUNDS]
    for (*way, grace), constraint in ways if all_ else [ways[3 * KINDS.index(kind)]]:
        made = in_plan(kind, constraint, closed, grace=grace)
        Moving(made, schedule(*way), START + DAY * way[2] + 60).within_the_stated_loss()


CLOCKS = {
    "in time": ((0.4, 1.4, 1.6), (1.2, 2.2), {}),
    "the first too late": ((0.4, 1.4, 1.6), (2.3,), {}),
    "a clock that leaps": ((0.4, 0.5, 1.4), (1.2, 2.2), {0.5: 9.5}),
    "a clock set back": ((0.4, 1.4, 2.15), (1.2, 2.1, 2.2), {2.15: 0.9}),
}
"""When it records, in days, when it flushes, and what the clock shows instead; the last flush hears the time."""


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    ("kind", "constraint", "closed"),
    [
        ("apart", AtMost(1), False),
        ("joint", TimeBounded(DAY // 2), False),
        ("joint", AtMost(1), True),
        pytest.param("joint signed", AtMostWithin(2, DAY // 2), False, marks=pytest.mark.heavy),
    ],
    ids=str,
)
def test_by_whatever_clock_two_lives_are_told_apart_within_the_stated_loss(kind, constraint, closed, clock):
    """Over all that may be recorded in each period, twice in one of them, and all coins."""
    acts, flushes, shows = CLOCKS[clock]
    made = in_plan(kind, constraint, closed, grace=6 * DAY // 5)
    Device(made, moments(START, DAY, acts, flushes, shows), START - 5, idle=False).within_the_stated_loss()


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.heavy] * (kind != "history")) for kind in KINDS if "signed" not in kind],
)
def test_a_copy_that_both_devices_go_on_from_loses_no_more_than_the_ledger_states(kind, closed):
    """Made before the first closing, or between the two; without a witness."""
    schedule = [Moment(START + DAY * time, act=time in (0.2, 1.6)) for time in (0.2, 1.2, 1.6, 2.2)]
    for constraint in BOUNDS[:2]:
        device = Device(in_plan(kind, constraint, closed), schedule, START + 60, idle=False)
        for backup in (1, 2):
            device.within_the_stated_loss((backup, 0))


LIVES = (
    ("tea",) * 12,
    ("tea", *("coffee", "milk") * 5, "tea"),
    ("tea", "coffee", *[None] * 10),
    ("tea", None, "coffee", None, "milk", None) * 2,
    ("tea", *["tea"] * 9, "milk", "coffee"),
)
"""What is recorded each time: nothing more, the same again, one change, many, and answers taken back."""
SEEN = {
    "drawn": ("drawn", AtMost(1), None, False),
    "joint, closed and encrypted": ("joint", AtMost(2), bytes(32), True),
    "history, by time": ("history of it", TimeBounded(DAY), None, False),
    "apart, by time and encrypted": ("apart", TimeBounded(3 * DAY), bytes(32), False),
}


@pytest.mark.parametrize("name", SEEN)
def test_whether_changes_are_turned_down_shows_in_nothing_that_two_devices_do(tmp_path, caplog, name):
    """Requests, lines down to debug level, what flushes say, errors, nodes, what an encrypted store takes, and the size
    of the parcel in which the one hands over to the other."""
    kind, constraint, key, closed = SEEN[name]
    seen, made = [], in_plan(kind, constraint, closed, periods=5, answers=3)

    def app(household: Household, life: tuple[str | None, ...]) -> None:
        caplog.clear()
        told: list[Any] = []
        sid, folder = household.server.publish(made), tmp_path / str(len(seen))
        folder.mkdir()
        options = {"on_error": told.append, "witness": None, "key": key}
        with household.client(**options) as old, household.client(path=folder / "new.db", **options) as new:
            old.join(sid, answers=["tea"] if closed else None)
            for step, value in enumerate(life):
                device = old if step < 6 else new
                device.flush()
                handle = device.join(sid)
                household.clock.advance(hours=10)
                handle.retract() if value is None else handle.record(value)
                with device._device.store.transaction() as db:
                    (length,) = db.execute("SELECT sum(length(private)) FROM entries").fetchone()
                household.server.go_offline() if step == 5 else household.server.recover()
                told += [device.flush(), int(length) if key else None]
                if step == 5:
                    parcel = old.hand_over(new.invite(old.hand_over_key()))
                    told += [len(parcel), new.take_over(parcel), old.flush()]
        told += [(report.track, report.node) for report in household.server.reports]
        seen.append((told, [each.getMessage() for each in caplog.records]))

    with caplog.at_level(logging.DEBUG):
        assert audit(app, [*LIVES, (None,) * 12]) == []
    assert all(each == seen[0] for each in seen)
