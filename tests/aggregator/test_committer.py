"""Group commit: who waits together shares a commit; who is acknowledged is on disk."""

import pytest
from changeling_aggregator.errors import Overloaded
from changeling_aggregator.ingest import Committer, committer
from changeling_aggregator.store import Store
from changeling_aggregator.store.counted import refusals_of
from changeling_protocol.refusal import Refusal
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from .refolding import whole_log


def appended(store: Store) -> list[bytes]:
    with store.reading() as connection:
        return [entry.envelope for entry in whole_log(connection)]


def test_uploads_that_wait_together_share_a_commit(store: Store) -> None:
    """A hundred of them, one transaction, one arrival, in the order of submission."""
    waiting = Committer(store, lambda: 5.0)
    futures = [waiting.submit([bytes([number])]) for number in range(100)]
    commits: list[object] = []
    event.listen(store.engine, "commit", commits.append)
    waiting.start()
    for future in futures:
        future.result(timeout=10)
    assert len(commits) == 1
    waiting.close()
    assert appended(store) == [bytes([number]) for number in range(100)]


def test_nothing_is_acknowledged_when_the_database_fails(store: Store) -> None:
    """Everyone who waited hears it, nothing of theirs is kept, and the next upload goes through."""
    waiting = Committer(store, lambda: 5.0)
    futures = [waiting.submit([b"lost"]), waiting.submit([b"lost too"])]

    def fail(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    event.listen(store.engine, "before_cursor_execute", fail)
    waiting.start()
    for future in futures:
        with pytest.raises(OperationalError):
            future.result(timeout=10)
    event.remove(store.engine, "before_cursor_execute", fail)
    waiting.submit([b"kept"]).result(timeout=10)
    waiting.close()
    assert appended(store) == [b"kept"]


def test_what_waits_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound an upload is turned away at once; who waits is not affected."""
    monkeypatch.setattr(committer, "MOST_WAITING_BYTES", 10)
    waiting = Committer(store, lambda: 5.0)
    kept = waiting.submit([b"12345678"])
    with pytest.raises(Overloaded):
        waiting.submit([b"123"])
    waiting.start()
    kept.result(timeout=10)
    waiting.close()


def test_closing_commits_what_waits_and_the_counts_of_refusals(store: Store) -> None:
    """A graceful end loses nothing."""
    waiting = Committer(store, lambda: 5.0)
    waiting.count_refused({(bytes(16), Refusal.CLOSED): 3})
    future = waiting.submit([b"last"])
    waiting.start()
    waiting.close()
    assert future.done()
    assert appended(store) == [b"last"]
    with store.reading() as connection:
        assert refusals_of(connection, bytes(16)) == {Refusal.CLOSED: 3}
    with pytest.raises(Overloaded):
        waiting.submit([b"too late"])
