"""The freezing question in plans of every kind: all that is sent, enumerated, by entries that change their device,
enrol late, are silent for some closings, or record nothing; and what else could be seen of them."""

import logging
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from changeling_client import entries, handover, witness
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
from .test_freezing_question import DAY, START, lives

EVEN, ODDS = Odds(2, 1), Odds(3, 1)
KINDS = ("apart", "drawn", "joint", "joint signed", "history", "history of it")
SPAN = 5 * DAY // 4
BOUNDS = (AtMost(2), TimeBounded(SPAN), AtMostWithin(2, SPAN), Hybrid((AtMost(1), TimeBounded(SPAN))))
HEAVY = pytest.param(True, marks=pytest.mark.heavy)


def asking(kind: str, constraint: Constraint, closed: bool, periods: int = 2, grace: int = 40 * DAY) -> Survey:
    """About one answer, or two in a closed cohort, in a plan of one group, which asks whether it is frozen as well."""
    drink = Question("drink", "What do you drink?", ("tea", "coffee")[: 1 + closed], constraint)
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


@pytest.mark.parametrize("all_", [False, HEAVY], ids=["some", "all"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_two_lives_are_told_apart_beyond_the_stated_loss(kind, closed, all_):
    """Over all that may be recorded, or not, and all coins; some closings are too late where the grace is short."""
    with patch.object(witness, "advance", lambda _db: None):  # marks at random, so that no state would come again
        for number, (*way, grace) in enumerate(WAYS[: 5 - closed][:: 2 - all_]):
            for constraint in BOUNDS if all_ else (BOUNDS[number % 2],):
                made = asking(kind, constraint, closed, grace=grace)
                worst = Moving(made, schedule(*way), START + DAY * way[2] + 60).worst_ratio()
                assert log_from_below(worst) <= made.epsilon


@pytest.mark.heavy
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "joint signed"])
def test_a_copy_that_both_devices_go_on_from_loses_no_more_than_the_ledger_states(kind, closed):
    """Made before the first closing, or between the two; without a witness."""
    moments = [Moment(START + DAY * time, act=time in (0.2, 1.6)) for time in (0.2, 1.2, 1.6, 2.2)]
    for constraint in BOUNDS[:2]:
        made = asking(kind, constraint, closed)
        stated = lives_cost(made.plan, made.calendar, made.constraints, closed, lives=2)
        with patch.object(witness, "advance", lambda _db: None):
            for backup in (1, 2):
                assert log_from_below(Device(made, moments, START + 60).worst_ratio(backup)) <= stated


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("kind", ["drawn", "joint", "history of it"])
def test_whether_changes_are_used_up_shows_in_nothing_that_two_devices_do(tmp_path, caplog, kind, closed):
    """Requests, lines down to debug level, what flushes say, errors, nodes, and the size of the parcel."""
    seen, made = [], asking(kind, AtMost(2), closed, periods=5)

    def app(household: Household, life: tuple[str | None, ...]) -> None:
        caplog.clear()
        told: list[Any] = []
        sid, folder = household.server.publish(made), tmp_path / str(len(seen))
        folder.mkdir()
        options = {"on_error": told.append, "witness": None}
        with household.client(**options) as old, household.client(path=folder / "new.db", **options) as new:
            old.join(sid, answers=["tea"] if closed else None)
            for step, value in enumerate(life):
                device = old if step < 6 else new
                device.flush()
                handle = device.join(sid)
                household.clock.advance(hours=10)
                handle.retract() if value not in made.asked[0].answers else handle.record(value)
                household.server.go_offline() if step == 5 else household.server.recover()
                told.append(device.flush())
                if step == 5:
                    parcel = old.hand_over(new.invite(old.hand_over_key()))
                    told += [len(parcel), new.take_over(parcel), old.flush()]
        told += [(report.track, report.node) for report in household.server.reports]
        seen.append((told, [each.getMessage() for each in caplog.records]))

    with caplog.at_level(logging.DEBUG):
        assert audit(app, [*lives(), (None,) * 12]) == []
    assert all(each == seen[0] for each in seen)
