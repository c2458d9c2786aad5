"""Pods that share a store in PostgreSQL, attacked: killed, cut off, behind, and waiting for one another."""

import os
import random
import signal
import threading
import time
from contextlib import suppress

import httpx
import pytest
from changeling_aggregator.testing.postgres import PostgreSQL
from changeling_client import Callbacks, Client, Recorded, StoreBusy, entries
from changeling_client.testing.store_contract import Pods

from ..protocol.examples import AUTHORITY, PINNED
from .device import START, URL, Clock, FakeServer
from .test_crashes import TOGETHER, sent_reports
from .test_handover import NOISY

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'changeling' AND random() < "
STAYING = 6


@pytest.fixture(scope="module")
def postgresql():
    with PostgreSQL() as running:
        yield running


@pytest.mark.parametrize("level", ["read%5C%20committed", "repeatable%5C%20read", "serializable"])
def test_who_left_while_another_pod_waited_does_not_come_back(postgresql, level):
    """Whatever isolation the database gives who asks for none."""
    pods, told = Pods(database=f"{postgresql.new()}%20-cdefault_transaction_isolation%3D{level}"), []
    with pods.client() as one, pods.client() as other:
        mine, theirs = pods.join(one, entries=2), pods.join(other, entries=2)
        mine.record("tea", entry=1)
        waiting = threading.Thread(target=lambda: told.append(theirs.record("coffee", entry=1)))
        with one._device.store.transaction() as db:
            waiting.start()
            time.sleep(0.3)
            entries.leave(db, pods.survey.id, 1)
        waiting.join()
        assert told == [Recorded.DROPPED]
        with other._device.store.transaction() as db:
            assert entries.numbers(db, pods.survey.id) == [0]


@pytest.mark.xfail(strict=True, reason="a write to the witness is not undone when the session that it hung on ends")
def test_a_pod_that_was_cut_off_sets_no_witness_back(postgresql):
    """It was about to tell the witness as its session ended; others have reported since. What it then writes is behind:
    the store is silent for good, and a backup of that moment would not be."""
    pods, kept, meanwhile, told = Pods(database=postgresql.new()), [], [], []

    def write(seen):
        if meanwhile:
            meanwhile.pop()()
        kept.append(seen)

    def others_report():
        postgresql.sql(CUT + "2")
        for _ in range(2):
            pods.clock.advance(days=1)
            other.flush()

    witness = Callbacks(lambda: kept[-1] if kept else None, write)
    with pods.client(witness=witness) as one, pods.client(witness=witness, on_error=told.append) as other:
        pods.join(one)
        pods.clock.advance(days=1)
        meanwhile.append(others_report)
        with pytest.raises(StoreBusy):
            one.flush()
        other.flush()
        assert told == []


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("asked", [NOISY, TOGETHER], ids=["each by itself", "joint"])
def test_pods_killed_and_cut_off_answer_each_node_once(postgresql, tmp_path, asked):
    """Three pods record, withdraw and flush under one witness; connections are cut at random moments, and a pod is
    killed: each node has one report of each who stays, and of who left nothing is kept."""
    database, file, children = postgresql.new(), tmp_path / "witness", []

    def write(seen):
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.write_bytes(seen)
        draft.rename(file)

    def pod(number, moments):
        server, clock, device = FakeServer(asked), Clock(), None
        server.clock = clock

        def serve(request):
            if request.method == "POST":
                with (tmp_path / f"sent{number}").open("ab") as sent:
                    sent.write(len(request.content).to_bytes(4) + request.content)
            return server._serve(request)

        options = {"server": URL, "authority": PINNED, "database": database, "max_epsilon": 10**6, "clock": clock}
        options["witness"] = Callbacks(lambda: file.read_bytes() if file.exists() else None, write)
        for moment in moments:
            clock.now = START + moment
            with suppress(StoreBusy):
                device = device or Client(**options, background=False, transport=httpx.MockTransport(serve))
                handle = device.join(asked.id, entries=STAYING + 2, signed=asked.signed_by(AUTHORITY))
                for entry in range(STAYING + 2):
                    handle.record(random.choice(asked.answers), entry)
                if moment >= 100:
                    handle.leave(STAYING + number % 2)
                device.flush()
        device.close()

    for number in range(3):
        if (child := os.fork()) == 0:
            try:
                random.seed(number)
                pod(number, range(0, 280, 4))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        time.sleep(random.random() / 20)
        postgresql.sql(CUT + ".3")
    os.kill(children[0], signal.SIGKILL)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [-signal.SIGKILL, 0, 0]
    pod(3, (300, 320, 340))
    (tmp_path / "sent").write_bytes(b"".join(part.read_bytes() for part in tmp_path.glob("sent[0-9]")))
    symbols = sent_reports(tmp_path, asked)
    assert len(symbols) == 4 + 2 + 4
    for ids in symbols.values():
        assert STAYING <= len(ids) <= STAYING + 2, "an entry answered a closing twice, or not at all"
        assert all(len(drawn) == 1 for drawn in ids.values()), "a node was answered with two symbols"
    schema = database.rpartition("%3D")[2]
    for column, table in (("number", "entries"), ("entry", "closings"), ("entry", "drawn")):
        assert postgresql.sql(f"SELECT 1 FROM {schema}.{table} WHERE {column} >= {STAYING}") == []
