"""A scripted field, lived by real clients and counted by the real fold: the same tallies and attendance as sampled."""

import httpx
import numpy as np
import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.store import Store
from changeling_protocol import Node
from changeling_simulations import Field, Population
from changeling_simulations.field import attended_closings, draw_entries, respond
from changeling_statistics import Attendance

from tests.aggregator.devices import Log
from tests.client_sdk.device import TRUTHFUL, Clock, FakeServer, client
from tests.protocol.examples import AUTHORITY, hierarchical, survey

PERIODS, ENTRIES = 8, 25
ASKED = survey(hierarchical(3, PERIODS, (1, 2, 4), TRUTHFUL), skew=2, spread=3, grace=40)
FIELD = Field(arrivals=0.2, uninstalls=0.05, reinstalls=0.05, offline=0.35, outage=Node(4, 5))


@pytest.fixture(scope="module")
def scripted():
    """A population of lives with up to two changes, its entries, and who is heard when."""
    generator = np.random.default_rng(1)
    states = np.zeros((ENTRIES, PERIODS + 1), np.uint16)
    for row in states:
        row[1:] = generator.integers(1, 4)
        for period in sorted(generator.integers(2, PERIODS + 1, 2)):
            row[period:] = generator.integers(1, 4)
    population = Population(ASKED.answers, states, states, np.ones(ENTRIES, np.int64))
    entries = draw_entries(population, ASKED, FIELD, generator)
    return population, entries, list(attended_closings(population, ASKED, FIELD, entries, generator))


@pytest.fixture(scope="module")
def lived(scripted, tmp_path_factory):
    """The log of a server that real clients sent their uploads to, folded."""
    population, entries, attended = scripted
    store = Store.open(tmp_path_factory.mktemp("server") / "server.db")
    log, sent = Log.of(store, ASKED), []
    for number in range(len(entries)):
        states = entries[np.array([number])]
        answers = [ASKED.answers[int(states.states(population, t)[0]) - 1] for t in range(1, PERIODS + 1)]
        heard = {closing.period: bool(closing.heard[number]) for closing in attended}
        until = int(entries.left[number])
        sent += _life(tmp_path_factory.mktemp("store"), log, int(entries.enrolled[number]), until, answers, heard)
    for at, envelope in sorted(sent):
        log.append(at, envelope)
    fold(store, ASKED.calendar.time(PERIODS) + 20)
    yield log
    store.close()


def _life(folder, log, enrolled, until, answers, heard):
    """What one client sent, with when: it joins, records, and is cut off from the server where it is not heard."""
    calendar, server = ASKED.calendar, FakeServer(ASKED)
    server.keys, online = [log.key.signed_by(AUTHORITY)], True
    server.reply = lambda request: None if online or request.method != "POST" else httpx.Response(503)
    clock, sent = Clock(calendar.time(enrolled) + 1), []
    with client(folder, server, clock) as device:
        handle = device.join(ASKED.id, answers=[answers[enrolled]])
        for period in range(enrolled + 1, until + 1):
            clock.now, online = calendar.time(period) + 10, heard[period]
            server.bodies.clear()
            device.flush()
            sent += [(clock.now, envelope) for envelope in server.envelopes if online]
            if period < PERIODS and answers[period] != answers[period - 1]:
                handle.record(answers[period])
    return sent


def test_the_fold_counts_who_was_heard_as_the_field_says(scripted, lived):
    """Everybody once at each closing, the new as new, and those who missed all before as such."""
    _, _, attended = scripted
    expected = {
        (0, closing.period): Attendance(
            *(int((closing.heard & among).sum()) for among in (True, closing.new, closing.missed))
        )
        for closing in attended
        if closing.heard.any()
    }
    assert {at: Attendance(*counts) for at, counts in lived.attendance().items()} == expected
    assert sum(there.missed for there in expected.values()) > 2
    assert sum(there.new for there in expected.values()) > 15


def test_the_fold_tallies_what_the_field_says(scripted, lived):
    """Node by node and slot by slot, as symbols are the truth; nodes of a late entry start from NULL."""
    population, entries, attended = scripted
    tallies, _ = respond(population, ASKED, entries, attended, np.random.default_rng(2))
    expected = {node: (tally.reports, tally.slots.tolist()) for node, tally in tallies.items()}
    assert lived.tallies() == expected
    assert not lived.refused()
