"""A clock that jumps seals nothing, destroys nothing, and dates nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from changeling_aggregator.server import GuardedClock, Service, Settings
from changeling_aggregator.server.clock import (
    LISTENING_SECONDS,
    LONGEST_DOWNTIME,
    MOST_DOWNTIME,
    MOST_STEP,
    STEADY_SECONDS,
    Doubt,
)
from changeling_aggregator.store import KeptTime, Store
from changeling_protocol import Calendar

from ..protocol.examples import PINNED, survey
from .devices import Log, body, envelope, report

NOW, DAY, GRACE = 1_800_000_000.0, 86_400.0, 600
NEVER = KeptTime(0, False)


class Machine:
    """The two clocks of a machine, moved by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 500.0

    def run(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def boot(self, kept: KeptTime) -> GuardedClock:
        self.steady = 7.0
        return GuardedClock(kept, lambda: self.wall, lambda: self.steady)


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


@pytest.mark.parametrize("jump", [MOST_STEP + 1, 25 * 3600, 40 * DAY, -MOST_STEP - 1, -DAY])
def test_a_jump_is_not_followed_until_it_is_undone(machine: Machine, jump: float) -> None:
    """The time goes on from where it was, however long that lasts; set right the clock is believed at once."""
    clock = machine.boot(NEVER)
    machine.run(100)
    clock()
    machine.wall += jump
    for _ in range(5):
        machine.run(STEADY_SECONDS)
        assert clock.doubt is Doubt.JUMPED
        assert clock() == machine.wall - jump
    machine.wall -= jump
    assert (clock.doubt, clock()) == (None, machine.wall)


def test_small_steps_do_not_add_up_to_a_jump(machine: Machine) -> None:
    """A minute an hour is the most that it goes astray unseen."""
    clock = machine.boot(NEVER)
    for _ in range(10):
        machine.run(1)
        machine.wall += MOST_STEP / 2
        clock()
    assert clock.doubt is Doubt.JUMPED


def test_an_operator_who_says_the_same_time_is_believed(machine: Machine) -> None:
    """Not one who says another; from then on the clock is followed again."""
    clock = machine.boot(NEVER)
    machine.wall += DAY
    assert clock.doubt is Doubt.JUMPED
    for wrong in (NOW, machine.wall + 61, 1e300, -1e300):
        with pytest.raises(ValueError, match="set it right, then confirm"):
            clock.confirm(wrong)
    assert clock.doubt is Doubt.JUMPED
    clock.confirm(machine.wall + 59)
    assert (clock.doubt, clock()) == (None, machine.wall)
    machine.run(5)
    assert (clock.doubt, clock()) == (None, machine.wall)


def test_a_long_downtime_is_believed_after_an_hour_or_on_confirmation(machine: Machine) -> None:
    """Meanwhile the clock is shown, as what it shows is likely; a short downtime is believed after 90 seconds."""
    kept = KeptTime(int(NOW * 1000), False)
    machine.run(MOST_STEP)
    assert machine.boot(kept).doubt is None
    machine.run(MOST_DOWNTIME - MOST_STEP)
    clock = machine.boot(kept)
    assert (clock.doubt, clock.kept(), clock()) == (Doubt.START, None, machine.wall)
    machine.run(LISTENING_SECONDS)
    assert clock.doubt is None
    machine.run(LONGEST_DOWNTIME - MOST_DOWNTIME - LISTENING_SECONDS)
    clock = machine.boot(kept)
    assert (clock.doubt, clock.kept(), clock()) == (Doubt.DOWNTIME, None, machine.wall)
    machine.run(STEADY_SECONDS - 1)
    assert clock.doubt is Doubt.DOWNTIME
    machine.run(1)
    assert (clock.doubt, clock.kept()) == (None, KeptTime(int(machine.wall * 1000), False))


def test_a_downtime_of_weeks_is_believed_on_confirmation_alone(machine: Machine) -> None:
    """A clock that is 40 days ahead from the start on, and stays so, looks just like one, and seals nothing."""
    kept = KeptTime(int(NOW * 1000), False)
    machine.run(LONGEST_DOWNTIME + 1)
    clock = machine.boot(kept)
    for _ in range(3):
        assert (clock.doubt, clock.kept(), clock()) == (Doubt.LONG_DOWNTIME, None, machine.wall)
        machine.run(STEADY_SECONDS)
    clock.confirm(machine.wall)
    assert (clock.doubt, clock.kept()) == (None, KeptTime(int(machine.wall * 1000), False))


def test_a_clock_that_was_wrong_at_the_start_is_believed_when_it_is_set_right(machine: Machine) -> None:
    """A machine may boot 25 hours ahead, and hear the time from the network later."""
    kept = KeptTime(int(NOW * 1000), False)
    machine.run(20)
    machine.wall += 25 * 3600
    clock = machine.boot(kept)
    assert clock.doubt is Doubt.DOWNTIME
    machine.run(300)
    machine.wall -= 25 * 3600
    assert (clock.doubt, clock()) == (None, machine.wall)


def test_a_clock_that_is_set_right_after_a_downtime_is_believed_after_a_moment(machine: Machine) -> None:
    """It may have been an hour too early to say so: what it was set to may well be."""
    machine.run(600)
    machine.wall += 25 * 3600
    clock = machine.boot(KeptTime(int(NOW * 1000), False))
    machine.run(3000)
    assert clock.doubt is Doubt.DOWNTIME
    machine.wall -= 25 * 3600
    assert (clock.doubt, clock()) == (Doubt.START, machine.wall)
    machine.run(LISTENING_SECONDS - 1)
    assert clock.doubt is Doubt.START
    machine.run(1)
    assert (clock.doubt, clock()) == (None, machine.wall)


def test_a_jump_is_not_forgotten_in_a_restart(machine: Machine) -> None:
    """Nor a clock that is behind what the store remembers; neither is believed after an hour."""
    clock = machine.boot(NEVER)
    machine.wall += 40 * DAY
    kept = clock.kept()
    assert kept == KeptTime(int(NOW * 1000), True)
    for jumped, wall in ((kept, machine.wall), (KeptTime(int(NOW * 1000), False), NOW - DAY)):
        machine.wall = wall
        again = machine.boot(jumped)
        machine.run(2 * STEADY_SECONDS)
        assert again.doubt is Doubt.JUMPED
        assert again() == NOW + 2 * STEADY_SECONDS
        machine.wall = NOW + 30
        assert machine.boot(jumped).doubt is None


# A server whose clock jumps


Get = Callable[[str], httpx.Response]


def serve(store: Store, machine: Machine) -> Service:
    with store.view() as view:
        kept = view.kept_time()
    return Service(store, Settings(PINNED, machine.boot(kept)))


def troubles(service: Service) -> set[str]:
    from changeling_aggregator.server.health import troubles_of

    return {trouble.name for trouble in troubles_of(service)}


def test_forty_days_ahead_seal_nothing_and_destroy_no_key(store: Store, machine: Machine) -> None:
    """What is uploaded meanwhile is stamped with the true time and counts; afterwards all is as if nothing had been."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE), expires=int(NOW + DAY))
    service = serve(store, machine)
    machine.run(61)
    service.folding.fold_now()
    machine.wall += 40 * DAY
    assert service.clock() == NOW + 61
    service.committer.start()
    asyncio.run(service.committer.append(body(envelope(log.survey, log.key, [report(1)]))))
    for _ in range(3):
        machine.run(1)
        service.folding.fold_now()
    assert "clock" in troubles(service)
    with store.view() as view:
        assert view.sealed_period(log.survey.id) == 0
        assert set(view.private_keys()) == {log.key.id}
        assert view.latest_arrival() == 1000 * (NOW + 61)
        assert view.kept_time().jumped
    assert log.tallies()[0, 1][0] == 1
    machine.wall -= 40 * DAY
    service.folding.fold_now()
    assert "clock" not in troubles(service)
    machine.run(GRACE)
    service.folding.fold_now()
    with store.view() as view:
        assert view.sealed_period(log.survey.id) == 1
        assert not view.kept_time().jumped
    service.committer.close()


def test_arrivals_of_a_clock_that_was_ahead_do_not_stay_ahead(store: Store, machine: Machine) -> None:
    """A server that starts 25 hours ahead stamps so and folds nothing, nor when set to 15; set right it counts all."""
    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE))
    serve(store, machine).folding.fold_now()
    machine.run(60)
    machine.wall += 25 * 3600
    service = serve(store, machine)
    service.committer.start()
    asyncio.run(service.committer.append(body(envelope(log.survey, log.key, [report(1)]))))
    with store.view() as view:
        assert view.latest_arrival() > 1000 * (NOW + 25 * 3600)
    service.folding.fold_now()
    machine.wall -= 10 * 3600
    assert service.guarded_clock
    assert service.guarded_clock.doubt is Doubt.JUMPED
    service.folding.fold_now()
    machine.wall -= 15 * 3600
    service.folding.fold_now()
    machine.run(1)
    asyncio.run(service.committer.append(body(envelope(log.survey, log.key, [report(1)]))))
    with store.view() as view:
        assert view.latest_arrival() == 1000 * (NOW + 61)
    service.folding.fold_now()
    assert log.tallies()[0, 1][0] == 2
    assert log.refused() == {}
    service.committer.close()


def test_a_destroyed_key_is_not_offered_and_not_taken(store: Store, machine: Machine) -> None:
    """Whatever destroyed it, and whatever its dates."""
    from changeling_aggregator.ingest import refusal_of
    from sqlalchemy import update

    log = Log.of(store, survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE))
    service = serve(store, machine)
    upload = envelope(log.survey, log.key, [report(1)])
    assert service.registry.offered(NOW) is not None
    assert refusal_of(upload, service.registry, NOW) is None
    with store.transaction() as writing:
        writing.execute(update(sealing_keys).values(private=None))
        assert writing.published_keys() == {}
    service.folding.fold_now()
    assert service.registry.offered(NOW) is None
    refused = refusal_of(upload, service.registry, NOW)
    assert refused is not None
    assert refused[1] == "unknown-key"


def test_a_server_remembers_the_time_every_minute(tmp_path: Path, machine: Machine) -> None:
    """Not with every fold, which would be a write a second for nothing."""
    store = Store.open(tmp_path / "kept.db")
    service = serve(store, machine)
    told = set()
    for _ in range(150):
        machine.run(1)
        service.folding.fold_now()
        with store.view() as view:
            told.add(view.kept_time().told)
    assert len(told) == 3
    store.close()
