"""The log in segments: what is acknowledged is durable, counts once, and is never late because its server was gone."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from changeling_aggregator.errors import Overloaded, SegmentLost, Unwritable
from changeling_aggregator.fold import check, fold
from changeling_aggregator.segments import checked_place
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.segments.form import Row, decoded, encoded, rows_after
from changeling_aggregator.segments.journal import Journal, read_journal
from changeling_aggregator.store import Store
from changeling_aggregator.store.catalogue import doomed_files, frontier_of_all
from changeling_aggregator.store.compaction import TOGETHER, sweep, tidy
from changeling_aggregator.store.log import set_back_arrivals, stop_appending, unfolded, unread
from changeling_aggregator.store.recovery import clear_given_up, give_up, recover, silent_streams

from .devices import Log, body, envelope, report
from .journaling import (
    END,
    GRACE,
    Clock,
    closes,
    kept,
    killed,
    left_by_a_killed_server,
    put,
    sealed,
    without_its_thread,
    writing,
)


def read(store: Store) -> list[bytes]:
    with store.reading() as connection:
        return [each.body for each in unread(connection, 10**6, 2**40)]


# Form


def test_a_segment_holds_what_it_was_given_and_tells_when_it_is_damaged() -> None:
    """Each row; and of any byte that is changed in a body the checksum tells."""
    rows = [Row(position, 1000 + position, bytes([position]) * 500) for position in range(3, 40)]
    content = encoded(7, rows)
    table = decoded(content)
    assert [*rows_after(table, 0, (0, 2**62))] == rows
    assert [*rows_after(table, 20, (1030, 1035))] == [
        row._replace(arrival=min(max(row.arrival, 1030), 1035)) for row in rows if row.position > 20
    ]
    assert table["stream"].to_pylist() == [7] * len(rows)
    at = content.index(bytes([9]) * 500)
    with pytest.raises(ValueError, match="damaged"):
        decoded(content[:at] + b"\0" + content[at + 1 :])
    with pytest.raises(ValueError, match="no segment"):
        decoded(b"PAR1")


@pytest.mark.parametrize("torn", [0, 1, 15, 16, 17, 40])
def test_a_journals_torn_end_is_left_out(folder: Folder, torn: int) -> None:
    """Wherever it is torn, what was kept whole before is read."""
    journal = Journal(folder, "a", 5, 100)
    journal.append(101, [b"one", b"two" * 100])
    whole = journal.path.stat().st_size
    journal.append(102, [b"three" * 10])
    journal.close()
    os.truncate(journal.path, whole + torn)
    done = read_journal(journal.path)
    assert (done.first, done.start) == (5, 100)
    assert done.rows == [Row(5, 101, b"one"), Row(6, 101, b"two" * 100)]


@pytest.mark.parametrize("words", ["https://bucket/x", "s3://key@bucket", "s3://bucket?secret=1", "file:///tmp"])
def test_a_place_that_is_none_is_refused(words: str) -> None:
    """With what there is; and no credentials are taken in a name."""
    with pytest.raises(ValueError, match="s3://"):
        checked_place(words)


# Journals


def test_what_is_written_can_be_folded_once_it_is_flushed(log: Log, folder: Folder, clock: Clock) -> None:
    """In order; then nothing keeps anything from being sealed, and no journal is left."""
    with writing(log.store, folder, clock) as writer:
        put(writer, clock, b"one", b"two")
        put(writer, clock, b"three")
        writer.flush()
        assert read(log.store) == [b"one", b"two", b"three"]
        with log.store.reading() as connection:
            assert frontier_of_all(connection) is None
        assert [each.name for each in folder.kept("") if each.name.endswith(".journal")] == []
        put(writer, clock, b"four")
    assert read(log.store) == [b"one", b"two", b"three", b"four"]
    assert {path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {0o600}
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_nothing_is_read_before_what_a_journal_still_has(log: Log, folder: Folder, clock: Clock) -> None:
    """Of two servers the second is rolled first: its requests wait for those of the first, that came before."""
    first = left_by_a_killed_server(log.store, folder, clock, b"first")
    clock.now += 1
    with writing(log.store, folder, clock) as second:
        put(second, clock, b"second")
        second.flush()
        assert (read(log.store), unfolded_of(log.store)) == ([], 1)
        assert [each.stream for each in recover(log.store, int(clock.now * 1000))] == [first._stream]
        assert read(log.store) == [b"first", b"second"]
        assert recover(log.store, int(clock.now * 1000)) == []
    assert [each.name for each in folder.kept("") if not each.name.endswith(".parquet")] == []


def test_a_server_that_lives_keeps_its_journal(log: Log, folder: Folder, clock: Clock) -> None:
    """Nobody else makes a segment of it, and nothing is sealed meanwhile."""
    with writing(log.store, folder, clock) as writer:
        put(writer, clock, b"one")
        assert recover(log.store, int(clock.now * 1000)) == []
        with log.store.reading() as connection:
            assert [each.stream for each in silent_streams(connection)] == [writer._stream]


def test_what_was_acknowledged_in_time_counts_though_its_server_was_gone(
    log: Log, folder: Folder, clock: Clock
) -> None:
    """A journal that is recovered long after the grace has ended: nothing was sealed without it, and it is not late."""
    clock.now = closes(1) + GRACE - 1.0
    left_by_a_killed_server(log.store, folder, clock, body(envelope(log.survey, log.key, [report(1, 3)])))
    hidden = folder.path.rename(folder.path.with_name("elsewhere"))
    fold(log.store, END + 3 * GRACE)
    assert sealed(log) == 0
    hidden.rename(folder.path)
    fold(log.store, END + 3 * GRACE)
    assert (log.refused(), log.tallies()[0, 1][0], sealed(log)) == ({}, 1, 8)


def test_a_folder_that_is_lost_is_given_up(log: Log, folder: Folder, clock: Clock) -> None:
    """By who says so: then closings are sealed with what the store knows."""
    stream = left_by_a_killed_server(log.store, folder, clock, b"lost")._stream
    folder.path.rename(folder.path.with_name("elsewhere"))
    assert not give_up(log.store, stream + 1)
    assert give_up(log.store, stream)
    fold(log.store, END + 3 * GRACE)
    assert sealed(log) == 8


def test_what_a_stream_left_that_was_given_up_goes_once_its_folder_is_back(
    log: Log, folder: Folder, clock: Clock
) -> None:
    """Its journal and its lock; not those of a server that runs, at rest or not, nor of one that is waited for."""
    lost = left_by_a_killed_server(log.store, folder, clock, b"lost")
    elsewhere = folder.path.rename(folder.path.with_name("elsewhere"))
    assert clear_given_up(log.store) == 0
    assert give_up(log.store, lost._stream)
    assert clear_given_up(log.store) == 0
    elsewhere.rename(folder.path)
    left_by_a_killed_server(log.store, folder, clock, b"waited for")
    resting, busy = (without_its_thread(log.store, folder, clock) for _ in range(2))
    put(resting, clock, b"counted")
    resting.flush()
    put(busy, clock, b"journaled")
    before = {each.name for each in folder.kept("")}
    assert (clear_given_up(log.store), clear_given_up(log.store)) == (2, 0)
    gone = before - {each.name for each in folder.kept("")}
    assert gone == {f"{lost._files}.lock", f"{lost._files}-{1:016d}.journal"}
    put(resting, clock, b"as before")
    for server in (resting, busy):
        server.close()
    recover(log.store, int(clock.now * 1000))
    assert sorted(read(log.store)) == [b"as before", b"counted", b"journaled", b"waited for"]


def test_a_write_that_failed_is_not_put_in_the_place_of_what_came_after(
    log: Log, folder: Folder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes lie whole in a journal, with positions that were given out again; the acknowledged ones count."""
    writer = without_its_thread(log.store, folder, clock)
    put(writer, clock, b"one")
    syncing = os.fdatasync

    def fail(file: int) -> None:
        syncing(file)
        raise OSError(5, "the disk broke")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        with pytest.raises(Unwritable, match="the disk broke"):
            put(writer, clock, b"never acknowledged")
    put(writer, clock, b"two", b"three")
    assert len([each for each in folder.kept("") if each.name.endswith(".journal")]) == 2
    killed(writer)
    assert len(recover(log.store, int(clock.now * 1000))) == 1
    assert read(log.store) == [b"one", b"two", b"three"]


def test_arrivals_of_a_clock_that_was_ahead_are_set_back(log: Log, folder: Folder, clock: Clock) -> None:
    """What was journaled meanwhile arrives now, what comes then later, and all of it can be read."""
    right = clock.now
    with writing(log.store, folder, clock) as writer:
        clock.now = right + 10**6
        put(writer, clock, b"one")
        with log.store.writing() as connection:
            stop_appending(connection)
            set_back_arrivals(connection, int(right * 1000))
        clock.now = right + 1
        writer.flush()
        put(writer, clock, b"two")
        writer.flush()
        clock.now = right + 2
        put(writer, clock, b"three")
    with log.store.reading() as connection:
        arrivals = [(each.body, each.arrival) for each in unread(connection, 9, 2**20)]
    assert [each for each, _ in arrivals] == [b"one", b"two", b"three"]
    assert all(right * 1000 <= arrival <= (right + 2) * 1000 for _, arrival in arrivals)


def test_uploads_are_acknowledged_while_segments_cannot_be_written_and_no_more_than_memory_holds(
    log: Log, folder: Folder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in journals; what is too much is turned away; all of it counts once segments can be written again."""
    monkeypatch.setattr("changeling_aggregator.ingest.journaled.MOST_UNROLLED_BYTES", 3000)
    with writing(log.store, folder, clock) as writer:
        with monkeypatch.context() as broken:
            broken.setattr(Folder, "put", _unwritable)
            put(writer, clock, b"a" * 2000)
            with pytest.raises(Unwritable):
                writer.flush()
            put(writer, clock, b"b" * 2000)
            with pytest.raises(Overloaded):
                put(writer, clock, b"c")
        writer.flush()
        put(writer, clock, b"d")
    assert [each[:1] for each in read(log.store)] == [b"a", b"b", b"d"]


def _unwritable(*_: object) -> None:
    raise Unwritable("broken")


# Compaction, and what goes


def many(log: Log, folder: Folder, clock: Clock, count: int) -> None:
    with writing(log.store, folder, clock) as writer:
        for each in range(count):
            put(writer, clock, body(envelope(log.survey, log.key, [report(8, each % 13)])))
            writer.flush()


def files(folder: Folder) -> int:
    return len([each for each in folder.kept("") if each.name.endswith(".parquet")])


def test_small_segments_become_one_with_all_that_was_in_them(log: Log, folder: Folder, clock: Clock) -> None:
    """By the fold that counted them; it comes to the same when it is folded again; arrivals stay as they were."""
    many(log, folder, clock, TOGETHER + 3)
    before = kept(log)
    fold(log.store, END, closing=False)
    assert files(folder) == 4
    assert [request[:3] for request in kept(log)] == [request[:3] for request in before]
    assert check(log.store) == []
    assert log.tallies()[0, 8][0] == TOGETHER + 3


@pytest.mark.parametrize("killed_at", range(1, 5))
def test_a_compaction_that_is_killed_leaves_each_request_once(
    log: Log, folder: Folder, clock: Clock, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    """Between any two of its transactions: and the next one deletes what the killed one left."""
    many(log, folder, clock, TOGETHER)
    with monkeypatch.context() as untidy:
        untidy.setattr("changeling_aggregator.fold.folding.tidy_segments", lambda *_: None)
        fold(log.store, END, closing=False)
    before, left = kept(log), [killed_at]

    @contextmanager
    def dying() -> Iterator[object]:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        with log.store.writing() as connection:
            yield connection

    try:
        tidy(log.store, dying)
    except KeyboardInterrupt:
        assert kept(log) == before
    tidy(log.store, log.store.writing)
    assert (kept(log), files(folder)) == (before, 1)
    with log.store.reading() as connection:
        assert doomed_files(connection) == []
    assert check(log.store) == []


def test_segments_go_when_the_grace_of_what_is_in_them_is_over(log: Log, folder: Folder, clock: Clock) -> None:
    """Not before; what is held for a closing that came early stays until that is sealed."""
    clock.now = closes(1)
    with writing(log.store, folder, clock) as writer:
        put(writer, clock, body(envelope(log.survey, log.key, [report(1, 3)])))
        put(writer, clock, body(envelope(log.survey, log.key, [report(2, 3)])))
        clock.now = closes(2) - 3
        put(writer, clock, body(envelope(log.survey, log.key, [report(2, 4)])))
    fold(log.store, closes(2) + GRACE - 3.5)
    assert len(kept(log)) == 3
    fold(log.store, closes(2) + GRACE - 2)
    assert [position for _, _, position, _ in kept(log)] == [2, 3]
    assert check(log.store) == []
    fold(log.store, closes(2) + GRACE + 1)
    assert (kept(log), files(folder)) == ([], 0)


def test_files_that_no_catalogue_names_are_swept_once_they_are_old(log: Log, folder: Folder, clock: Clock) -> None:
    """And no others, of whatever age."""
    many(log, folder, clock, 1)
    (name,) = (each.name for each in folder.kept("") if each.name.endswith(".parquet"))
    stray = folder.path / f"{name.partition('-')[0]}-9-stray.parquet"
    stray.write_bytes(b"x")
    (folder.path / "theirs.parquet").write_bytes(b"x")
    assert sweep(log.store, time.time()) == 0
    assert sweep(log.store, time.time() + 7200) == 1
    assert {each.name for each in folder.kept("")} == {name, "theirs.parquet"}


def test_a_segment_that_is_lost_is_named(log: Log, folder: Folder, clock: Clock) -> None:
    """The fold stops before it, and counts nothing in its place."""
    many(log, folder, clock, 1)
    (file,) = (each for each in folder.path.iterdir() if each.name.endswith(".parquet"))
    file.unlink()
    with pytest.raises(SegmentLost, match=file.name):
        fold(log.store, END, closing=False)
    assert log.tallies() == {}


def unfolded_of(store: Store) -> int:
    with store.reading() as connection:
        return unfolded(connection)
