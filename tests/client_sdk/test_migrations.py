"""Stores of version 3 are brought to the present version as they are opened, and back for an older release."""

import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from changeling_client import Recorded, Status, StoreUnusable, entries, migrate, migrations, outbox
from changeling_client import store as stores
from changeling_client.clock import close_ms
from changeling_client.store import Store
from changeling_protocol import AtMost, Hybrid, TimeBounded

from ..protocol.examples import hierarchical, joint_plan, mixed, survey
from .device import PLAIN, TRUTHFUL, Clock, FakeServer, by_node, client

TABLES = (Path(__file__).parent / "version_3.sql").read_text()
CALENDAR = PLAIN.calendar
APPLICATION = int.from_bytes(b"chlg")
KEY = bytes(range(32))
ID = b"closing of three"
TEA, COFFEE, NEITHER = 1, 2, 3


def old_store(file, asked, rows, version=3):
    """A file as an SDK of version 3 wrote it. rows: by table, without the survey's id."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(TABLES + f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version};")
        db.execute("INSERT INTO clock VALUES (?, ?)", (rows.get("seen", 0), rows.get("lead", 0)))
        db.execute("INSERT INTO surveys VALUES (?, ?, ?)", (asked.id, asked.payload, asked.epsilon_micro))
        for table in ("entries", "drawn_nodes", "changelog", "closings", "reports"):
            for row in rows.get(table, ()):
                db.execute(f"INSERT INTO {table} VALUES (?{', ?' * len(row)})", (asked.id, *row))
        db.executemany("INSERT INTO sealing_keys VALUES (?)", rows.get("sealing_keys", ()))
    db.close()
    return file


def entry_row(answered, *, number=0, group=0, used=None, score=None, mutations=0, first_ms=None, standing=0):
    return (number, group, answered, 100, used, score, mutations, first_ms, 0, standing, 0, 0)


def in_period(period):
    """A time in the middle of a period."""
    return close_ms(CALENDAR, period) - 30_000


LIVED = {
    "seen": in_period(6),
    "entries": [entry_row(4, mutations=3, first_ms=in_period(1))],
    "changelog": [(0, 1, in_period(1), TEA), (0, 2, in_period(3), COFFEE), (0, 3, in_period(6), TEA)],
    "closings": [(0, 4, ID, 0, 0)],
    "reports": [(0, 4, 0, 4, (0).to_bytes(1))],
}
"""An entry in period 6: tea, coffee from period 3, tea again; the closing of period 4 waits, with one report."""


def dumped(file):
    """All rows of all tables, and the version."""
    with sqlite3.connect(file) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        rows = {table: sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables}
        (version,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return version, rows


@pytest.fixture
def lived(tmp_path):
    return old_store(tmp_path / "store.db", PLAIN, LIVED)


@pytest.mark.usefixtures("lived")
def test_an_entry_goes_on_where_an_older_sdk_left_it(tmp_path):
    """What waited is sent with the id it had; every later node reports what happened, once; no mutation is left."""
    server, clock = FakeServer(PLAIN), Clock(in_period(6) / 1000)
    with client(tmp_path, server, clock) as device:
        handle = device.join(PLAIN.id)
        assert (handle.status, handle.answer()) == (Status.JOINED, "tea")
        assert handle.record("coffee") is Recorded.FROZEN
        assert device.ledger().spent == PLAIN.epsilon
        clock.now = CALENDAR.time(8) + PLAIN.skew + PLAIN.spread + 1
        assert device.flush().trouble is None
    assert ID in {closing.id for closing in server.closings()}
    space = PLAIN.plan.tracks[0].randomizer.space
    answered = by_node(server)
    assert answered.pop((3, 4)) == 0
    assert answered == {
        **{(period - 1, period): 0 for period in (5, 7, 8)},
        (5, 6): space.index(COFFEE, TEA),
        (4, 6): space.index(COFFEE, TEA),
        (6, 8): 0,
        (4, 8): space.index(COFFEE, TEA),
    }


@pytest.mark.usefixtures("lived")
def test_it_is_witnessed_from_then_on(tmp_path):
    """A store that is put back after the migration is known for it, and silent."""
    server, clock = FakeServer(PLAIN), Clock(in_period(6) / 1000)
    options = {"witness": tmp_path / "witness"}
    with client(tmp_path, server, clock, **options) as device:
        device.join(PLAIN.id)
    shutil.copy(tmp_path / "store.db", tmp_path / "backup")
    clock.now = CALENDAR.time(7) + PLAIN.skew + PLAIN.spread + 1
    with client(tmp_path, server, clock, **options) as device:
        assert device.join(PLAIN.id).status is Status.JOINED
        assert device.flush().sent == 4
    shutil.copy(tmp_path / "backup", tmp_path / "store.db")
    with client(tmp_path, server, clock, **options) as device:
        assert device.join(PLAIN.id).status is Status.SILENCED


def test_with_a_key_what_is_kept_is_encrypted_from_then_on(lived, tmp_path):
    """And no other key opens it."""
    with client(tmp_path, FakeServer(PLAIN), Clock(in_period(6) / 1000), key=KEY) as device:
        assert device.join(PLAIN.id).answer() == "tea"
    for key in (None, bytes(32)):
        with pytest.raises(StoreUnusable, match="another key"):
            Store(lived, key)


@pytest.mark.parametrize("key", [None, KEY])
def test_there_and_back_an_older_sdk_finds_the_same(lived, tmp_path, key):
    """The state at every close that a node still needs, the counts, the clock, what waits: as it wrote them."""
    before = dumped(lived)
    with client(tmp_path, FakeServer(PLAIN), Clock(in_period(6) / 1000), key=key):
        pass
    assert dumped(lived)[0] == 4
    migrate(lived, 3, key)
    version, after = dumped(lived)
    assert version == 3
    for table in ("surveys", "drawn_nodes", "closings", "reports", "sealing_keys"):
        assert after[table] == before[1][table]
    ((*same, first_ms, dropped, standing, stratum, changes),) = after["entries"]
    assert (*same, dropped, standing, stratum, changes) == (PLAIN.id, *LIVED["entries"][0][:7], 0, 0, 0, 0)
    assert first_ms is None  # its constraint does not ask for it

    def at_closes(rows):
        return [
            next((state for *_, at_ms, state in reversed(rows) if at_ms <= close_ms(CALENDAR, period)), 0)
            for period in (4, 5, 6, 7, 8)
        ]

    assert at_closes(after["changelog"]) == at_closes(before[1]["changelog"]) == [COFFEE, COFFEE, TEA, TEA, TEA]
    numbers = [number for _, _, number, *_ in after["changelog"]]
    assert numbers == sorted({*numbers})
    assert numbers[-1] == 3, "the next one is numbered after all that were counted"


def test_the_tables_are_those_that_an_older_sdk_makes(lived, tmp_path):
    """Column by column, with their keys."""

    def tables(file):
        with sqlite3.connect(file) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found = {
                name: [db.execute(f"PRAGMA {what}({name})").fetchall() for what in ("table_info", "foreign_key_list")]
                for name in names
            }
        db.close()
        return found

    old = old_store(tmp_path / "old.db", PLAIN, LIVED)
    Store(lived).close()
    assert tables(lived).keys() != tables(old).keys()
    migrate(lived, 3)
    assert tables(lived) == tables(old)


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (joint_plan(3, 8), {"entries": [entry_row(2, used=bytes((1, 0)), score=1)], "drawn_nodes": [(0, 0, 5)]}),
        (mixed(3, 8), {"entries": [entry_row(2, group=0, standing=2)], "drawn_nodes": [(0, 0, 4), (0, 0, 7)]}),
        (mixed(3, 8), {"entries": [entry_row(2, group=1), entry_row(8, number=1, group=2)]}),
    ],
)
def test_groups_slots_and_drawn_nodes_survive_there_and_back(tmp_path, plan, rows):
    """Whatever the plan is; an entry that is through stays so."""
    asked = survey(plan, grace=10**6)
    file = old_store(tmp_path / "store.db", asked, rows)
    before = dumped(file)
    with (store := Store(file)).transaction() as db:
        for row in rows["entries"]:
            kept = entries.load(db, store.wrapping, asked.id, row[0])
            assert (kept.group, kept.answered, int(kept.standing)) == (row[1], row[2], row[9])
            assert entries.drawn_nodes(db, store.wrapping, kept) == {
                (track, node) for number, track, node in rows.get("drawn_nodes", ()) if number == row[0]
            }
    store.close()
    migrate(file, 3)
    after = dumped(file)
    assert after[1]["drawn_nodes"] == before[1]["drawn_nodes"]
    assert after[1]["entries"][0] == before[1]["entries"][0]


def test_a_time_bounded_entry_keeps_when_it_began(tmp_path):
    """In whole seconds, rounded down, and back."""
    asked = survey(PLAIN.plan, constraint=Hybrid((AtMost(3), TimeBounded(120))), grace=10**6)
    first_ms = in_period(1) + 999
    rows = {"entries": [entry_row(0, mutations=1, first_ms=first_ms)], "changelog": [(0, 1, first_ms, TEA)]}
    file = old_store(tmp_path / "store.db", asked, rows)
    with (store := Store(file)).transaction() as db:
        assert entries.load(db, store.wrapping, asked.id, 0).first_s == first_ms // 1000
    store.close()
    migrate(file, 3)
    assert dumped(file)[1]["entries"][0][8] == first_ms // 1000 * 1000


def test_what_waits_is_put_together_as_uploads_may_span_it(tmp_path):
    """Seventy closings are two batches, in their order."""
    asked = survey(
        hierarchical(3, 80, (1,), TRUTHFUL), calendar=CALENDAR.__class__(CALENDAR.start, 60, 80), grace=10**6
    )
    rows = {
        "entries": [entry_row(70)],
        "closings": [(0, period, bytes([period]) * 16, 0, 0) for period in range(1, 71)],
        "reports": [(0, period, 0, period, bytes(1)) for period in range(1, 71)],
    }
    file = old_store(tmp_path / "store.db", asked, rows)
    with (store := Store(file)).transaction() as db:
        kept = entries.load_all(db, store.wrapping, asked.id)
        uploads = outbox.uploads(db, store.wrapping, asked, kept)
    store.close()
    assert [(each.periods[0], each.periods[-1]) for each in uploads] == [(1, 64), (65, 70)]


def test_a_survey_that_cannot_be_read_is_silenced_and_the_others_go_on(lived, tmp_path):
    """It counts for ever, and is never joined again."""
    with sqlite3.connect(lived) as db:
        db.execute("INSERT INTO surveys VALUES (?, x'c1', 5000000)", (bytes(16),))
    db.close()
    with client(tmp_path, FakeServer(PLAIN), Clock(in_period(6) / 1000)) as device:
        assert device.join(bytes(16)).status is Status.SILENCED
        assert device.join(PLAIN.id).answer() == "tea"
        assert device.ledger().spent == PLAIN.epsilon + 5


def test_there_is_no_way_back_to_joining_again_what_was_left(lived, tmp_path):
    """ValueError; the store stays as it is."""
    with client(tmp_path, FakeServer(PLAIN), Clock(in_period(6) / 1000)) as device:
        device.leave(PLAIN.id)
    before = dumped(lived)
    with pytest.raises(ValueError, match=PLAIN.id.hex()):
        migrate(lived, 3)
    assert dumped(lived) == before


@pytest.mark.parametrize("version", [0, 2, 5])
def test_there_is_no_way_to_a_version_that_is_not_known(lived, version):
    """ValueError with the version; nothing is changed but what opening changes."""
    with pytest.raises(ValueError, match=f"got {version}"):
        migrate(lived, version)
    assert dumped(lived)[0] == 4


def test_a_store_from_the_future_stays_as_it_is(tmp_path):
    """To the byte; neither opening it nor the way back touch it."""
    file = old_store(tmp_path / "store.db", PLAIN, LIVED, version=5)
    before = file.read_bytes()
    for tried in (lambda: Store(file), lambda: migrate(file, 3)):
        with pytest.raises(StoreUnusable, match="version 5"):
            tried()
    assert file.read_bytes() == before


def test_no_store_is_made_where_there_is_none(tmp_path):
    """A mistyped path is told as such."""
    with pytest.raises(FileNotFoundError, match="no store"):
        migrate(tmp_path / "none.db", 3)
    assert not list(tmp_path.iterdir())


def test_the_times_of_mutations_are_in_no_byte_of_the_new_store(lived, tmp_path):
    """The file is rewritten, and version 4 keeps none."""
    content = lived.read_bytes()
    assert all(in_period(period).to_bytes(6) in content for period in (1, 3))
    with client(tmp_path, FakeServer(PLAIN), Clock(in_period(6) / 1000)):
        pass
    content = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
    for period in (1, 3):
        assert in_period(period).to_bytes(6) not in content


def killed_at(statement, act):
    """Runs it in a child that is killed as SQLite begins its n-th statement. Returns whether it was."""
    child = os.fork()
    if child == 0:
        left = statement

        def count(_):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        connect = stores._connect

        def traced(file):
            connection = connect(file)
            connection.set_trace_callback(count)
            return connection

        stores._connect = traced
        try:
            act()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("way", ["forward", "back"])
def test_killed_at_any_statement_it_is_the_old_store_or_the_new_one(tmp_path, way):
    """Never half of one: all tables of a version, and all that they held."""
    statement, seen = 0, set()
    made = old_store(tmp_path / "made.db", PLAIN, LIVED)
    if way == "back":
        Store(made).close()
    file = tmp_path / "store.db"

    def act():
        if way == "back":
            migrate(file, 3)
        else:
            Store(file).close()

    killed = True
    while killed:
        statement += 1
        for old in tmp_path.glob("store.db*"):
            old.unlink()
        shutil.copy(made, file)
        killed = killed_at(statement, act)
        version, rows = dumped(file)
        seen.add(version)
        assert ("changelog" in rows, "device" in rows) == (version == 3, version == 4)
        assert (len(rows["surveys"]), len(rows["entries"]), len(rows["closings"])) == (1, 1, 1)
    assert seen == {3, 4}
    assert statement > 20


def test_of_two_processes_that_open_an_old_store_both_find_the_new_one(lived):
    """One migrates it, the other waits."""
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                Store(lived).close()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert dumped(lived)[0] == 4


def test_every_version_that_is_read_is_tested_here():
    """A later version of the tables comes with its own way there and back."""
    assert migrations.READABLE == (3, 4)
