"""Stores as files and databases: what is none is refused, what was deleted is in no file, who has one alone, and
versions of their tables.

What every store must do stands in `changeling_aggregator.testing.StoreContract`.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from changeling_aggregator import StoreError
from changeling_aggregator.fold import Opened, check, fold, open_requests
from changeling_aggregator.server.http import answer_to
from changeling_aggregator.store import NO_ANSWER, VERSION, Store, database
from changeling_aggregator.store.database import migrate
from changeling_aggregator.store.store import database_at
from changeling_aggregator.testing import sql
from changeling_aggregator.testing.services import PostgreSQL
from changeling_commands import main as run
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from ..contracts.stores import PLACES, Place
from .devices import END, Log, report
from .serving import eventually

ALONE = {
    "reencrypt": ("keys", "reencrypt", "--new-store-key-file", "new.key"),
    "upgrade": ("store", "upgrade"),
}
LOSE = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'changeling'"
"""Ends every connection to a store, and waits until it has ended."""
HOLD = "import sys; from changeling_aggregator.store import Store; held = Store.open(sys.argv[1]); print(); input()"


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where a store lies, in a folder that has a store key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.key").write_text("ab" * 32)
    return PLACES[request.param](request)


# SQLite's file


def test_another_programs_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Whether it is SQLite's or not."""
    other, no_database = tmp_path / "other.db", tmp_path / "letter.txt"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    no_database.write_text("Dear Sir or Madam, " * 100)
    with pytest.raises(StoreError, match="another program"):
        Store.open(other)
    with pytest.raises(StoreError, match="cannot be used"):
        Store.open(no_database)
    assert no_database.read_text().startswith("Dear Sir")


@pytest.mark.parametrize("name", ["q?mode=memory.db", ":memory:", "file:a.db?mode=ro", "50%20a#b.db"])
def test_a_store_is_in_the_file_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whatever characters its name has, and it alone, its owner's, holds what was written."""
    monkeypatch.chdir(tmp_path)
    with closing(Store.open(Path(name))) as store:
        store.open_stream()
        store.forget_overwritten(changed=True)
        assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}-wal", f"{name}-shm", f"{name}-held"}
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert (tmp_path / name).read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("url", ["mysql://a/b", "postgres://a/b", "sqlite:///x.db"])
def test_a_url_of_another_database_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """It is refused by name, and no folder or file comes of it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="postgresql://…, .*not at " + url.split(":")[0]):
        Store.open(url)
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "changeling_aggregator.store.postgresql", raising=False)
    with pytest.raises(StoreError, match=r'pip install "changeling\[postgres\]"'):
        Store.open("postgresql://host/database")


def test_every_commit_is_on_disk_before_it_returns(store: Store) -> None:
    """SQLite runs with a write-ahead log and synchronous=FULL."""
    assert (sql(store, "PRAGMA journal_mode"), sql(store, "PRAGMA synchronous")) == ([("wal",)], [(2,)])


def test_a_writer_waits_for_another_and_says_so_where_that_takes_too_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn comes once the other has ended; who waits in vain hears what kept it."""
    with ThreadPoolExecutor(1) as another:
        with store.transaction() as writing:
            writing.stop_appending()
            monkeypatch.setattr(database, "WAITING_SECONDS", 0.05)
            with pytest.raises(OperationalError, match="locked"):
                store.open_stream()
            monkeypatch.setattr(database, "WAITING_SECONDS", 60.0)
            second = another.submit(store.open_stream, None)
            assert not second.done()
        assert second.result(60) == 1


def test_a_log_that_is_written_back_is_begun_anew_while_others_write(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does not grow with what is written; where somebody reads, or writes, that waits for the next time."""
    monkeypatch.setattr(database, "MOST_LOG_PAGES", 0)

    def written() -> int:
        store.open_stream()
        return (tmp_path / "server.db-wal").stat().st_size

    largest = max(written() for _ in range(20))
    for _ in range(20):
        store.write_back()
        assert written() <= largest
    with store.view() as view:
        assert len(view.streams()) == 40
        store.write_back()
        assert len(view.streams()) == 40
    with store.transaction() as writing:
        writing.stop_appending()
        store.write_back()


def test_a_file_shrinks_when_what_filled_it_is_over(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while much of it is in use, nor while somebody reads; what is left is there afterwards."""
    stream, file = store.open_stream(), tmp_path / "server.db"
    for number in range(40):
        store.append({stream: [bytes([number]) * 2**16]}, 5)
    store.forget_overwritten(changed=True)  # so that all of it is in the file
    full = file.stat().st_size
    sql(store, "DELETE FROM log WHERE position > 1")
    store.forget_overwritten(changed=False)
    assert file.stat().st_size == full, "a few megabytes are not worth the wait"
    monkeypatch.setattr(database, "LEAST_GIVEN_BACK_BYTES", 2**20)
    with store.view() as view:
        assert view.log_state().unfolded == 40
        store.forget_overwritten(changed=False)
    assert file.stat().st_size == full
    store.write_back()
    assert file.stat().st_size < full / 4
    assert sql(store, "SELECT length(envelope) FROM log") == [(2**16,)]


def test_opening_a_store_again_leaves_the_process_its_locks(store: Store, tmp_path: Path) -> None:
    """Else another process that closes the file would take itself for the last, and throw away the log of the first."""
    store.open_stream()
    Store.open(store.place).close()
    other = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM store'); c.close()"
    subprocess.run([sys.executable, "-c", other, str(store.place)], check=True)
    assert (tmp_path / "server.db-wal").exists()


# What was deleted, beside SQLite's pages and PostgreSQL's rows

OLD = b"an envelope of long ago, as it came"


def test_what_was_deleted_leaves_the_write_ahead_log_within_the_hour(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where much came once and little since, nothing is written over most of that log: it is emptied then."""

    def files_with_old() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir() if OLD in path.read_bytes())

    store.append({store.open_stream(): [OLD * 100] * 50}, 5)
    store.write_back()
    for position in range(1, 51):
        sql(store, "DELETE FROM log WHERE position = :position", position=position)
        store.write_back()
    assert files_with_old() == ["server.db-wal"]
    monkeypatch.setattr(database, "monotonic", lambda: monotonic() + 3600)
    store.write_back()
    assert files_with_old() == []


def test_counting_the_log_again_writes_no_file(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a private key, nor a report, nor anything: beside the store's files and among the temporary ones."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    log.append_reports(END, [report(1)])
    fold(log.store, END)
    log.store.write_back()

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".db-shm"}

    before, looked = files(), list[bool]()

    def opening(*arguments: Any) -> Opened:
        looked.append(files() == before)
        return open_requests(*arguments)

    assert check(log.store, opening) == []
    assert (looked, files() == before) == ([True], True)


def expired_keys(store: Store, count: int) -> list[bytes]:
    """The private halves of new keys that expired in the second 2."""
    with store.transaction() as writing:
        for _ in range(count):
            writing.make_key()
    sql(store, "UPDATE keys SET begins = 1, expires = 2, signed = :signed", signed=b"s")
    with store.view() as view:
        return [key.private_bytes_raw() for key in view.private_keys().values()]


def destroy(store: Store) -> int:
    with store.transaction() as writing:
        return writing.delete_overdue(3000, {}, 0)


@pytest.mark.heavy
def test_a_destroyed_private_key_stands_in_no_tables_file(
    postgresql: PostgreSQL, postgresql_store: Store, url: str
) -> None:
    """Once the table was rewritten, which waits a second for who reads it, and for any transaction that might still see
    the key, though it has never read that table; then it is tried again the next time."""
    store = postgresql_store
    (private,) = expired_keys(store, 1)
    with store.view() as view:
        (id_,) = (each.id for each in view.sealing_keys())
    with closing(Store.open(url)) as beside, beside.view() as older:
        assert [*older.kept_requests()] == []
        assert destroy(store) == 1
        store.forget_overwritten(changed=True)
        assert postgresql.files_with(private)
    with store.view() as view:
        view.sealing_keys()
        store.forget_overwritten(changed=False)
        assert postgresql.files_with(private)
    store.forget_overwritten(changed=False)
    assert postgresql.files_with(id_)
    assert not postgresql.files_with(private)


def test_no_private_key_and_no_envelope_outlives_its_row_in_statistics(
    postgresql: PostgreSQL, postgresql_store: Store
) -> None:
    """Which PostgreSQL keeps of columns that it analyses: by itself, or as an administrator tells it to."""
    store = postgresql_store
    privates = expired_keys(store, 3)
    store.append({store.open_stream(): [OLD + bytes([number]) for number in range(9)]}, 5)
    sql(store, "ANALYZE keys, log")
    question = "SELECT attname FROM pg_stats WHERE schemaname = current_schema() AND attname IN ('private', 'envelope')"
    assert sql(store, question) == []
    destroy(store)
    sql(store, "DELETE FROM log")
    store.forget_overwritten(changed=True)
    assert [len(postgresql.files_with(each)) for each in privates] == [0, 0, 0]


# Who has it open


@pytest.mark.parametrize("words", ALONE.values(), ids=ALONE)
def test_what_must_be_alone_is_refused_beside_others_and_names_them(
    place: Place, words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With nothing changed; once the last has closed it, it is done."""
    first, second = place.open(), place.open()
    command = [*words, "--store", place.name]
    for held in (first, second):
        assert run(command) == 1
        said = capsys.readouterr().err
        assert "in use by " in said
        assert "stop every server" in said
        who = "changeling at the database's own machine" if "://" in place.name else f"process {os.getpid()}"
        assert who in said
        held.close()
    assert run(command) == 0


def test_what_a_killed_process_held_is_free_for_one_alone(place: Place) -> None:
    """Its end is enough; nobody has to clear anything away."""
    place.open().close()
    process = subprocess.Popen([sys.executable, "-c", HOLD, place.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    with pytest.raises(StoreError, match="is in use by "):
        Store.open(place.name, alone=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    def free() -> bool:
        """Then nobody opens it, nor has a second it alone."""
        with suppress(StoreError), closing(Store.open(place.name, alone=True)):
            for alone, said in ((True, "is in use by "), (False, "is being changed by ")):
                with pytest.raises(StoreError, match=said):
                    Store.open(place.name, alone=alone)
            return True
        return False

    assert eventually(free, True)  # PostgreSQL has to notice


def test_who_lost_its_connections_to_one_that_has_the_store_alone_uses_no_changed_tables(
    postgresql: PostgreSQL,
) -> None:
    """Whoever asks meanwhile is told to come again. On the next connection it holds the store as before; where that was
    upgraded meanwhile it writes nothing to it, as by an older program."""
    url = postgresql.new()
    store = Store.open(url)

    def unfolded() -> int | None:
        with suppress(*NO_ANSWER, StoreError), store.view() as view:
            return view.log_state().unfolded
        return None

    postgresql.sql(LOSE)
    with closing(Store.open(url, alone=True)):
        for _ in range(3):
            with pytest.raises((*NO_ANSWER, StoreError)) as raised, store.view() as view:
                view.log_state()
            assert answer_to(raised.value).status_code == 503
    assert eventually(unfolded, 0)  # PostgreSQL has to notice that the other has gone
    with pytest.raises(StoreError, match="is in use by "):
        Store.open(url, alone=True)
    postgresql.sql(LOSE)
    with closing(Store.open(url, alone=True)) as alone:
        sql(alone, "UPDATE store SET version = 9999")
    for _ in range(3):
        with pytest.raises((*NO_ANSWER, StoreError)) as raised:
            store.open_stream()
    assert "changed meanwhile" in str(raised.value)
    store.close()


# Versions of the tables

TO_COME = {
    VERSION: lambda connection: connection.execute(text("ALTER TABLE surveys ADD COLUMN colour VARCHAR")),
    VERSION + 1: lambda connection: connection.execute(text("ALTER TABLE surveys RENAME COLUMN colour TO hue")),
}
"""Migrations of programs to come."""


def move(place: Place, to: int, migrations: dict[int, object] = TO_COME) -> int | None:
    """As `changeling store upgrade` of such a program."""
    database = database_at(place.name, alone=True)
    try:
        return migrate(database, migrations, to)
    finally:
        database.close()


def columns(place: Place) -> int:
    with closing(place.open()) as store, store.view() as view:
        return len(view._connection.execute(text("SELECT * FROM surveys")).keys())


def test_an_older_store_is_not_opened_but_upgraded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that is in it, or, where a migration fails, not at all. Until then the program to come says what to do,
    as the older one does after."""
    with closing(place.open()) as store:
        store.append({store.open_stream(): [b"one", b"two"]}, 5)
    before = columns(place)
    broken = {**TO_COME, VERSION + 1: lambda connection: connection.execute(text("ALTER TABLE none_such DROP x"))}
    with pytest.raises(StoreError, match="none_such"):
        move(place, VERSION + 2, broken)
    assert columns(place) == before
    with monkeypatch.context() as to_come:
        to_come.setattr("changeling_aggregator.store.schema.VERSION", VERSION + 2)
        needs = f"version {VERSION}, .* needs {VERSION + 2}: .*`changeling store upgrade`"
        with pytest.raises(StoreError, match=needs):
            place.open()
        assert (move(place, VERSION + 2), move(place, VERSION + 2)) == (VERSION, VERSION + 2)
        assert columns(place) == before + 1
        with closing(place.open()) as store, store.view() as view:
            assert [logged.body for logged in view.unread(9, 99)] == [b"one", b"two"]
    with pytest.raises(StoreError, match=f"version {VERSION + 2}, this program knows {VERSION}"):
        place.open()


def test_what_a_version_before_the_first_wrote_is_refused(place: Place) -> None:
    """In plain words, and it stays as it is."""
    with closing(place.open()) as store:
        sql(store, "ALTER TABLE store DROP COLUMN version")
    with pytest.raises(StoreError, match="before its first release"):
        Store.open(place.name)


def test_the_command_line_shows_and_changes_the_version(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """It leaves a store that is right, and refuses one from the future."""

    def store(command: str) -> tuple[int, str]:
        code = run(["store", command, "--store", place.name])
        done = capsys.readouterr()
        return code, " ".join((done.out + done.err).split())

    assert "no store yet; this program needs 1" in store("version")[1]
    assert "has no store yet" in store("upgrade")[1]
    place.open().close()
    assert store("upgrade") == (0, f"{place.name} has schema version {VERSION} already")
    move(place, VERSION + 1)
    assert "has schema version 2; this program needs 1" in store("version")[1]
    code, said = store("upgrade")
    assert (code, "this program knows 1" in said) == (1, True)


def test_postgresql_tries_to_compress_no_ciphertext(url: str) -> None:
    """It would be in vain, and a third of the time that appending takes."""
    question = "SELECT attstorage FROM pg_attribute WHERE (attrelid, attname) IN (('log'::regclass, 'envelope'), "
    with closing(Store.open(url)) as store:
        assert [*map(str, sql(store, question + "('runs'::regclass, 'ids'))"))] == ["('e',)"] * 2
