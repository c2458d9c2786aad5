"""The store's file, and the order it gives to what is appended."""

import sqlite3
from pathlib import Path

import pytest
from changeling_aggregator.errors import StoreError
from changeling_aggregator.store import Store
from changeling_aggregator.store.log import advance_arrival, append, hold_arrivals, open_stream, unread, whole_log
from sqlalchemy import text


def test_a_store_from_the_future_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A later schema version is named, and nothing is changed."""
    path = tmp_path / "server.db"
    store = Store.open(path)
    with store.writing() as connection:
        connection.execute(text("UPDATE store SET version = 3"))
    store.close()
    with pytest.raises(StoreError, match="schema version 3, this program knows 2"):
        Store.open(path)


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


def test_only_the_owner_can_read_a_store(tmp_path: Path) -> None:
    """The file, which holds private keys, has mode 600."""
    Store.open(tmp_path / "server.db").close()
    assert (tmp_path / "server.db").stat().st_mode & 0o777 == 0o600


def test_every_commit_is_on_disk_before_it_returns(store: Store) -> None:
    """SQLite runs with a write-ahead log and synchronous=FULL."""
    with store.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_arrivals_never_decrease_and_follow_the_order_of_commits(store: Store) -> None:
    """However the clocks of two streams run, (arrival, stream, position) is the order of appending."""
    with store.writing() as connection:
        first, second = open_stream(connection), open_stream(connection)
    order = [(first, 100), (second, 100), (first, 100), (second, 40), (first, 300), (first, 10), (second, 301)]
    for number, (stream, now) in enumerate(order):
        with store.writing() as connection:
            append(connection, stream, [bytes([number])], now)
    with store.reading() as connection:
        entries = list(whole_log(connection))
    assert [entry.envelope[0] for entry in entries] == list(range(len(order)))
    assert [entry.arrival for entry in entries] == [100, 100, 101, 101, 300, 300, 301]
    assert [entry.position for entry in entries if entry.stream == first] == [1, 2, 3, 4]
    with store.writing() as connection:
        hold_arrivals(connection, 500)
        hold_arrivals(connection, 400)
        assert advance_arrival(connection, second, 450) == 500


def test_reading_stops_at_the_bound_and_merges_streams(store: Store) -> None:
    """A batch is the first entries of all streams together, at most so many or so many bytes."""
    with store.writing() as connection:
        streams = [open_stream(connection) for _ in range(3)]
    for number in range(9):
        with store.writing() as connection:
            append(connection, streams[number % 3], [bytes([number]) * 10], number)
    with store.reading() as connection:
        assert [entry.envelope[0] for entry in unread(connection, 5, 1000)] == [0, 1, 2, 3, 4]
        assert [entry.envelope[0] for entry in unread(connection, 100, 25)] == [0, 1, 2]
