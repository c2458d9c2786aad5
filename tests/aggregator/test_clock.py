"""A clock that is set seals nothing, destroys nothing, and dates nothing; a pause stops no counting.

Nor does one that is wrong at the start, wrong together with the database's, or set between two looks.
"""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.ingest import heads_of, refusals_of
from changeling_aggregator.server import MOST_STEP, Doubt, GuardedClock, ServerSettings, Service, clock, troubles_of
from changeling_aggregator.store import KeptTime, Store
from changeling_aggregator.testing import sql
from changeling_protocol import Calendar, Node, UnixSeconds

from ..protocol.examples import PINNED, survey
from .devices import GRACE, START, Log, body, envelope, report
from .serving import Cli

NOW, HOUR, DAY = float(START), 3600.0, 86_400.0
NEVER, KEPT = KeptTime(0, False), KeptTime(int(NOW * 1000), False)


class Machine:
    """The two clocks of a machine: the wall's goes astray when it is set, the steady one never. true: Unix seconds."""

    def __init__(self) -> None:
        self.true, self.steady, self.astray = NOW, 500.0, 0.0

    @property
    def wall(self) -> UnixSeconds:
        return UnixSeconds(self.true + self.astray)

    def run(self, seconds: float) -> None:
        self.true += seconds
        self.steady += seconds

    def boot(self, kept: KeptTime, database: float | None = None) -> GuardedClock:
        self.steady = 7.0
        there = None if database is None else UnixSeconds(database)
        return GuardedClock(kept, there, lambda: self.wall, lambda: self.steady)


@pytest.fixture
def machine() -> Machine:
    return Machine()


SECONDS = {"s": 1.0, "h": HOUR, "d": DAY}
BOOTS = {"first": NEVER, "again": KEPT, "jumped": KeptTime(KEPT.told, True)}
"""What the store remembers when a machine boots."""


def seconds(words: str) -> float:
    return float(words[:-1]) * SECONDS[words[-1]]


LIVES = {
    **{  # the time goes on from where it was, however long that lasts; set right the clock is believed at once
        f"set by {step}s": f"boot first; run 100s; set {step}s: SET; run 5h: SET; run 9h: SET; set {-step}s"
        for step in (61, 25 * 3600, 40 * 86_400, -61, -86_400)
    },
    **{  # the time is the machine's all the while; a database may run there, and vouches for nothing
        f"{pause} of pause, {boot}": f"run {pause}; boot {boot}{doubt}; run 599s{doubt}; run 1s"
        for pause, doubt in (("0s", ""), ("2h", ""), ("7201s", ": STARTED"), ("7d", ": STARTED"))
        for boot in ("again", "again beside a database")
    },
    **{  # only an operator is believed: a clock that is wrong from the start on, and stays so, looks just the same
        f"more than a week of pause, {boot}": f"run 604801s; boot {boot}: LONG_PAUSE; run 40d: LONG_PAUSE; "
        f"boot {boot}: LONG_PAUSE; confirm 0s"
        for boot in ("again", "again beside a database")
    },
    "restarts during each watch": "run 1d; boot again: STARTED; run 599s: STARTED; "
    "boot again: STARTED; run 599s: STARTED; run 1s",
    "boots ahead and is set right": "set 25h; boot again: STARTED 25h; run 300s: STARTED 25h; set -25h; set 40d: SET",
    "is set before a restart": "boot first; set 40d: SET; boot jumped: SET; run 2h: SET; set -40d",
    "boots behind what the store remembers": "set -1d; boot again: SET; run 2h: SET; set 1d",
    "differs from its database": "boot again beside a database; database 61s: DATABASE; database -1d: DATABASE; "
    "database 59s",
    "boots ahead with its database": "set 40d; boot again beside a database: LONG_PAUSE 40d; run 100s: LONG_PAUSE 40d; "
    "set -40d; database 40d: DATABASE; database 0s",
}
"""What happens, step by step; after each the doubt, if there is one, and how far the time that is shown is astray."""


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_a_clock_is_believed_while_nothing_contradicts_it(machine: Machine, life: str) -> None:
    """What it shows, whether it is believed, and what the store is to remember, after each step of a life."""
    clock: GuardedClock | None = None
    for step in life.split("; "):
        happens, _, told = step.partition(": ")
        (what, value, *beside), (doubt, *astray) = happens.split(), told.split() or [""]
        if what == "boot":
            clock = machine.boot(BOOTS[value], machine.wall if beside else None)
        elif what == "run":
            machine.run(seconds(value))
        elif what == "set":
            machine.astray += seconds(value)
        elif clock is not None:
            there = UnixSeconds(machine.true + seconds(value))
            clock.confirm(there) if what == "confirm" else clock.compare(there)
        if clock is not None:
            doubted = Doubt[doubt] if doubt else None
            assert (clock.doubt, clock() - machine.true) == (doubted, sum(map(seconds, astray))), step
            told_next = KeptTime(int(clock() * 1000), doubted is Doubt.SET)
            assert clock.kept() == (told_next if doubt in ("", "SET") else None), step


def test_small_corrections_are_followed_and_do_not_add_up_to_a_large_one(machine: Machine) -> None:
    """A minute an hour is the most that it goes astray unseen."""
    clock = machine.boot(NEVER)
    for _ in range(1000):
        machine.run(60)
        machine.astray += 0.5
        assert (clock(), clock.doubt) == (machine.wall, None)
    for _ in range(10):
        machine.run(1)
        machine.astray += MOST_STEP / 2
        clock()
    assert clock.doubt is Doubt.SET


def test_an_operator_who_says_the_same_time_is_believed(machine: Machine) -> None:
    """Not one who says another; from then on the clock is followed again."""
    clock = machine.boot(NEVER)
    machine.astray += DAY
    assert clock.doubt is Doubt.SET
    for wrong in (NOW, machine.wall + 61, 1e300, -1e300):
        with pytest.raises(ValueError, match="set it right, then confirm"):
            clock.confirm(UnixSeconds(wrong))
    assert clock.doubt is Doubt.SET
    clock.confirm(UnixSeconds(machine.wall + 59))
    for _ in range(2):
        assert (clock.doubt, clock()) == (None, machine.wall)
        machine.run(5)


def test_at_the_start_the_database_is_believed(machine: Machine) -> None:
    """Where it differs from the machine's clock."""
    assert machine.boot(KEPT, NOW + 30).doubt is None
    ahead = machine.boot(KEPT, NOW - DAY)
    assert (ahead.doubt, ahead()) == (Doubt.SET, NOW - DAY)


def serve(store: Store, machine: Machine, database: float | None = None) -> Service:
    with store.view() as view:
        return Service(store, ServerSettings(PINNED, machine.boot(view.kept_time(), database)))


def upload(service: Service, log: Log, node: int) -> None:
    if not service.committer.running:
        service.committer.start()  # whose threads wait until the tests end
    sealed = envelope(log.survey, log.key, [report(node)], Node(0, 4))
    asyncio.run(service.committer.append(body(sealed), [log.survey.id]))


def test_forty_days_ahead_seal_nothing_and_destroy_no_key(store: Store, machine: Machine) -> None:
    """What is uploaded meanwhile is stamped with the true time and counts; afterwards all is as if nothing had been."""
    log = Log.of(store, survey(), expires=int(NOW + DAY))
    service = serve(store, machine)
    machine.run(61)
    service.folding.fold_now()
    machine.astray += 40 * DAY
    assert service.clock() == NOW + 61
    upload(service, log, 1)
    for _ in range(3):
        machine.run(1)
        service.folding.fold_now()
    assert "clock" in {trouble.name for trouble in troubles_of(service)}
    assert [each.arrival for each in log.kept()] == [1000 * (NOW + 61)]
    assert (log.sealed(), log.private_keys(), log.tallies()[0, 1][0]) == (0, {log.key.id}, 1)
    machine.astray -= 40 * DAY
    service.folding.fold_now()
    assert "clock" not in {trouble.name for trouble in troubles_of(service)}
    machine.run(GRACE)
    service.folding.fold_now()
    assert log.sealed() == 1


@pytest.mark.parametrize("pause", [2 * HOUR, 6 * DAY])
def test_a_pause_stops_no_counting_and_seals_within_minutes(store: Store, machine: Machine, pause: float) -> None:
    """Whatever was uploaded before or after a restart is counted at once."""
    log = Log.of(store, survey(grace=GRACE + 6 * int(DAY)))
    serve(store, machine).folding.fold_now()
    machine.run(61)
    log.append_reports(machine.wall, [report(1)])
    machine.run(pause)
    service = serve(store, machine)
    assert service.folding.fold_now().reports == 1
    log.append_reports(machine.wall, [report(1)])
    assert service.folding.fold_now().reports == 1
    machine.run(7 * DAY - pause - 200)
    service = serve(store, machine)
    service.folding.fold_now()
    assert log.sealed() == 0
    machine.run(clock.SETTLING_SECONDS)
    service.folding.fold_now()
    assert log.sealed() > 0


def test_the_age_of_the_fold_is_that_of_what_waits(
    store: Store, log: Log, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a clock in doubt keeps an upload from being counted it grows, however often the fold has run since."""
    serve(store, machine).folding.fold_now()
    machine.run(8 * DAY)
    monkeypatch.setattr("changeling_aggregator.server.service.monotonic", lambda: machine.steady)
    service = serve(store, machine)
    service.folding.fold_now()
    log.append_reports(machine.wall, [report(1)])
    for _ in range(18):
        machine.run(60)
        assert service.folding.fold_now().reports == 0
    assert service.folding.age == 18 * 60
    assert service.guarded_clock is not None
    service.guarded_clock.confirm(UnixSeconds(machine.wall))
    service.folding.fold_now()
    assert service.folding.age == 0


@pytest.mark.parametrize("days", [1, 8])
def test_a_fold_by_itself_counts_after_any_pause_and_seals_once_the_clock_was_watched(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """`changeling fold` on a store that nobody used for days, as of a machine that folds once a day: it waits until it
    may count what came after a deadline, and seal; after more than a week it says what it leaves."""
    monkeypatch.setattr("changeling_aggregator.server.clock.SETTLING_SECONDS", 0.2)
    monkeypatch.setattr("changeling_aggregator.server.service.KEEP_TIME_SECONDS", 0.0)
    now = int(time.time())
    log = Log.of(Store.open(tmp_path / "server.db"), survey(calendar=Calendar(now - 900, 60, 8), grace=GRACE))
    log.append_reports(now, [report(8)])
    with log.store.transaction() as writing:
        writing.keep_time(KeptTime(int(1000 * (now - days * DAY)), False))
    log.store.close()
    said = cli("fold", "--store", str(tmp_path / "server.db"))
    assert f"{int(days < 7)} reports" in said
    assert ("watched for ten minutes" in said, "not sealed" in said) == (days < 7, days > 7)
    store = Store.open(tmp_path / "server.db")
    with store.view() as view:
        assert (view.surveys()[log.survey.id].sealed > 0) == (days < 7)
        assert (view.kept_time().told >= 1000 * now) == (days < 7)
    store.close()


def test_a_destroyed_key_is_not_offered_and_not_taken(store: Store, log: Log, machine: Machine) -> None:
    """Whatever destroyed it, and whatever its dates."""
    service = serve(store, machine)
    upload = envelope(log.survey, log.key, [report(1)])
    assert service.registry.offered(UnixSeconds(NOW)) is not None
    refused = partial(refusals_of, [upload], heads_of([upload]), service.registry, UnixSeconds(NOW))
    assert refused() == {}
    sql(store, "UPDATE keys SET private = NULL")
    service.folding.fold_now()
    assert service.registry.offered(UnixSeconds(NOW)) is None
    assert refused() == {0: (log.survey.id, "unknown-key")}


def test_a_server_whose_clock_differs_from_postgresqls_neither_seals_nor_destroys(
    postgresql_store: Store, machine: Machine
) -> None:
    """It counts all the same, and leaves the time that the store remembers to others."""
    there = int(time.time())
    machine.true = float(there)
    log = Log.of(postgresql_store, survey(calendar=Calendar(there - 100, 60, 8), grace=GRACE))
    log.append_reports(there, [report(1)])
    with postgresql_store.view() as view:
        database = view.kept_time().database
    service = serve(postgresql_store, machine, database)
    machine.astray += DAY
    assert service.folding.fold_now().reports == 1
    assert service.guarded_clock is not None
    assert service.guarded_clock.doubt is not None
    machine.astray -= DAY
    service.folding.fold_now()
    assert service.guarded_clock.doubt is None


@pytest.mark.parametrize("looks", [*range(8), 1000])
def test_a_clock_set_right_between_two_looks_of_a_fold_destroys_nothing(
    store: Store, machine: Machine, looks: int
) -> None:
    """Nor does one that nobody sets right. A time read before belongs to no belief that was asked for after."""
    log, left = Log.of(store, survey(), expires=int(NOW + DAY)), 1000

    def look() -> UnixSeconds:
        nonlocal left
        machine.astray -= 40 * DAY * (left == 0)
        left -= 1
        return machine.wall

    machine.astray += 40 * DAY
    clock = GuardedClock(KEPT, None, look, lambda: machine.steady)
    service = Service(store, ServerSettings(PINNED, clock))
    assert clock.doubt is Doubt.LONG_PAUSE
    left = looks
    service.folding.fold_now()
    assert (log.sealed(), log.private_keys()) == (0, {log.key.id})


@pytest.mark.parametrize("ahead", [25 * HOUR, 40 * DAY])
def test_what_comes_to_a_machine_that_boots_ahead_counts_and_is_kept_no_longer_for_that(
    store: Store, machine: Machine, ahead: float
) -> None:
    """An upload is acknowledged within its grace; a minute later the time daemon sets the clock right."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW - 60), 60, 2**17), grace=7200))
    serve(store, machine).folding.fold_now()
    machine.run(HOUR)
    machine.astray += ahead
    service = serve(store, machine)
    upload(service, log, 1)
    service.folding.fold_now()
    machine.run(60)
    machine.astray -= ahead
    service.folding.fold_now()
    assert log.refused() == {}
    assert log.tallies()[0, 1][0] == 1
    upload(service, log, 2)
    machine.run(DAY)
    service.folding.fold_now()
    assert log.kept() == []


@pytest.mark.parametrize("behind", [3 * HOUR, 40 * DAY])
def test_a_second_server_with_a_clock_behind_uncounts_and_unseals_nothing(
    store: Store, log: Log, behind: float
) -> None:
    """What it takes after a closing was sealed arrives after that moment, whatever it shows."""
    log.append_reports(NOW + 61, [report(1)])
    fold(store, NOW + 61 + GRACE)
    assert log.sealed() == 1
    log.append_reports(NOW + 61 - behind, [report(1)])
    log.append_reports(NOW + 62 + GRACE - behind, [report(2)])
    fold(store, NOW + 62 + GRACE - behind)
    fold(store, NOW + 62 + GRACE)
    assert (log.tallies()[0, 1][0], log.tallies()[0, 2][0], log.refused()) == (1, 1, {"late": 1})
    assert sql(store, "SELECT sealed FROM surveys") == [(1,)]
