"""Attacks on the clock of a server: wrong at the start, wrong together with the database's, set between two looks."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.server import GuardedClock, ServerSettings, Service
from changeling_aggregator.server.clock import LONGEST_PAUSE, MOST_PAUSE, SETTLING_SECONDS, Doubt
from changeling_aggregator.store import KeptTime, Store
from changeling_aggregator.testing import sql
from changeling_protocol import Calendar, Node, UnixSeconds

from ..protocol.examples import PINNED, survey
from .devices import Log, body, envelope, report
from .test_clock import DAY, GRACE, HOUR, KEPT, NOW, Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()


def serve(store: Store, machine: Machine, database: float | None = None) -> Service:
    with store.view() as view:
        return Service(store, ServerSettings(PINNED, machine.boot(view.kept_time(), database)))


def upload(service: Service, log: Log, node: int) -> None:
    sealed = envelope(log.survey, log.key, [report(node)], Node(0, 4))
    asyncio.run(service.committer.append(body(sealed), [log.survey.id]))


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
    with postgresql_store.view() as view:
        assert set(view.private_keys()) == {log.key.id}
    assert log.sealed() == 0


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
    with store.view() as view:
        assert set(view.private_keys()) == {log.key.id}
    assert log.sealed() == 0


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
