"""SIGKILL between any two steps, and several processes on one store: one report a node, stored before it is sent."""

import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest
from changeling_client import Client, ClientError, Recorded, SharedCallbacks, StoreBusy, entries, outbox, recording
from changeling_client.store import Wrapping
from changeling_protocol import SlotState, decode, encode

from ..protocol.examples import AUTHORITY
from .device import PLAIN, START, Clock, FakeServer, client, ended, forked, options
from .kills import (
    CHANGES,
    JOINT,
    NOISY,
    TOGETHER,
    Steps,
    assert_each_node_is_answered_once,
    copies_of_each_step,
    counting,
    noted,
    once_each,
    sent_reports,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ENTRIES = 2


def opened(directory, transport, clock):
    usual = options(strict=True, transport=transport, clock=clock)
    del usual["witness"]  # so that one of a file is beside it
    return Client(**{**usual, **store_of(directory)})


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
    """So that reports are kept."""
    if request.method != "POST":
        return None
    refused = [[index, "malformed"] for index, _ in enumerate(decode(request.content)["envelopes"])]
    return httpx.Response(200, content=encode({"refused": refused}))


def scenario(directory, steps: Steps, asked=NOISY) -> None:
    """A device's life in actions that are done once each."""
    server, clock = FakeServer(asked), Clock()
    server.clock = clock
    if asked is TOGETHER:
        server.reply = refusing_all
    with counting(steps), opened(directory, noted(directory / "sent", server, steps), clock) as device:

        def handle():
            return device.join(asked.id, entries=ENTRIES, signed=asked.signed_by(AUTHORITY))

        actions = [
            (1, handle),
            (5, lambda: handle().record("tea", 0)),
            (80, device.flush),
            (130, lambda: handle().record("coffee", 0)),
            (131, lambda: handle().record("tea", 1)),
            (200, lambda: handle().retract(0)),
            (201, device.flush),
            (260, device.flush),
            (261, device.flush),
        ]
        once_each(directory, clock, [(START + moment, act) for moment, act in actions])


EXPECTED = {1: [(0, 1), (0, 0)], 2: [(0, 0), (0, 0)], 3: [(1, 2), (0, 1)], 4: [(2, 0), (0, 0)]}
"""The true inputs of both entries in each period."""
STATES = [(0, 1, 1, 2, 0), (0, 0, 0, 1, 1)]
"""Those of both entries at the ends of the periods."""


def assert_one_report_a_node(directory, asked=NOISY):
    symbols = sent_reports(directory, asked)
    assert_each_node_is_answered_once(symbols, asked, ENTRIES)
    for (track, node), ids in symbols.items():
        if asked is NOISY and track == 2:
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
        slots, reached = [0, 0, 0], 0
        for place, number in due:
            track = group.tracks[place]
            node = track.node(number)
            true = track.randomizer.space.index(STATES[entry.number][node.start], STATES[entry.number][node.end])
            if track.randomizer.tells(true):
                slots[place] += 1
                reached += JOINT.weights[place] * track.randomizer.agrees(told[place, number], true)
        assert entry.slots == SlotState(tuple(slots), min(JOINT.threshold, reached))
    return {entry.answered for entry in kept}


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("asked", "every"), [(NOISY, 1), (TOGETHER, 3)], ids=["each by itself", "joint"])
def test_a_kill_at_any_step_changes_no_report(tmp_path, asked, every):
    """For every SQL statement that changes something and every end of a request: from what is on disk there, the device
    sends each node's report once or repeats it, with the same id and symbol, about the same input. In a joint group,
    for every third, as a transaction has several: the counts are those of the reports, there and at the end."""
    seen, lives = set(), 0
    for directory in copies_of_each_step(tmp_path, lambda folder, steps: scenario(folder, steps, asked), every):
        known = {}
        for starts in (False, True):
            if starts:
                scenario(directory, Steps(), asked)
            if asked is TOGETHER:
                answered = assert_the_store_is_of_one_mind(directory, known)
                assert not starts or (answered == {4} and len(known) == ENTRIES * 10)
                seen |= answered
        assert_one_report_a_node(directory, asked)
        lives += 1
    assert lives * every > 100
    assert seen == ({0, 1, 3, 4} if asked is TOGETHER else set())


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_kill_at_a_step_changes_no_report_where_the_store_is_in_postgresql(tmp_path, postgresql):
    """Every eleventh statement and end of a request: the process is killed there and started again."""
    last, code = 1, -signal.SIGKILL
    while code == -signal.SIGKILL:
        (directory := tmp_path / str(last)).mkdir()
        (directory / "database").write_text(postgresql.new())
        code = ended(forked(lambda: scenario(directory, Steps.killed_at(last))))  # noqa: B023
        if code:
            scenario(directory, Steps())
        assert_one_report_a_node(directory)
        last += 11
    assert code == 0
    assert last > 100


def test_a_device_killed_again_and_again_gets_there(tmp_path):
    """A process that never lives for more than 80 steps still sends every node's one report."""
    for _ in range(100):
        if ended(forked(lambda: scenario(tmp_path, Steps.killed_at(80)))) == 0:
            break
    else:
        pytest.fail("it never finished")
    assert_one_report_a_node(tmp_path)


def test_processes_that_race_on_one_store_answer_alike(tmp_path):
    """Three processes record and flush the same entries at once: each node has one report an entry."""

    def live(number):
        server, clock = FakeServer(NOISY), Clock()
        server.clock = clock
        with opened(tmp_path, noted(tmp_path / f"sent{number}", server), clock) as device:
            handle = device.join(NOISY.id, entries=20, signed=NOISY.signed_by(AUTHORITY))
            for moment in range(0, 280, 20):
                clock.now = START + moment + number
                for entry in range(number, 20, 3):
                    handle.record(NOISY.answers[(moment + entry) % 3], entry)
                device.flush()

    with ThreadPoolExecutor(3) as pool:  # each waits for a process
        assert [*pool.map(lambda number: ended(forked(lambda: live(number))), range(3))] == [0, 0, 0]
    assert_each_node_is_answered_once(sent_reports(tmp_path, NOISY), NOISY, 20)


def test_a_child_that_is_forked_in_the_middle_of_drawing_sends_nothing_of_it(tmp_path, joined):
    """By a signal handler, say, after which both go on: one of them answers."""
    handle, device, server, clock = joined(PLAIN)
    reader, writer = os.pipe()

    class Forking:
        child = None

        def below(self, n):
            if self.child is None:
                self.child = os.fork()
            return os.urandom(8)[0] % n

    def sent():
        return {closing.id for closing in server.closings() if closing.period == 1}

    handle.record("tea")
    device._device.coins = coins = Forking()
    try:
        device.at(START + 80).flush()
        device.flush()
    except ClientError:
        pass
    finally:
        if coins.child == 0:
            os.write(writer, b"".join(sent()))
            os._exit(0)
    os.waitpid(coins.child, 0)
    os.close(writer)
    with open(reader, "rb") as child:
        assert child.read() in (b"", *sent())
    assert len(sent()) == 1
    device.close()
    with client(tmp_path, server, clock) as device:
        assert device.join(PLAIN.id).answer() == "tea"
        device.flush()
    assert len(sent()) == 1


def test_a_signal_handler_that_records_and_closes_loses_nothing(joined, begin, monkeypatch):
    """As on SIGTERM, in the middle of a record: all are on disk. What it may not see in the middle of a transaction it
    is told so."""
    handle, device, *_ = joined(PLAIN, entries=3)
    genuine = recording.record

    def handler(*_):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert handle.record("coffee", 1) is Recorded.PENDING
        with pytest.raises(StoreBusy):
            device.ledger()
        handle.record("neither", 2)
        device.close()

    def interrupted(*args, **options):
        signal.raise_signal(signal.SIGUSR1)
        return genuine(*args, **options)

    signal.signal(signal.SIGUSR1, handler)
    monkeypatch.setattr(recording, "record", interrupted)
    assert handle.record("tea", 0) is Recorded.COUNTED
    monkeypatch.undo()
    handle = begin(after=device).device.join(PLAIN.id)
    assert [handle.answer(entry) for entry in range(3)] == ["tea", "coffee", "neither"]
