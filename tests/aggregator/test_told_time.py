"""Of several servers on one store the earliest clock that is believed decides; one that is ahead moves nothing."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event

import pytest
from changeling_aggregator.fold import FoldReport, fold, folding
from changeling_aggregator.server import fold_loop
from changeling_aggregator.server.guarded_clock import (
    LISTENING_SECONDS,
    LONGEST_DOWNTIME,
    STEADY_SECONDS,
    TOLD_FOR_SECONDS,
    Doubt,
)
from changeling_aggregator.server.service import Service
from changeling_aggregator.store import Store
from changeling_aggregator.store.clock import kept_time
from changeling_aggregator.store.counted import sealed_period
from changeling_aggregator.store.log import append, latest_arrival, open_stream
from changeling_aggregator.store.sealing_keys import private_keys
from changeling_protocol import Calendar

from ..contracts.stores import PLACES, Place
from ..protocol.examples import survey
from .devices import Log, body, envelope, report
from .serving import eventually
from .test_guarded_clock import DAY, GRACE, NOW, Machine, serve

TICK = 10.0


@dataclass
class Server:
    """A server on a machine of its own; its clock is ahead by so many seconds from its start on."""

    place: Place
    machine: Machine
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        self.service = serve(self.place.open(), self.machine)
        self.service.committer.start()

    @property
    def doubt(self) -> Doubt | None:
        assert self.service.guarded_clock
        return self.service.guarded_clock.doubt

    def take(self, upload: bytes) -> None:
        asyncio.run(self.service.committer.append(body(upload)))


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Where the servers' store lies."""
    return PLACES[request.param](request)


@pytest.fixture
def log(place: Place) -> Iterator[Log]:
    """A survey with a period of a minute, with a key that is good for a day, on that store."""
    made = Log.of(place.open(), survey(calendar=Calendar(int(NOW), 60, 8), grace=GRACE), expires=int(NOW + DAY))
    yield made
    made.store.close()


@pytest.fixture
def start(place: Place, log: Log) -> Iterator[Callable[[float], Server]]:  # noqa: ARG001
    """Starts a server whose clock is so many seconds ahead of NOW."""
    with ExitStack() as until_the_end:

        def started(ahead: float = 0.0) -> Server:
            machine = Machine()
            machine.run(ahead)
            server = Server(place, machine)
            until_the_end.callback(server.service.close)
            return server

        yield started


def run(seconds: float, *servers: Server, tick: float = TICK) -> None:
    """Lets the time pass for all of them, each folding once in a tick."""
    for _ in range(round(seconds / tick)):
        for server in servers:
            server.machine.run(tick)
            server.service.folding.fold_now()


def sealed(log: Log) -> int:
    """Up to which period the survey is, and that no key is destroyed."""
    with log.store.reading() as connection:
        assert set(private_keys(connection, log.store.at_rest)) == {log.key.id}
        return sealed_period(connection, log.survey.id)


@pytest.mark.parametrize("ahead", [120, 45 * 60, 25 * 3600.0, 40 * DAY])
def test_a_server_that_starts_ahead_of_another_moves_nothing(
    log: Log, start: Callable[..., Server], ahead: float
) -> None:
    """It neither seals nor destroys in two hours; what either takes in is stamped with the true time, in the end."""
    right = start()
    run(60, right)
    wrong = start(60 + ahead)
    assert wrong.doubt is not None
    for server in (wrong, right):
        server.take(envelope(log.survey, log.key, [report(1)]))
    run(TOLD_FOR_SECONDS, wrong, right)
    assert log.tallies()[0, 1][0] == 2
    assert log.refused() == {}
    assert wrong.doubt is Doubt.AHEAD
    assert wrong.service.clock() == pytest.approx(right.machine.wall, abs=TICK + 1)
    for server in (wrong, right):
        server.take(envelope(log.survey, log.key, [report(1)]))
    with log.store.reading() as connection:
        assert latest_arrival(connection) == pytest.approx(1000 * right.machine.wall, abs=1000 * (TICK + 1))
    run(GRACE - TOLD_FOR_SECONDS - 60, wrong, right)
    assert sealed(log) == 0
    run(60 + TICK, wrong, right)
    assert sealed(log) == 1
    run(2 * STEADY_SECONDS, wrong, right, tick=300)
    assert wrong.doubt is Doubt.AHEAD
    assert right.doubt is None
    assert sealed(log) == 8


def test_a_right_server_is_believed_as_it_starts_though_another_jumped(log: Log, start: Callable[..., Server]) -> None:
    """What a believed server tells stands; and one that jumped is in doubt when it starts again."""
    right, jumped = start(), start()
    run(60, right, jumped)
    jumped.machine.wall += 2 * 3600
    run(120, right, jumped)
    assert jumped.doubt is not None
    with log.store.reading() as connection:
        assert not kept_time(connection).jumped
    assert start(180).doubt is None
    again = start(180 + 2 * 3600)
    run(120, right, again)
    run(2 * STEADY_SECONDS, right, again, tick=300)
    assert again.doubt is Doubt.AHEAD


def test_a_server_is_believed_when_another_tells_the_same(start: Callable[..., Server]) -> None:
    """After a downtime, be it of weeks, one of them is confirmed; the others hear of it."""
    run(60, start())
    first, second = (start(60 + LONGEST_DOWNTIME + 100) for _ in range(2))
    run(100, first, second)
    assert first.doubt is second.doubt is Doubt.LONG_DOWNTIME
    assert first.service.guarded_clock
    first.service.guarded_clock.confirm(first.machine.wall)
    run(TICK, first, second)
    assert first.doubt is second.doubt is None


def test_one_that_is_confirmed_ahead_of_another_is_in_doubt_again(log: Log, start: Callable[..., Server]) -> None:
    """Before it has sealed anything, as it has to hear nothing else for that; set right it is believed."""
    right, wrong = start(), start()
    run(60, right, wrong)
    wrong.machine.wall += DAY
    assert wrong.service.guarded_clock
    wrong.service.guarded_clock.confirm(wrong.machine.wall)
    run(120, right, wrong)
    assert wrong.doubt is Doubt.AHEAD
    assert sealed(log) == 0
    with log.store.reading() as connection:
        assert kept_time(connection).told == pytest.approx(1000 * right.machine.wall, abs=61_000)
    wrong.machine.wall -= DAY
    assert wrong.doubt is None
    run(120, wrong, right)
    assert right.doubt is wrong.doubt is None


def test_a_minute_between_two_clocks_waits_for_the_earlier(log: Log, start: Callable[..., Server]) -> None:
    """Both are believed then; once the earlier is gone for three minutes, the later decides."""
    early = start()
    run(60, early)
    late = start(60 + 47)
    run(GRACE - 60, late, early)
    assert early.doubt is late.doubt is None
    run(50, late, early)
    assert sealed(log) == 0
    run(TOLD_FOR_SECONDS, late)
    assert sealed(log) > 0


def test_an_hours_downtime_of_a_server_alone_is_believed_after_a_moment(log: Log, start: Callable[..., Server]) -> None:
    """So long it listens whether others run."""
    run(60, start())
    alone = start(60 + GRACE + 60)
    run(LISTENING_SECONDS - TICK, alone)
    assert (alone.doubt, sealed(log)) == (Doubt.START, 0)
    run(2 * TICK, alone)
    assert (alone.doubt, sealed(log)) == (None, 3)


def test_the_time_is_told_while_a_fold_hangs(
    log: Log, start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long: a server that starts meanwhile would else go by its own clock after a minute and a half."""
    hangs, goes_on = Event(), Event()

    def hang(*_: object, **__: object) -> FoldReport:
        hangs.set()
        goes_on.wait()
        return FoldReport()

    right = start()
    run(60, right)
    monkeypatch.setattr(fold_loop, "TELLING_SECONDS", 0.01)
    monkeypatch.setattr(fold_loop, "fold", hang)
    right.machine.run(TICK)
    right.service.folding.start()
    try:
        assert hangs.wait(60)
        for _ in range(2 * round(LISTENING_SECONDS / TICK)):
            right.machine.run(TICK)
        assert eventually(lambda: told(log) > 1000 * (right.machine.wall - LISTENING_SECONDS), True)
    finally:
        goes_on.set()


def told(log: Log) -> float:
    """The time that the store remembers, in Unix milliseconds."""
    with log.store.reading() as connection:
        return kept_time(connection).told


def test_an_arrival_that_is_given_out_ahead_while_a_fold_runs_is_not_folded_so(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the next fold, which sets it back."""
    with log.store.writing() as connection:
        stream = open_stream(connection)
    right = folding.set_arrivals_right

    def then_append(store: Store, now: float) -> None:
        right(store, now)
        with store.writing() as connection:
            append(connection, stream, [body(envelope(log.survey, log.key, [report(1)]))], int(1000 * (now + DAY)))
        monkeypatch.undo()

    monkeypatch.setattr(folding, "set_arrivals_right", then_append)
    done = fold(log.store, NOW + 61)
    assert (done.envelopes, done.behind) == (0, False)
    assert fold(log.store, NOW + 62).reports == 1
    assert log.refused() == {}
