"""A clock that is set seals nothing, destroys nothing, and dates nothing; a pause stops no counting.

Nor does one that is wrong at the start, wrong together with the database's, or set between two looks.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.ingest import refusal_of
from changeling_aggregator.server import GuardedClock, ServerSettings, Service, troubles_of
from changeling_aggregator.server.clock import LONGEST_PAUSE, MOST_PAUSE, MOST_STEP, SETTLING_SECONDS, Doubt
from changeling_aggregator.store import KeptTime, Store
from changeling_aggregator.testing import sql
from changeling_protocol import Calendar, Node, UnixSeconds

from ..protocol.examples import PINNED, survey
from .devices import Log, body, envelope, report
from .serving import Cli

NOW, HOUR, DAY, GRACE = 1_800_000_000.0, 3600.0, 86_400.0, 600
NEVER, KEPT = KeptTime(0, False), KeptTime(int(NOW * 1000), False)


class Machine:
    """The two clocks of a machine, moved by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 500.0

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def boot(self, kept: KeptTime, database: float | None = None) -> GuardedClock:
        self.steady = 7.0
        there = None if database is None else UnixSeconds(database)
        return GuardedClock(kept, there, lambda: UnixSeconds(self.wall), lambda: self.steady)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_clock_that_runs_is_shown_and_believed(machine: Machine) -> None:
    """From a store's first start on, also where it is slowly set right."""
    clock = machine.boot(NEVER)
    for _ in range(1000):
        machine.run(60)
        machine.wall += 0.5
        assert (clock(), clock.doubt) == (machine.wall, None)


@pytest.mark.parametrize("step", [MOST_STEP + 1, 25 * HOUR, 40 * DAY, -MOST_STEP - 1, -DAY])
def test_a_step_is_not_followed_until_it_is_undone(machine: Machine, step: float) -> None:
    """The time goes on from where it was, however long that lasts; set right the clock is believed at once."""
    clock = machine.boot(NEVER)
    machine.run(100)
    clock()
    machine.wall += step
    for _ in range(5):
        machine.run(HOUR)
        assert clock.doubt is Doubt.SET
        assert clock() == machine.wall - step
    machine.wall -= step
    assert (clock.doubt, clock()) == (None, machine.wall)


def test_small_steps_do_not_add_up_to_a_large_one(machine: Machine) -> None:
    """A minute an hour is the most that it goes astray unseen."""
    clock = machine.boot(NEVER)
    for _ in range(10):
        machine.run(1)
        machine.wall += MOST_STEP / 2
        clock()
    assert clock.doubt is Doubt.SET


def test_an_operator_who_says_the_same_time_is_believed(machine: Machine) -> None:
    """Not one who says another; from then on the clock is followed again."""
    clock = machine.boot(NEVER)
    machine.wall += DAY
    assert clock.doubt is Doubt.SET
    for wrong in (NOW, machine.wall + 61, 1e300, -1e300):
        with pytest.raises(ValueError, match="set it right, then confirm"):
            clock.confirm(UnixSeconds(wrong))
    assert clock.doubt is Doubt.SET
    clock.confirm(UnixSeconds(machine.wall + 59))
    assert (clock.doubt, clock()) == (None, machine.wall)
    machine.run(5)
    assert (clock.doubt, clock()) == (None, machine.wall)


@pytest.mark.parametrize("pause", [0.0, MOST_PAUSE, MOST_PAUSE + 1, LONGEST_PAUSE])
def test_after_a_pause_the_clock_is_believed_within_minutes(machine: Machine, pause: float) -> None:
    """At once after two hours or less; the time is that of the machine all the while."""
    machine.run(pause)
    clock = machine.boot(KEPT)
    assert clock() == machine.wall
    assert clock.doubt is (Doubt.STARTED if pause > MOST_PAUSE else None)
    machine.run(SETTLING_SECONDS)
    assert (clock.doubt, clock()) == (None, machine.wall)
    assert clock.kept() == KeptTime(int(machine.wall * 1000), False)


def test_a_restart_ends_no_watch(machine: Machine) -> None:
    """Each begins one anew, as the store does not remember the time of a clock that is watched."""
    machine.run(DAY)
    for _ in range(3):
        clock = machine.boot(KEPT)
        machine.run(SETTLING_SECONDS - 1)
        assert (clock.doubt, clock.kept()) == (Doubt.STARTED, None)
    machine.run(1)
    assert (clock.doubt, clock.kept()) == (None, KeptTime(int(machine.wall * 1000), False))


def test_after_more_than_a_week_only_an_operator_is_believed(machine: Machine) -> None:
    """A clock that is wrong from the start on, and stays so, looks just the same; restarts change nothing."""
    machine.run(LONGEST_PAUSE + 1)
    for _ in range(3):
        clock = machine.boot(KEPT)
        assert (clock(), clock.doubt, clock.kept()) == (machine.wall, Doubt.LONG_PAUSE, None)
        machine.run(40 * DAY)
        assert (clock(), clock.doubt, clock.kept()) == (machine.wall, Doubt.LONG_PAUSE, None)
    clock.confirm(UnixSeconds(machine.wall))
    assert clock.doubt is None
    assert clock.kept() == KeptTime(int(machine.wall * 1000), False)


def test_a_clock_that_was_wrong_at_the_start_is_watched_anew_when_it_is_set_right(machine: Machine) -> None:
    """A machine may boot 25 hours ahead, and hear the time from the network later."""
    machine.wall += 25 * HOUR
    clock = machine.boot(KEPT)
    assert clock.doubt is Doubt.STARTED
    machine.run(300)
    machine.wall -= 25 * HOUR
    assert (clock.doubt, clock()) == (None, machine.wall)
    machine.wall += 40 * DAY
    assert clock.doubt is Doubt.SET


def test_a_step_is_not_forgotten_in_a_restart(machine: Machine) -> None:
    """Nor a clock that is behind what the store remembers: neither is believed by itself."""
    clock = machine.boot(NEVER)
    machine.wall += 40 * DAY
    kept = clock.kept()
    assert kept == KeptTime(int(NOW * 1000), True)
    for remembered, wall in ((kept, machine.wall), (KEPT, NOW - DAY)):
        machine.wall = wall
        again = machine.boot(remembered)
        machine.run(2 * HOUR)
        assert again.doubt is Doubt.SET
        assert again() == NOW + 2 * HOUR
        machine.wall = NOW + 30
        assert machine.boot(remembered).doubt is None


def test_a_clock_that_differs_from_the_databases_is_not_believed(machine: Machine) -> None:
    """At the start the server goes by the database's."""
    assert machine.boot(KEPT, NOW + 30).doubt is None
    ahead = machine.boot(KEPT, NOW - DAY)
    assert (ahead.doubt, ahead()) == (Doubt.SET, NOW - DAY)
    clock = machine.boot(KEPT, NOW)
    for database, doubt in ((NOW + 61, Doubt.DATABASE), (NOW - DAY, Doubt.DATABASE), (NOW + 59, None)):
        clock.compare(UnixSeconds(database))
        assert clock.doubt is doubt
        assert (clock.kept() is None) is (doubt is not None)


def serve(store: Store, machine: Machine, database: float | None = None) -> Service:
    with store.view() as view:
        return Service(store, ServerSettings(PINNED, machine.boot(view.kept_time(), database)))


def upload(service: Service, log: Log, node: int) -> None:
    sealed = envelope(log.survey, log.key, [report(node)], Node(0, 4))
    asyncio.run(service.committer.append(body(sealed), [log.survey.id]))


def private_keys(store: Store) -> set[bytes]:
    with store.view() as view:
        return set(view.private_keys())


@pytest.fixture
def started() -> Iterator[Callable[[Service], Service]]:
    """Starts what takes uploads of a service, and ends it after the test."""
    services = []

    def start(service: Service) -> Service:
        services.append(service)
        service.committer.start()
        return service

    yield start
    for each in services:
        each.committer.close()


def test_forty_days_ahead_seal_nothing_and_destroy_no_key(
    store: Store, machine: Machine, started: Callable[[Service], Service]
) -> None:
    """What is uploaded meanwhile is stamped with the true time and counts; afterwards all is as if nothing had been."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE), expires=int(NOW + DAY))
    service = started(serve(store, machine))
    machine.run(61)
    service.folding.fold_now()
    machine.wall += 40 * DAY
    assert service.clock() == NOW + 61
    upload(service, log, 1)
    for _ in range(3):
        machine.run(1)
        service.folding.fold_now()
    assert "clock" in {trouble.name for trouble in troubles_of(service)}
    with store.view() as view:
        assert view.latest_arrival() == 1000 * (NOW + 61)
    assert (log.sealed(), private_keys(store), log.tallies()[0, 1][0]) == (0, {log.key.id}, 1)
    machine.wall -= 40 * DAY
    service.folding.fold_now()
    assert "clock" not in {trouble.name for trouble in troubles_of(service)}
    machine.run(GRACE)
    service.folding.fold_now()
    assert log.sealed() == 1


@pytest.mark.parametrize("pause", [2 * HOUR, 6 * DAY])
def test_a_pause_stops_no_counting_and_seals_within_minutes(store: Store, machine: Machine, pause: float) -> None:
    """Whatever was uploaded before or after a restart is counted at once."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE + 6 * int(DAY)))
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
    machine.run(SETTLING_SECONDS)
    service.folding.fold_now()
    assert log.sealed() > 0


def test_the_age_of_the_fold_is_that_of_what_waits(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a clock in doubt keeps an upload from being counted it grows, however often the fold has run since."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE))
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
    monkeypatch.setattr("changeling_aggregator.server.clock.SETTLING_SECONDS", 1.0)
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
        assert (view.sealed_period(log.survey.id) > 0) == (days < 7)
        assert (view.kept_time().told >= 1000 * now) == (days < 7)
    store.close()


def test_a_destroyed_key_is_not_offered_and_not_taken(store: Store, machine: Machine) -> None:
    """Whatever destroyed it, and whatever its dates."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE))
    service = serve(store, machine)
    upload = envelope(log.survey, log.key, [report(1)])
    assert service.registry.offered(UnixSeconds(NOW)) is not None
    assert refusal_of(upload, service.registry, UnixSeconds(NOW)) is None
    sql(store, "UPDATE keys SET private = NULL")
    service.folding.fold_now()
    assert service.registry.offered(UnixSeconds(NOW)) is None
    refused = refusal_of(upload, service.registry, UnixSeconds(NOW))
    assert refused is not None
    assert refused[1] == "unknown-key"


def test_a_server_whose_clock_differs_from_postgresqls_neither_seals_nor_destroys(
    postgresql_store: Store, machine: Machine
) -> None:
    """It counts all the same, and leaves the time that the store remembers to others."""
    there = int(time.time())
    machine.wall = float(there)
    log = Log.of(postgresql_store, survey(calendar=Calendar(there - 100, 60, 8), grace=GRACE))
    log.append_reports(there, [report(1)])
    with postgresql_store.view() as view:
        database = view.database_time()
    service = serve(postgresql_store, machine, database)
    machine.wall += DAY
    assert service.folding.fold_now().reports == 1
    assert service.guarded_clock is not None
    assert service.guarded_clock.doubt is not None
    machine.wall -= DAY
    service.folding.fold_now()
    assert service.guarded_clock.doubt is None


@pytest.mark.parametrize(
    ("pause", "doubt"),
    [
        (MOST_PAUSE, None),
        (MOST_PAUSE + 1, Doubt.STARTED),
        (LONGEST_PAUSE, Doubt.STARTED),
        (LONGEST_PAUSE + 1, Doubt.LONG_PAUSE),
    ],
)
def test_a_database_that_shows_the_same_wrong_time_vouches_for_nothing(
    machine: Machine, pause: float, doubt: Doubt | None
) -> None:
    """It may run on the same machine. So a pause of the store counts as it does where the store is a file."""
    machine.wall += pause
    clock = machine.boot(KEPT, machine.wall)
    assert (clock(), clock.doubt) == (machine.wall, doubt)
    assert (clock.kept() is None) is (doubt is not None)
    machine.run(SETTLING_SECONDS)
    assert clock.doubt is (doubt if doubt is Doubt.LONG_PAUSE else None)


def test_a_machine_set_right_during_the_watch_is_believed_once_the_database_agrees(machine: Machine) -> None:
    """Both boot 40 days ahead; time daemons set one right, then the other."""
    machine.wall += 40 * DAY
    clock = machine.boot(KEPT, machine.wall)
    machine.run(100)
    machine.wall -= 40 * DAY
    clock.compare(UnixSeconds(machine.wall + 40 * DAY))
    assert (clock(), clock.doubt) == (machine.wall, Doubt.DATABASE)
    clock.compare(UnixSeconds(machine.wall))
    assert (clock(), clock.doubt) == (machine.wall, None)


def test_a_postgresql_on_a_machine_that_boots_forty_days_ahead_loses_no_key(
    postgresql_store: Store, machine: Machine
) -> None:
    """The server and its database read the same clock, and agree."""
    with postgresql_store.view() as view:
        ahead = view.database_time()
    assert ahead is not None
    true, machine.wall = ahead - 40 * DAY, ahead
    log = Log.of(postgresql_store, survey(calendar=Calendar(int(true) - 60, 60, 8)), expires=int(true + DAY))
    with postgresql_store.transaction() as writing:
        writing.keep_time(KeptTime(int(1000 * true), False))
    service = serve(postgresql_store, machine, ahead)
    service.folding.fold_now()
    assert (log.sealed(), private_keys(postgresql_store)) == (0, {log.key.id})


class SetBetween(Machine):
    """A machine that boots ahead, and whose clock is set right between any two looks at it."""

    looks_left = 1000

    def look(self) -> UnixSeconds:
        if self.looks_left == 0:
            self.wall -= 40 * DAY
        self.looks_left -= 1
        return UnixSeconds(self.wall)


@pytest.mark.parametrize("looks", range(8))
def test_a_clock_set_right_between_two_looks_of_a_fold_destroys_nothing(store: Store, looks: int) -> None:
    """A time read before belongs to no belief that was asked for after."""
    machine = SetBetween()
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE), expires=int(NOW + DAY))
    machine.wall += 40 * DAY
    clock = GuardedClock(KEPT, None, machine.look, lambda: machine.steady)
    service = Service(store, ServerSettings(PINNED, clock))
    assert clock.doubt is Doubt.LONG_PAUSE
    machine.looks_left = looks
    service.folding.fold_now()
    assert (log.sealed(), private_keys(store)) == (0, {log.key.id})


@pytest.mark.parametrize("ahead", [25 * HOUR, 40 * DAY])
def test_what_arrives_at_a_machine_that_boots_ahead_counts_once_it_is_set_right(
    store: Store, machine: Machine, started: Callable[[Service], Service], ahead: float
) -> None:
    """An upload is acknowledged within its grace; a minute later the time daemon sets the clock right."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW - 60), 3600, 10_000), grace=7200))
    serve(store, machine).folding.fold_now()
    machine.run(HOUR)
    machine.wall += ahead
    service = started(serve(store, machine))
    upload(service, log, 1)
    service.folding.fold_now()
    machine.run(60)
    machine.wall -= ahead
    service.folding.fold_now()
    assert log.refused() == {}
    assert log.tallies()[0, 1][0] == 1


def test_envelopes_are_kept_no_longer_because_one_came_while_the_clock_was_ahead(
    store: Store, machine: Machine, started: Callable[[Service], Service]
) -> None:
    """A machine boots forty days ahead, takes one upload, and is set right."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW - 60), 60, 2**17), grace=GRACE))
    serve(store, machine).folding.fold_now()
    machine.wall += 40 * DAY
    service = started(serve(store, machine))
    upload(service, log, 1)
    service.folding.fold_now()
    machine.wall -= 40 * DAY
    machine.run(60)
    upload(service, log, 2)
    service.folding.fold_now()
    machine.run(DAY)
    service.folding.fold_now()
    assert log.kept() == []


@pytest.mark.parametrize("behind", [3 * HOUR, 40 * DAY])
def test_a_second_server_with_a_clock_behind_uncounts_and_unseals_nothing(store: Store, behind: float) -> None:
    """What it takes after a closing was sealed arrives after that moment, whatever it shows."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE))
    log.append_reports(NOW + 61, [report(1)])
    fold(store, NOW + 61 + GRACE)
    assert log.sealed() == 1
    log.append_reports(NOW + 61 - behind, [report(1)])
    log.append_reports(NOW + 62 + GRACE - behind, [report(2)])
    fold(store, NOW + 62 + GRACE - behind)
    fold(store, NOW + 62 + GRACE)
    assert (log.tallies()[0, 1][0], log.tallies()[0, 2][0], log.refused()) == (1, 1, {"late": 1})
    assert sql(store, "SELECT sealed FROM surveys") == [(1,)]
