"""The contract of stores, kept by a file of SQLite and by a real PostgreSQL; and pods that share a store there,
attacked: killed, cut off, behind, and waiting for one another.
"""

import os
import random
import shutil
import signal
import threading
import time
from contextlib import suppress
from itertools import count

import psycopg
import pytest
from changeling_client import Client, Recorded, SharedCallbacks, Silenced, StoreBusy, StoreUnusable, entries

from ..protocol.examples import AUTHORITY, PINNED
from .device import START, URL, Clock, FakeServer, ended, forked
from .kills import NOISY, TOGETHER, Steps, assert_each_node_is_answered_once, counting, noted, sent_reports
from .store_contract import Pods, StoreContract

CUT = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'changeling' AND random() < "
)
STAYING = 6


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
            while not postgresql.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                time.sleep(0.01)
            entries.leave(db, pods.survey.id, 1)
        waiting.join()
        assert told == [Recorded.DROPPED]
        with other._device.store.transaction() as db:
            assert entries.numbers(db, pods.survey.id) == [0]


@pytest.mark.parametrize("theirs", ["name text", "version integer"])
def test_no_table_of_the_host_is_dropped_without_consent(postgresql, theirs):
    """Its database has tables with such names as a store's: they never were one, and starting without consent, or
    withdrawing it, leaves them as they are."""
    database = postgresql.new()
    schema = database.rpartition("%3D")[2]
    for name, columns in (("format", theirs), ("device", "serial text"), ("entries", "amount integer")):
        postgresql.sql(f"CREATE TABLE {schema}.{name} ({columns})")
    with suppress(StoreUnusable):
        Pods(database=database).client(consent=False).close()
    left = postgresql.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
    assert {name for (name,) in left} == {"format", "device", "entries"}


def tables_in(postgresql, schema):
    return {name for (name,) in postgresql.sql(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")}


@pytest.mark.parametrize("loss", ["COMMENT ON TABLE {}.format IS NULL", "DROP TABLE {}.format"])
def test_a_store_that_lost_its_mark_is_destroyed_without_consent(postgresql, loss):
    """A dump without comments brings none back. The answers stand in the tables that are left."""
    database = postgresql.new()
    schema = database.rpartition("%3D")[2]
    pods = Pods(database=database)
    with pods.client(key=b"K" * 32) as client:
        pods.join(client).record("tea")
    postgresql.sql(loss.format(schema))
    with suppress(StoreUnusable):
        pods.client(key=None, consent=False).close()
    assert not tables_in(postgresql, schema)


@pytest.mark.parametrize("key", [None, b"K" * 32], ids=["wiped", "destroyed"])
def test_of_a_store_that_lost_a_table_no_other_schemas_table_is_taken_for_it(postgresql, key):
    """Where the search path leads on to the host's own schema, which has a table of that name."""
    database = postgresql.new()
    schema, theirs = (each.rpartition("%3D")[2] for each in (database, postgresql.new()))
    pods = Pods(database=f"{database}%2C{theirs}")
    with pods.client() as client:
        pods.join(client).record("tea")
    postgresql.sql(f"CREATE TABLE {theirs}.servers (url text)")
    postgresql.sql(f"INSERT INTO {theirs}.servers VALUES ('theirs')")
    postgresql.sql(f"DROP TABLE {schema}.servers")
    with suppress(StoreUnusable):
        pods.client(key=key, consent=False).close()
    assert tables_in(postgresql, theirs) == {"servers"}
    assert postgresql.sql(f"SELECT url FROM {theirs}.servers") == [("theirs",)]


def new_elsewhere(postgresql):
    """Another database than the store's, with the table of the recipe of docs/app.md."""
    database = postgresql.new()
    schema = database.rpartition("%3D")[2]
    postgresql.sql(f"CREATE TABLE {schema}.witness (one integer PRIMARY KEY, seen bytea NOT NULL)")
    return database


def witness_elsewhere(database, before=lambda *_: None):
    """The callbacks of that recipe. before: called before anything is put there."""

    def read():
        with psycopg.connect(database) as elsewhere:
            row = elsewhere.execute("SELECT seen FROM witness").fetchone()
        return None if row is None else row[0]

    def swap(expected, new):
        before(expected, new)
        with psycopg.connect(database) as elsewhere:
            if expected is None:
                put = elsewhere.execute("INSERT INTO witness VALUES (1, %s) ON CONFLICT DO NOTHING", [new])
            else:
                put = elsewhere.execute("UPDATE witness SET seen = %s WHERE seen = %s", [new, expected])
        return put.rowcount == 1

    return SharedCallbacks(read, swap)


@pytest.mark.parametrize("cut_at", [0, 1, *(pytest.param(each, marks=pytest.mark.heavy) for each in (2, 3, 4))])
def test_a_pod_that_was_cut_off_sets_no_witness_back(postgresql, cut_at):
    """Its session ended just before it puts something into the witness, at its start or while it reports, and others
    have taken over and reported since. It changes nothing any more: nobody is silent, no closing is answered twice."""
    pods, told, puts, elsewhere = Pods(database=postgresql.new()), [], count(), new_elsewhere(postgresql)
    start = pods.clock.now

    def report():
        with pods.client(witness=witness_elsewhere(elsewhere), on_error=told.append) as other:
            pods.join(other)
            for _ in range(2):
                other.flush()
                pods.clock.advance(days=1)

    def others_report(*_):
        if next(puts) == cut_at:
            postgresql.sql(CUT + "2")
            report()

    late = witness_elsewhere(elsewhere, others_report)
    with suppress(StoreBusy), pods.client(witness=late, on_error=told.append) as one:
        pods.join(one)
        pods.report(one)
    assert next(puts) > cut_at, "it was not cut off"
    report()
    report()
    assert not any(isinstance(error, Silenced) for error in told)
    assert pods.closings() == (pods.clock.now - start) / 86_400 - 1


def test_who_is_refused_by_the_witness_looks_again_and_goes_on(postgresql):
    """A pod that was cut off before it asked the witness asks it all the same: nothing leaves of what the other one,
    which reports, was about to tell, until that one has looked again."""
    pods, told, elsewhere = Pods(database=postgresql.new()), [], new_elsewhere(postgresql)
    start = pods.clock.now
    behind = [witness_elsewhere(elsewhere)]

    def ask(expected, new):
        if behind and expected is not None and new[:16] == expected[:16] and pods.clock.now > start:
            behind.pop().read()

    with pods.client(witness=witness_elsewhere(elsewhere, ask), on_error=told.append) as device:
        pods.join(device)
        pods.clock.advance(days=1)
        flushed = device.flush()
        assert not behind
        assert "another pod has asked the witness" in flushed.trouble
        assert (flushed.sent, pods.said()) == (0, [])
        assert device.flush().sent == 1
    assert told == []


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("asked", [NOISY, TOGETHER], ids=["each by itself", "joint"])
def test_pods_killed_and_cut_off_answer_each_node_once(postgresql, tmp_path, asked):
    """Three pods record, withdraw and flush under one witness; connections are cut at random moments, and a pod is
    killed: each node has one report of each who stays, and of who left nothing is kept."""
    database, elsewhere, children = postgresql.new(), new_elsewhere(postgresql), []

    def pod(number, moments):
        server, clock, device = FakeServer(asked), Clock(), None
        server.clock, transport = clock, noted(tmp_path / f"sent{number}", server)
        options = {"server": URL, "authority": PINNED, "database": database, "max_epsilon": 10**6, "clock": clock}
        options["witness"] = witness_elsewhere(elsewhere)
        for moment in moments:
            clock.now = START + moment
            with suppress(StoreBusy):
                device = device or Client(**options, background=False, transport=transport)
                handle = device.join(asked.id, entries=STAYING + 2, signed=asked.signed_by(AUTHORITY))
                for entry in range(STAYING + 2):
                    handle.record(random.choice(asked.answers), entry)
                if moment >= 100:
                    handle.leave(STAYING + number % 2)
                device.flush()
        device.close()

    for number in range(3):
        children.append(forked(lambda: (random.seed(number), pod(number, range(0, 280, 4)))))  # noqa: B023
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        time.sleep(random.random() / 20)
        postgresql.sql(CUT + ".3")
    os.kill(children[0], signal.SIGKILL)
    assert [ended(child) for child in children] == [-signal.SIGKILL, 0, 0]
    pod(3, (300, 320, 340))
    assert_each_node_is_answered_once(sent_reports(tmp_path, asked), asked, STAYING, STAYING + 2)
    schema = database.rpartition("%3D")[2]
    for column, table in (("number", "entries"), ("entry", "closings"), ("entry", "drawn")):
        assert postgresql.sql(f"SELECT 1 FROM {schema}.{table} WHERE {column} >= {STAYING}") == []


class TestSQLite(StoreContract):
    @pytest.fixture
    def pods(self, tmp_path):
        return Pods(path=tmp_path / "store" / "store.db")

    @pytest.fixture
    def kept(self, tmp_path):
        return lambda: b"".join(file.read_bytes() for file in (tmp_path / "store").iterdir())

    @pytest.fixture
    def backup(self, tmp_path):
        def copy():
            shutil.copytree(tmp_path / "store", tmp_path / "copy")
            return lambda: (shutil.rmtree(tmp_path / "store"), shutil.copytree(tmp_path / "copy", tmp_path / "store"))

        return copy


class TestPostgreSQL(StoreContract):
    @pytest.fixture
    def pods(self, postgresql):
        return Pods(database=postgresql.new())

    @pytest.fixture
    def kept(self, postgresql):
        def files():
            postgresql.sql("CHECKPOINT")
            return b"".join(path.read_bytes() for path in (postgresql.data / "base").rglob("*") if path.is_file())

        return files

    @pytest.fixture
    def backup(self, postgresql, pods):
        schema = pods.options["database"].rpartition("%3D")[2]

        tables = []

        def copy():
            query = (
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = '{}'::regnamespace ORDER BY oid"
            )
            tables.extend(name for (name,) in postgresql.sql(query.format(schema)))
            postgresql.sql(f"CREATE SCHEMA {schema}_copy")
            for table in tables:
                postgresql.sql(f"CREATE TABLE {schema}_copy.{table} AS SELECT * FROM {schema}.{table}")
            return put_back

        def put_back():
            postgresql.sql(
                "SET session_replication_role = replica; TRUNCATE " + ", ".join(f"{schema}.{each}" for each in tables)
            )
            for table in tables:
                postgresql.sql(f"INSERT INTO {schema}.{table} SELECT * FROM {schema}_copy.{table}")

        return copy

    def test_a_database_that_is_put_back_under_a_pod_is_silent_for_good(self, postgresql, pods, backup):
        """Of a backup two closings old, under a pod that goes on: it and all later ones are silent."""
        told: list[object] = []
        options = {"witness": witness_elsewhere(new_elsewhere(postgresql)), "on_error": told.append}

        with pods.client(**options) as one:
            pods.join(one)
            pods.report(one)
            put_back = backup()
            pods.report(one)
            put_back()
            pods.report(one)
        with pods.client(**options) as other:
            pods.report(other)
        assert any(isinstance(error, Silenced) for error in told)
        assert pods.closings() == 4


def lived(postgresql, lose_at):
    """A flush of two entries, whose connection the database ends at one of its statements, and then as many as it
    takes. Returns how many statements there were at least, and the reports."""
    pods = Pods(database=postgresql.new())
    steps = Steps(lambda count: count == lose_at and postgresql.sql(CUT + "2"), reads=True)
    with pods.client() as client:
        pods.join(client, entries=2).record("tea", 1)
        pods.clock.advance(days=1)
        with counting(steps):
            for _ in range(5):
                with suppress(StoreBusy):
                    client.flush()
        assert client._device.store.interrupts() is False
    return steps.count, pods.server.reports


@pytest.mark.heavy
def test_a_connection_that_is_lost_anywhere_answers_nothing_twice(postgresql):
    """At every seventh statement of a flush: what was begun is undone, and in the end each entry has answered once."""
    count, _ = lived(postgresql, 0)
    assert count > 40
    for lose_at in range(1, count, 7):
        _, reports = lived(postgresql, lose_at)
        assert len({report.closing for report in reports}) == 2, lose_at
        assert sorted(report.says for report in reports) == ["from no answer to tea", "no change"], lose_at
