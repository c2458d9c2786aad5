"""SIGKILL between any two steps, and several processes on one store: one report a node, always the same."""

import os
import signal
import sqlite3
import tempfile
from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from changeling_client import Client
from changeling_protocol import (
    AtMost,
    Group,
    KaryResponse,
    MutationSpace,
    Odds,
    ReleasePlan,
    Track,
    canonical,
)

from ..protocol.examples import PINNED, survey
from .device import PRIVATE, START, TRUTHFUL, URL, Clock, FakeServer, opened

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
ENTRIES = 2


class Steps:
    """Counts SQL statements and both ends of every request; at step `last` the process kills itself."""

    def __init__(self, last: int | None = None) -> None:
        self.count, self.last = 0, last

    def step(self, *_: object) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def scenario(directory, steps: Steps) -> None:
    """A device's life in actions that are done once each; those a killed process finished are not repeated."""
    server, clock = FakeServer(ASKED), Clock()
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

    connect = sqlite3.connect

    def counted(*args, **options):
        connection = connect(*args, **options)
        connection.set_trace_callback(steps.step)
        return connection

    sqlite3.connect = counted
    try:
        http = httpx.Client(transport=httpx.MockTransport(serve))
        path = directory / "store.db"
        with http, Client(path, URL, PINNED, max_epsilon=10**4, http=http, clock=clock) as device:
            actions = [
                (1, lambda: device.join(ASKED.id, entries=ENTRIES)),
                (5, lambda: handle().record("tea", 0)),
                (80, device.flush),
                (130, lambda: handle().record("coffee", 0)),
                (131, lambda: handle().record("tea", 1)),
                (200, lambda: handle().delete(0)),
                (201, device.flush),
                (260, device.flush),
                (261, device.flush),
            ]

            def handle():
                return device.join(ASKED.id, entries=ENTRIES)

            for number, (moment, action) in enumerate(actions):
                if done.exists() and number < int(done.read_text()):
                    continue
                clock.now = START + moment
                action()
                (directory / "next").write_text(str(number + 1))
                (directory / "next").rename(done)
    finally:
        sqlite3.connect = connect


def sent_reports(directory):
    """All reports in all bodies any process of the device tried to send: (track, node) -> id -> symbols."""
    content = (directory / "sent").read_bytes()
    symbols = defaultdict(lambda: defaultdict(set))
    while content:
        size = int.from_bytes(content[:4])
        for envelope in canonical.decode(content[4 : 4 + size])["envelopes"]:
            for report, node, _ in opened(envelope, {ASKED.id: ASKED}, PRIVATE):
                symbols[report.track, node][report.id].add(report.symbol)
        content = content[4 + size :]
    return symbols


EXPECTED = {1: [(0, 1), (0, 0)], 2: [(0, 0), (0, 0)], 3: [(1, 2), (0, 1)], 4: [(2, 0), (0, 0)]}
"""The true inputs of both entries in each period."""


def assert_one_report_a_node(directory):
    symbols = sent_reports(directory)
    assert set(symbols) == {(number, node) for number, track in enumerate(PLAN.tracks) for node in track.nodes()}
    for (track, node), ids in symbols.items():
        assert len(ids) == ENTRIES, "an entry answered a node under two ids"
        assert all(len(drawn) == 1 for drawn in ids.values()), "a node was answered with two symbols"
        if track == 2:
            inputs = sorted(symbol for drawn in ids.values() for symbol in drawn)
            assert inputs == sorted(CHANGES.index(*change) for change in EXPECTED[node.end])


def forked(work) -> int:
    if (child := os.fork()) == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def fast_path(tmp_path):
    """In memory where there is such a place: a SIGKILL loses nothing there either, and syncing costs nothing."""
    if not os.path.isdir("/dev/shm"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


def test_a_kill_at_any_step_changes_no_report(fast_path):
    """For every SQL statement and every end of a request: killed there and started again, the device sends each
    node's report once or repeats it, with the same id and symbol, about the same input."""
    counting = Steps()
    (fast_path / "whole").mkdir()
    scenario(fast_path / "whole", counting)
    assert_one_report_a_node(fast_path / "whole")
    assert counting.count > 150
    for last in range(1, counting.count + 1):
        directory = fast_path / str(last)
        directory.mkdir()
        assert forked(lambda: scenario(directory, Steps(last))) == -signal.SIGKILL  # noqa: B023
        scenario(directory, Steps())
        assert_one_report_a_node(directory)


def test_a_device_killed_again_and_again_gets_there(tmp_path):
    """A process that never lives for more than 80 steps still sends every node's one report."""
    for _ in range(100):
        if forked(lambda: scenario(tmp_path, Steps(80))) == 0:
            break
    else:
        pytest.fail("it never finished")
    assert_one_report_a_node(tmp_path)


def test_processes_that_race_on_one_store_answer_alike(tmp_path):
    """Three processes record and flush the same entries at once: each node has one report an entry."""
    asked = survey(PLAN, grace=10**6, constraint=AtMost(3))
    path = tmp_path / "store.db"

    def live(number):
        server, clock = FakeServer(asked), Clock()
        with Client(path, URL, PINNED, max_epsilon=10**4, http=server.http(), clock=clock) as device:
            handle = device.join(asked.id, entries=20)
            for moment in range(0, 280, 20):
                clock.now = START + moment + number
                for entry in range(number, 20, 3):
                    handle.record(asked.answers[(moment + entry) % 3], entry)
                device.flush()
        (tmp_path / f"sent{number}").write_bytes(b"".join(len(b).to_bytes(4) + b for b in server.bodies))

    children = []
    for number in range(3):
        if (child := os.fork()) == 0:
            try:
                live(number)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    (tmp_path / "sent").write_bytes(b"".join((tmp_path / f"sent{number}").read_bytes() for number in range(3)))
    symbols = sent_reports(tmp_path)
    assert len(symbols) == 4 + 2 + 4
    for ids in symbols.values():
        assert len(ids) == 20
        assert all(len(drawn) == 1 for drawn in ids.values())
