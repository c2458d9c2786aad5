"""A device under attack: what it sends, over all its coins, while clocks leap, apps misbehave and backups come back.

The laws are read off the client's own code (`attack`); nothing here knows how a joint response is drawn.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from changeling_protocol import (
    AtMost,
    Breakdown,
    Calendar,
    Constraint,
    Group,
    Hybrid,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
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

from tests.coins import SeededCoins
from tests.enumeration import log_from_below

from ..protocol.examples import joint_plan, survey
from .attack import Device, MemoryStore, Moment, answer, enrol
from .device import LATE, START, Clock, FakeServer, client

ANY, ONE, TWO = Odds(2, 1), MutationSpace(1), MutationSpace(2)
HALF = Fraction(1, 2)
BEGIN, PERIOD = 1_000, 10


def jointly(*tracks: Track, odds: int, threshold: int, weights: tuple[int, ...], slots: tuple[int, ...]) -> Group:
    return Group.jointly(tracks, Joint(Odds(odds, 1), threshold, weights, slots))


def asking(
    *groups: Group, periods: int, answers: int = 1, constraint: Constraint = AtMost(2), closed: bool = False  # noqa: B008
) -> Survey:  # fmt: skip
    return Survey.at_cost(
        question="Which?",
        answers=[*"ab"[:answers]],
        calendar=Calendar(BEGIN, PERIOD, periods),
        constraint=constraint,
        plan=ReleasePlan(groups),
        skew=0,
        spread=1,
        grace=12,
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
    sizes, number and contents, and what is dropped, are at most e^ε times likelier for the one than for the other."""
    assert log_from_below(worst(name, schedule)) <= SURVEYS[name].epsilon


@pytest.mark.parametrize("name", SURVEYS)
def test_the_loss_is_attained_by_some_pair(name):
    """The enumeration reaches what it looks for: in a joint group that nothing keeps from its slots, exactly a/b."""
    (group, *_) = SURVEYS[name].plan.groups
    full = name != "more slots than are used"
    assert (worst(name, honest) == group.joint.odds.favoured) is full


@pytest.mark.parametrize("late", [BEGIN + 5, BEGIN + PERIOD + 5], ids=["in the first", "in the second"])
def test_an_entry_that_enrols_late_loses_no_more(late):
    """Whether it enrols within a node or after some have closed."""
    asked = SURVEYS["a change at random, a state"]
    device = Device(asked, honest(3), late, delay=999)
    assert device.worst_ratio() <= 5


@pytest.mark.parametrize("backup", [1, 2, 3])
@pytest.mark.parametrize("name", ["layers", "closed, moves after a state", "fewer changes than nodes"])
def test_two_lives_lose_no_more_together_than_the_ledger_states(name, backup):
    """A backup made before a moment, put back when the first life has ended; each life records what it likes."""
    asked = SURVEYS[name]
    schedule = honest(asked.calendar.periods)[:4]
    stated = lives_cost(asked.plan, asked.calendar, asked.constraint, asked.closed, lives=2)
    assert log_from_below(Device(asked, schedule, BEGIN - 5).worst_ratio(backup)) <= stated


def test_a_failure_at_any_draw_leaves_the_store_as_it_was():
    """Nothing of a try that failed is kept, so its coins cannot show in the next."""
    asked = SURVEYS["a change at random, a state"]
    store = MemoryStore()

    class Failing(SeededCoins):
        left = 10**9

        def below(self, n: int) -> int:
            self.left -= 1
            if self.left < 0:
                raise MemoryError
            return super().below(n)

    coins = Failing(3)
    enrol(store, asked, BEGIN + 1, ["a"], coins)
    before = store.state()
    failures = 0
    for draws in range(100):
        coins.left = draws
        try:
            answer(store, Moment(BEGIN + 21, hears=BEGIN + 21, may_drop=False), coins)
            break
        except MemoryError:
            failures += 1
            assert reports_and_marks(store.state()) == reports_and_marks(before)
    assert failures >= 3
    assert reports_and_marks(store.state()) != reports_and_marks(before)


def reports_and_marks(state):
    """What the store holds but the time that the flush has seen."""
    device, _, *others = state
    return device, others


def file_after(folder, asked: Survey, recorded: dict[int, str | None], flushes: Sequence[int]) -> dict[str, bytes]:
    """All bytes of the store's files once the survey has ended and all was acknowledged."""
    folder.mkdir()
    clock = Clock()
    with client(folder, FakeServer(asked), clock, SeededCoins(5)) as device:
        handle = device.join(asked.id)
        for second in sorted({*recorded, *flushes}):
            clock.now = START + second
            if second in recorded:
                answer = recorded[second]
                handle.retract() if answer is None else handle.record(answer)
            if second in flushes:
                device.flush()
        assert device.at(LATE).flush().waiting == 0
        return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_after_the_end_the_files_are_the_same_byte_for_byte_whatever_was_recorded(tmp_path, monkeypatch):
    """Main file and log: no row, freed page or counter is left of the changelog, the counts or the nodes drawn. The
    number by which a witness knows the store, which is drawn as it is made, is the same in all of them here."""
    monkeypatch.setattr(os, "urandom", bytes)
    asked = survey(joint_plan(3, 8), grace=10**6)
    flushes = [60 * period + 20 for period in range(1, 8)]
    lives = [{}, {10: "tea"}, {10: "tea", 200: "coffee", 300: None, 310: "tea"}, {470: "neither"}]
    files = [file_after(tmp_path / str(i), asked, life, flushes) for i, life in enumerate(lives)]
    assert all(each == files[0] for each in files)
    assert files[0]["store.db-wal"] == b""


class Ticking(Clock):
    """Goes on by a fraction of a millisecond whenever it is read."""

    def __call__(self) -> float:
        self.now += 0.0004
        return self.now


def test_who_joins_a_closed_cohort_in_its_last_instant_has_an_answer_in_the_first_period(tmp_path):
    """The clock is read once: an answer that fell behind the period's end would be a mutation too many for the cost, or
    a NULL that no report can tell, which would silence the whole store."""
    plan = ReleasePlan((Group((Track(1, SignedSubset(MutationSpace(3, null=False), Odds(3, 1)), 1, 8),)),))
    asked = survey(plan, constraint=AtMost(2), closed=True, grace=10**6)
    clock = Ticking(START + 60 - 0.0012)
    with client(tmp_path, FakeServer(asked), clock) as device:
        device.join(asked.id, entries=4, answers=["tea"] * 4)
        assert device.at(LATE).flush().sent == 4 * 7


SOONEST = ("layers", "sets of two states")
"""Those that are enumerated soonest; the others are heavy."""
BREAKDOWNS = (Breakdown("system", ("linux", "mac", "windows")), Breakdown("channel", ("release", "beta")))


@pytest.mark.parametrize("schedule", [honest, set_back, heard, offline])
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.heavy] * (each not in SOONEST)) for each in SURVEYS]
)
def test_strata_change_nothing_of_the_loss(name, schedule):
    """Enumerated over all coins and all that an app may record: the same fraction, strata and standings seen too.

    The app tells the first of six strata as the entry enrols, and another before the last flush.
    """
    asked = SURVEYS[name]
    moments = schedule(asked.calendar.periods)
    told = replace(asked, breakdowns=BREAKDOWNS, stratum_changes=1)
    changed = [*moments[:-1], replace(moments[-1], tells=StratumNumber(5))]
    assert Device(told, changed, BEGIN - 5).worst_ratio() == worst(name, schedule)
