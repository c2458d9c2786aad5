"""SIGKILL between any two steps, and several processes on one store: one report a node, stored before it is sent."""

import os
import signal
import sqlite3
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest
from changeling_client import Client, SharedCallbacks, entries, outbox
from changeling_client.store import Wrapping
from changeling_protocol import (
    AtMost,
    Group,
    Joint,
    KaryChange,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    SignedSubset,
    SlotState,
    StateSpace,
    Survey,
    Track,
    decode,
    encode,
)

from ..protocol.examples import AUTHORITY, PINNED, survey
from .device import PRIVATE, START, TRUTHFUL, URL, Clock, FakeServer, answers_in, ended, forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

CHANGES = MutationSpace(3)
NOISE = Odds(1, 1)
"""A symbol that says nothing: one drawn anew would differ in 12 cases of 13."""
PLAN = ReleasePlan(
    (
        Group(
            (
                Track(1, KaryResponse(CHANGES, NOISE), 0, 4),
                Track(2, KaryResponse(CHANGES, NOISE), 0, 4),
                Track(1, KaryResponse(CHANGES, TRUTHFUL), 0, 4),
            )
        ),
    )
)
ASKED = survey(PLAN, grace=10**6, constraint=AtMost(3))
JOINT = Joint(Odds(3, 1), 5, (3, 2, 1), (3, 2, 9))
TOGETHER = survey(
    ReleasePlan(
        (
            Group.jointly(
                (
                    Track(1, SignedSubset(CHANGES, TRUTHFUL), 0, 4),
                    Track(2, KaryChange(CHANGES, TRUTHFUL), 0, 4),
                    Track(1, KaryResponse(StateSpace(3), TRUTHFUL), 0, 4),
                ),
                JOINT,
            ),
        )
    ),
    grace=10**6,
    constraint=AtMost(3),
)
"""A joint group, with more slots of states than there are reports, so that its counts are kept until the end; and a
server that refuses all of them, so that they are kept as well."""
ENTRIES = 2


class Steps:
    """Counts SQL statements that change something, and both ends of every request; at step `last` the process kills
    itself."""

    def __init__(self, last: int | None = None) -> None:
        self.count, self.last = 0, last

    def step(self, statement: str = "") -> None:
        if statement.startswith(("SELECT", "PRAGMA", "SET ")):
            return
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def opened(directory, transport, clock):
    return Client(
        server=URL,
        authority=PINNED,
        **store_of(directory),
        max_epsilon=10**4,
        strict=True,
        background=False,
        transport=transport,
        clock=clock,
    )


def store_of(directory):
    """A file, or the schema that a file of this name tells, with a witness that outlives the process."""
    named, kept = directory / "database", directory / "witness"
    if not named.exists():
        return {"path": directory / "store.db"}

    def read():
        return kept.read_bytes() if kept.exists() else None

    def swap(expected, new):
        if held := read() == expected:
            (directory / "witness.new").write_bytes(new)
            (directory / "witness.new").rename(kept)
        return held

    return {"database": named.read_text(), "witness": SharedCallbacks(read, swap)}


def refusing_all(request: httpx.Request) -> httpx.Response | None:
    if request.method != "POST":
        return None
    refused = [[index, "malformed"] for index, _ in enumerate(decode(request.content)["envelopes"])]
    return httpx.Response(200, content=encode({"refused": refused}))


def scenario(directory, steps: Steps, asked: Survey = ASKED) -> None:
    """A device's life in actions that are done once each; those a killed process finished are not repeated."""
    server, clock = FakeServer(asked), Clock()
    server.clock = clock
    if asked is TOGETHER:
        server.reply = refusing_all
    done = directory / "done"
    answered = httpx.MockTransport(server._serve)

    def serve(request: httpx.Request) -> httpx.Response:
        steps.step()
        if request.method == "POST":
            with (directory / "sent").open("ab") as sent:
                sent.write(len(request.content).to_bytes(4) + request.content)
        steps.step()
        response = answered.handle_request(request)
        steps.step()
        return response

    connect, execute = sqlite3.connect, psycopg.Connection.execute

    def executed(connection, statement, *given, **options):
        steps.step(statement if isinstance(statement, str) else statement.decode())
        return execute(connection, statement, *given, **options)

    def counted(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(steps.step)
        return connection

    sqlite3.connect, psycopg.Connection.execute = counted, executed
    try:
        with opened(directory, httpx.MockTransport(serve), clock) as device:
            actions = [
                (1, lambda: handle()),
                (5, lambda: handle().record("tea", 0)),
                (80, device.flush),
                (130, lambda: handle().record("coffee", 0)),
                (131, lambda: handle().record("tea", 1)),
                (200, lambda: handle().retract(0)),
                (201, device.flush),
                (260, device.flush),
                (261, device.flush),
            ]

            def handle():
                return device.join(asked.id, entries=ENTRIES, signed=asked.signed_by(AUTHORITY))

            for number, (moment, action) in enumerate(actions):
                if done.exists() and number < int(done.read_text()):
                    continue
                clock.now = START + moment
                action()
                (directory / "next").write_text(str(number + 1))
                (directory / "next").rename(done)
    finally:
        sqlite3.connect, psycopg.Connection.execute = connect, execute


def sent_reports(directory, asked: Survey = ASKED):
    """All reports in all bodies any process of the device tried to send: (track, node) -> closing -> symbols."""
    content = (directory / "sent").read_bytes()
    symbols = defaultdict(lambda: defaultdict(set))
    while content:
        size = int.from_bytes(content[:4])
        for envelope in decode(content[4 : 4 + size])["envelopes"]:
            for answered, reports in answers_in(envelope, {asked.id: asked}, PRIVATE):
                for report in reports:
                    node = asked.plan.tracks[report.track].node(report.node)
                    symbols[report.track, node][answered].add(report.symbol)
        content = content[4 + size :]
    return symbols


EXPECTED = {1: [(0, 1), (0, 0)], 2: [(0, 0), (0, 0)], 3: [(1, 2), (0, 1)], 4: [(2, 0), (0, 0)]}
"""The true inputs of both entries in each period."""


STATES = [(0, 1, 1, 2, 0), (0, 0, 0, 1, 1)]
"""Those of both entries at the ends of the periods."""


def assert_one_report_a_node(directory, asked: Survey = ASKED):
    symbols = sent_reports(directory, asked)
    tracks = asked.plan.tracks
    assert set(symbols) == {(number, node) for number, track in enumerate(tracks) for node in track.nodes()}
    for (track, node), ids in symbols.items():
        assert len(ids) == ENTRIES, "an entry answered a closing twice, or under two ids, standings or strata"
        assert all(len(drawn) == 1 for drawn in ids.values()), "a node was answered with two symbols"
        if asked is ASKED and track == 2:
            inputs = sorted(symbol for drawn in ids.values() for symbol in drawn)
            assert inputs == sorted(CHANGES.index(*change) for change in EXPECTED[node.end])


def assert_the_store_is_of_one_mind(directory, known):
    """Every node up to `answered` has a report, no other has one, and slots and score are those of these reports.

    known: symbols, ids and standings by entry, track and node, as they were stored before; what is known never changes.
    Returns up to which periods the entries have answered.
    """
    if not (directory / "store.db").exists():
        return set()
    plain, stored = Wrapping(None), {}
    with closing(sqlite3.connect(directory / "store.db")) as db:
        kept = entries.load_all(db, plain, TOGETHER.id)
        query = "SELECT id, standing FROM closings WHERE entry = ? AND period = ?"
        for entry in kept:
            for period, _, reports in outbox.sent(db, plain, entry):
                stated = db.execute(query, (entry.number, period)).fetchone()
                stored |= {(entry.number, each.track, each.node): (each.symbol, *stated) for each in reports}
    assert known.items() <= stored.items()
    known.update(stored)
    group = TOGETHER.plan.groups[0]
    for entry in kept:
        told = {tuple(at): symbol for (number, *at), (symbol, *_) in stored.items() if number == entry.number}
        due = [
            (p, n)
            for p, track in enumerate(group.tracks)
            for n in track.node_numbers()
            if track.node(n).end <= entry.answered
        ]
        assert sorted(told) == due
        if entry.answered == 4:
            assert entry.slots is None
            continue
        slots = [0, 0, 0]
        reached = 0
        for place, number in due:
            randomizer, true = group.tracks[place].randomizer, true_input(group.tracks[place], entry.number, number)
            if randomizer.tells(true):
                slots[place] += 1
                reached += JOINT.weights[place] * randomizer.agrees(told[place, number], true)
        assert entry.slots == SlotState(tuple(slots), min(JOINT.threshold, reached))
    return {entry.answered for entry in kept}


def true_input(track, entry, number):
    node = track.node(number)
    return track.randomizer.space.index(STATES[entry][node.start], STATES[entry][node.end])


@pytest.fixture
def fast_path(tmp_path):
    """In memory where there is such a place: a SIGKILL loses nothing there either, and syncing costs nothing."""
    if not os.path.isdir("/dev/shm"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


def killed_at(steps, begun, asked=ASKED, check=lambda _: None):
    """Lives once undisturbed, and then once for each so many steps, killed there and started again: the reports are as
    if nothing had been. begun: the new folder of a life. check: looks at what is on disk after the kill, and at the
    end."""
    counting = Steps()
    scenario(whole := begun("whole"), counting, asked)
    assert_one_report_a_node(whole, asked)
    assert counting.count > 100
    for last in range(1, counting.count + 1, steps):
        directory = begun(str(last))
        assert ended(forked(lambda: scenario(directory, Steps(last), asked))) == -signal.SIGKILL  # noqa: B023
        check(directory)
        scenario(directory, Steps(), asked)
        check(directory)
        assert_one_report_a_node(directory, asked)


@pytest.fixture
def begun(fast_path):
    """Makes the folder of one more life."""

    def make(name):
        (fast_path / name).mkdir()
        return fast_path / name

    return make


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_kill_at_any_step_changes_no_report(begun):
    """For every SQL statement that changes something and every end of a request: killed there and started again, the
    device sends each node's report once or repeats it, with the same id and symbol, about the same input."""
    killed_at(1, begun)


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_kill_at_a_step_changes_no_report_where_the_store_is_in_postgresql(begun, postgresql):
    """Every fifth statement and end of a request."""

    def in_database(name):
        directory = begun(name)
        (directory / "database").write_text(postgresql.new())
        return directory

    killed_at(5, in_database)


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_kill_at_any_step_leaves_reports_and_slots_that_belong_together(begun):
    """In a joint group, for every third SQL statement and end of a request, as a transaction has several: in what is on
    disk after the kill each node up to the mark is answered once, and the counts are those of its reports; and so again
    at the end."""
    seen, known = set(), {}

    def check(directory):
        of_this = known.setdefault(directory, {})
        answered = assert_the_store_is_of_one_mind(directory, of_this)
        if of_this and answered == {4}:
            assert len(of_this) == ENTRIES * 10
        seen.update(answered)

    killed_at(3, begun, TOGETHER, check)
    assert seen == {0, 1, 3, 4}


def test_a_device_killed_again_and_again_gets_there(tmp_path):
    """A process that never lives for more than 80 steps still sends every node's one report."""
    for _ in range(100):
        if ended(forked(lambda: scenario(tmp_path, Steps(80)))) == 0:
            break
    else:
        pytest.fail("it never finished")
    assert_one_report_a_node(tmp_path)


def test_processes_that_race_on_one_store_answer_alike(tmp_path):
    """Three processes record and flush the same entries at once: each node has one report an entry."""
    asked = survey(PLAN, grace=10**6, constraint=AtMost(3))

    def live(number):
        server, clock = FakeServer(asked), Clock()
        server.clock = clock
        with opened(tmp_path, server.transport(), clock) as device:
            handle = device.join(asked.id, entries=20, signed=asked.signed_by(AUTHORITY))
            for moment in range(0, 280, 20):
                clock.now = START + moment + number
                for entry in range(number, 20, 3):
                    handle.record(asked.answers[(moment + entry) % 3], entry)
                device.flush()
        (tmp_path / f"sent{number}").write_bytes(b"".join(len(b).to_bytes(4) + b for b in server.bodies))

    with ThreadPoolExecutor(3) as pool:  # each waits for a process
        assert [*pool.map(lambda number: ended(forked(lambda: live(number))), range(3))] == [0, 0, 0]
    (tmp_path / "sent").write_bytes(b"".join((tmp_path / f"sent{number}").read_bytes() for number in range(3)))
    symbols = sent_reports(tmp_path)
    assert len(symbols) == 4 + 2 + 4
    for ids in symbols.values():
        assert len(ids) == 20
        assert all(len(drawn) == 1 for drawn in ids.values())
