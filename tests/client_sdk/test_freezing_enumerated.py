"""The freezing question in plans of every kind: all that is sent, enumerated, by entries that change their device,
enrol late, are silent for some closings, or record nothing; and what else could be seen of them."""

import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from changeling_client import entries, handover
from changeling_client.testing import Household, audit
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
    ReleasePlan,
    SignedSubset,
    StateSpace,
    Survey,
    TimeBounded,
    Track,
    lives_cost,
)

from tests.coins import SeededCoins
from tests.enumeration import log_from_below

from .attack import Branching, Device, MemoryStore, Moment, enrol
from .test_freezing_question import DAY, DRINKS, START

EVEN, ODDS = Odds(2, 1), Odds(3, 1)
KINDS = ("apart", "drawn", "joint", "joint signed", "history", "history of it")
SPAN = 5 * DAY // 4
BOUNDS = (AtMost(2), TimeBounded(SPAN), AtMostWithin(2, SPAN), Hybrid((AtMost(1), TimeBounded(SPAN))))
HEAVY = pytest.param(True, marks=pytest.mark.heavy)


def asking(
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
        state = [Track(1, KaryResponse(each, EVEN), 0, periods, drawn, at) for at, each in enumerate(states)]
        change = [Track(1, law(each, EVEN), int(closed), periods, drawn, at) for at, each in enumerate(spaces)]
        mixed = {"drawn": (state[0], change[1]), "joint signed": tuple(change)}
        tracks = mixed.get(kind, (change[0], state[1]))
        slots = tuple(track.count for track in tracks)
        group = Group(tracks) if "joint" not in kind else Group.jointly(tracks, Joint(ODDS, periods, (1, 1), slots))
    rest: dict[str, Any] = {"skew": 60, "spread": 600, "grace": grace, "minimum": 1, "closed": closed}
    return Survey.at_cost(questions=questions, calendar=calendar, plan=ReleasePlan((group,)), **rest)


@dataclass(frozen=True, slots=True)
class Move(Moment):
    """A hand-over to a device that has joined the survey itself and answered nothing."""


class Moving(Device):
    """A device, and the one that it hands over to: what they send, and the size of the parcel."""

    def _flush(self, moment: Moment, coins: Branching) -> Any:
        if not isinstance(moment, Move):
            return super()._flush(moment, coins)
        old, new = self.store, MemoryStore()
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
        made = asking(kind, constraint, closed, grace=grace)
        worst = Moving(made, schedule(*way), START + DAY * way[2] + 60).worst_ratio()
        assert log_from_below(worst) <= made.epsilon


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
    moments = [
        Moment(
            START + DAY * shows.get(time, time), act=time in acts, hears=int(START + DAY * time) * (time == flushes[-1])
        )
        for time in sorted((*acts, *flushes))
    ]
    made = asking(kind, constraint, closed, grace=6 * DAY // 5)
    assert log_from_below(Device(made, moments, START - 5, idle=False).worst_ratio()) <= made.epsilon


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.heavy] * (kind != "apart")) for kind in KINDS if "signed" not in kind],
)
def test_a_copy_that_both_devices_go_on_from_loses_no_more_than_the_ledger_states(kind, closed):
    """Made before the first closing, or between the two; without a witness."""
    moments = [Moment(START + DAY * time, act=time in (0.2, 1.6)) for time in (0.2, 1.2, 1.6, 2.2)]
    for constraint in BOUNDS[:2]:
        made = asking(kind, constraint, closed)
        stated = lives_cost(made.plan, made.calendar, made.constraints, closed, lives=2)
        device = Device(made, moments, START + 60, idle=False)
        for backup in (1, 2):
            assert log_from_below(device.worst_ratio((backup, 0))) <= stated


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
    seen, made = [], asking(kind, constraint, closed, periods=5, answers=3)

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
