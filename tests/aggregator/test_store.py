"""The file of the embedded store; what every store must do stands in tests/contracts/test_stores.py."""

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from changeling_aggregator.errors import StoreError
from changeling_aggregator.store import Store, embedded
from changeling_aggregator.store.log import open_stream
from sqlalchemy.exc import OperationalError


def test_another_programs_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Whether it is SQLite's or not."""
    other, no_database = tmp_path / "other.db", tmp_path / "letter.txt"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
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
    store = Store.open(Path(name))
    with store.writing() as connection:
        open_stream(connection)
    store.forget_overwritten(changed=True)
    assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}-wal", f"{name}-shm", f"{name}-held"}
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    store.close()
    assert (tmp_path / name).read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("url", ["mysql://a/b", "postgres://a/b", "sqlite:///x.db"])
def test_a_url_of_another_database_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """It is refused by name, and no folder or file comes of it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="postgresql://…, not at " + url.split(":")[0]):
        Store.open(url)
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "changeling_aggregator.store.postgresql", raising=False)
    with pytest.raises(StoreError, match=r'pip install "changeling\[postgres\]"'):
        Store.open("postgresql://host/database")


def test_only_the_owner_can_read_a_store(tmp_path: Path) -> None:
    """The file, which holds private keys, has mode 600."""
    Store.open(tmp_path / "server.db").close()
    assert (tmp_path / "server.db").stat().st_mode & 0o777 == 0o600


def test_every_commit_is_on_disk_before_it_returns(store: Store) -> None:
    """SQLite runs with a write-ahead log and synchronous=FULL."""
    with store.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_a_writer_waits_for_another_and_says_so_where_that_takes_too_long(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn comes once the other has ended; who waits in vain hears what kept it."""

    def write() -> int:
        with store.writing() as connection:
            return open_stream(connection)

    with ThreadPoolExecutor(1) as another:
        with store.writing() as connection:
            open_stream(connection)
            monkeypatch.setattr(embedded, "WAITING_SECONDS", 0.05)
            with pytest.raises(OperationalError, match="locked"):
                write()
            monkeypatch.setattr(embedded, "WAITING_SECONDS", 60.0)
            second = another.submit(write)
            assert not second.done()
        assert second.result(60) == 2


def test_a_log_that_is_written_back_is_begun_anew_while_others_write(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does not grow with what is written; where somebody reads, or writes, that waits for the next time."""
    monkeypatch.setattr(embedded, "MOST_LOG_PAGES", 0)

    def written() -> int:
        with store.writing() as connection:
            open_stream(connection)
        return (tmp_path / "server.db-wal").stat().st_size

    largest = max(written() for _ in range(20))
    for _ in range(20):
        store.write_back()
        assert written() <= largest
    with store.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM streams").scalar_one()
        store.write_back()
        assert connection.exec_driver_sql("SELECT count(*) FROM streams").scalar_one() == 40
    with store.writing() as connection:
        open_stream(connection)
        store.write_back()
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM streams").scalar_one() == 41


def test_opening_a_store_again_leaves_the_process_its_locks(tmp_path: Path) -> None:
    """Else another process that closes the file would take itself for the last, and throw away the log of the first."""
    first = Store.open(tmp_path / "server.db")
    with first.writing() as connection:
        open_stream(connection)
    Store.open(tmp_path / "server.db").close()
    other = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM store'); c.close()"
    subprocess.run([sys.executable, "-c", other, str(tmp_path / "server.db")], check=True)
    assert (tmp_path / "server.db-wal").exists()
    first.close()
