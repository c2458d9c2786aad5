"""Group commit: who waits together shares a commit; who is acknowledged is on disk."""

import asyncio
from pathlib import Path

import pytest
from changeling_aggregator import Overloaded, Unwritable, ingest
from changeling_aggregator.fold import fold
from changeling_aggregator.ingest import Committer, Pace, RowWriter
from changeling_aggregator.store import Store, database
from changeling_protocol import Calendar, Refusal
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from ..protocol.examples import survey
from .devices import SURVEYS, Log, content_of, upload


def appended(store: Store) -> list[bytes]:
    with store.view() as view:
        return [content for entry in sorted(view.kept_requests()) for content in content_of(entry.body)]


def submit(waiting: Committer, *bodies: bytes, start: bool = False) -> list[BaseException | None]:
    """Has these appended at once, from one event loop; what each came to. start: the committer, when all wait."""

    async def appended_all() -> list[BaseException | None]:
        tasks = [asyncio.create_task(waiting.append(upload(each), SURVEYS)) for each in bodies]
        await asyncio.sleep(0)
        if start:
            waiting.start()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

    return asyncio.run(appended_all())


def commits_of(store: Store) -> list[Connection]:
    """Grows with each commit of a writer from now on."""
    commits: list[Connection] = []

    def note(connection: Connection) -> None:
        if connection.get_execution_options().get("writer"):
            commits.append(connection)

    event.listen(store._database.engine, "commit", note)
    return commits


def test_uploads_that_wait_together_share_a_commit(store: Store) -> None:
    """A hundred of them, one transaction, one arrival, in the order of submission."""
    waiting, commits = Committer(store, lambda: 5.0), commits_of(store)
    assert submit(waiting, *(bytes([number]) for number in range(100)), start=True) == [None] * 100
    assert len(commits) == 2  # the first opens the survey's stream
    waiting.close()
    assert appended(store) == [bytes([number]) for number in range(100)]


def test_uploads_that_come_one_after_the_other_share_a_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is committed at once; those that come right after it wait for one another, a moment."""
    monkeypatch.setattr(RowWriter, "pace", Pace(apart=1.5))
    waiting, commits = Committer(store, lambda: 5.0), commits_of(store)
    waiting.start()
    assert submit(waiting, b"first") == [None]
    assert len(commits) == 2  # the first opens the survey's stream

    async def in_turn() -> None:
        tasks = []
        for each in (b"second", b"third", b"fourth"):
            tasks.append(asyncio.create_task(waiting.append(upload(each), SURVEYS)))
            await asyncio.sleep(0.01)
        await asyncio.wait_for(asyncio.gather(*tasks), 60)

    asyncio.run(in_turn())
    waiting.close()
    assert [len(commits), *appended(store)] == [3, b"first", b"second", b"third", b"fourth"]


def test_who_has_gone_keeps_nobody_else_from_hearing(store: Store) -> None:
    """What it sent is kept all the same."""
    waiting = Committer(store, lambda: 5.0)

    async def all_wait() -> None:
        gone, other = (asyncio.create_task(waiting.append(upload(each), SURVEYS)) for each in (b"gone", b"other"))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        waiting.start()
        await asyncio.wait_for(other, 60)

    asyncio.run(all_wait())
    waiting.close()
    assert appended(store) == [b"gone", b"other"]


def test_nothing_is_acknowledged_when_the_database_fails(store: Store) -> None:
    """Everyone who waited hears it, nothing of theirs is kept, and the next upload goes through."""
    waiting = Committer(store, lambda: 5.0)

    def fail(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    event.listen(store._database.engine, "before_cursor_execute", fail)
    heard = submit(waiting, b"lost", b"lost too", start=True)
    assert [type(error) for error in heard] == [OperationalError] * 2
    event.remove(store._database.engine, "before_cursor_execute", fail)
    assert submit(waiting, b"kept") == [None]
    waiting.close()
    assert appended(store) == [b"kept"]


def test_a_store_whose_file_is_gone_acknowledges_nothing(tmp_path: Path) -> None:
    """SQLite would write on, into a file that has no name any more; when it is there again uploads are taken."""
    path = tmp_path / "server.db"
    store = Store.open(path)
    waiting = Committer(store, lambda: 5.0)
    waiting.start()
    path.rename(tmp_path / "moved.db")
    assert "is gone" in str(submit(waiting, b"lost"))
    assert waiting.trouble
    (tmp_path / "moved.db").rename(path)
    assert submit(waiting, b"kept") == [None]
    assert waiting.trouble is None
    waiting.close()
    assert appended(store) == [b"kept"]
    store.close()


def test_the_last_bytes_of_a_disk_are_left_to_sealing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads are turned away before it is full, so that keys are destroyed in time."""
    log = Log.of(store, survey(calendar=Calendar(0, 60, 8)), expires=600)
    waiting = Committer(store, lambda: 5.0)
    waiting.start()
    monkeypatch.setattr(database, "LEAST_FREE_BYTES", 2**60)
    (error,) = submit(waiting, b"too much")
    assert isinstance(error, Unwritable)
    assert "disk is full" in str(error)
    fold(store, 600.0 + log.survey.grace + 1)
    with store.view() as view:
        assert view.private_keys() == {}
    monkeypatch.undo()
    waiting.close()


def test_what_waits_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound an upload is turned away at once; who waits is not affected."""
    monkeypatch.setattr(ingest, "MOST_WAITING_BYTES", len(upload(b"12345678")) + 2)
    waiting = Committer(store, lambda: 5.0)
    kept, refused = submit(waiting, b"12345678", b"123", start=True)
    assert kept is None
    assert isinstance(refused, Overloaded)
    waiting.close()


def test_closing_commits_what_waits_and_the_counts_of_refusals(store: Store) -> None:
    """A graceful end loses nothing."""
    waiting = Committer(store, lambda: 5.0)
    waiting.count_refused({(bytes(16), Refusal.CLOSED): 3})
    waiting.start()

    async def close_while_it_waits() -> None:
        last = asyncio.create_task(waiting.append(upload(b"last"), SURVEYS))
        await asyncio.sleep(0)
        waiting.close()
        await asyncio.wait_for(last, 60)

    asyncio.run(close_while_it_waits())
    assert appended(store) == [b"last"]
    with store.view() as view:
        assert view.refusals(bytes(16)) == {Refusal.CLOSED: 3}
    (error,) = submit(waiting, b"too late")
    assert isinstance(error, Overloaded)
