"""What was deleted stands in no file of the store: neither beside SQLite's pages, nor beside PostgreSQL's rows."""

import tempfile
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from changeling_aggregator.fold import check, fold
from changeling_aggregator.store import Store, database
from changeling_aggregator.testing import sql
from changeling_aggregator.testing.services import PostgreSQL
from changeling_protocol import UnixSeconds

from ..protocol.examples import survey
from .devices import Log, report

OLD = b"an envelope of long ago, as it came"


@pytest.fixture
def store(postgresql_store: Store) -> Store:
    return postgresql_store


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


def test_what_was_deleted_leaves_the_write_ahead_log_within_the_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where much came once and little since, nothing is written over most of that log: it is emptied then."""
    store = Store.open(tmp_path / "store.db")

    def files_with_old() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir() if OLD in path.read_bytes())

    store.append({store.open_stream(None): [OLD * 100] * 50}, 5)
    store.write_back()
    for position in range(1, 51):
        sql(store, "DELETE FROM log WHERE position = :position", position=position)
        store.write_back()
    assert files_with_old() == ["store.db-wal"]
    monkeypatch.setattr(database, "monotonic", lambda: monotonic() + 3600)
    store.write_back()
    assert files_with_old() == []
    store.close()


def test_counting_the_log_again_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a private key, nor a report, nor anything: beside the store's files and among the temporary ones."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    store = Store.open(tmp_path / "store.db")
    kept = Log.of(store, survey())
    begun = kept.survey.calendar.start
    kept.append_reports(begun + 61, [report(1)])
    fold(store, UnixSeconds(begun + 62))
    store.write_back()

    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".db-shm"}

    before, looked = files(), list[bool]()
    (opens,) = check.__defaults__ or ()

    def opening(*arguments: Any) -> Any:
        looked.append(files() == before)
        return opens(*arguments)

    assert check(store, opening) == []
    assert looked == [True]
    assert files() == before
    store.close()


@pytest.mark.heavy
def test_a_destroyed_private_key_stands_in_no_tables_file(postgresql: PostgreSQL, store: Store, url: str) -> None:
    """Once the table was rewritten, which waits a second for who reads it, and for any transaction that might still see
    the key, though it has never read that table; then it is tried again the next time."""
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


def test_no_private_key_and_no_envelope_outlives_its_row_in_statistics(postgresql: PostgreSQL, store: Store) -> None:
    """Which PostgreSQL keeps of columns that it analyses: by itself, or as an administrator tells it to."""
    privates = expired_keys(store, 3)
    store.append({store.open_stream(None): [OLD + bytes([number]) for number in range(9)]}, 5)
    sql(store, "ANALYZE keys, log")
    question = "SELECT attname FROM pg_stats WHERE schemaname = current_schema() AND attname IN ('private', 'envelope')"
    assert sql(store, question) == []
    destroy(store)
    sql(store, "DELETE FROM log")
    store.forget_overwritten(changed=True)
    assert [len(postgresql.files_with(each)) for each in privates] == [0, 0, 0]
