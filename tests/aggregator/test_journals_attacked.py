"""Attacks on journals: each byte changed, cut at each byte, put back from before, two recoveries at once."""

import logging
from typing import Any

import pytest
from changeling_aggregator.errors import SegmentLost
from changeling_aggregator.fold import fold
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.segments.form import Row
from changeling_aggregator.segments.journal import Journal, read_journal
from changeling_aggregator.store import recovery
from changeling_aggregator.store.recovery import Silent, recover, silent_streams
from changeling_aggregator.store.rolling import Written

from .devices import Log, body, envelope, report
from .journaling import END, GRACE, Clock, killed, left_by_a_killed_server, put, without_its_thread

HEAD = 24


def upload(log: Log) -> bytes:
    return body(envelope(log.survey, log.key, [report(8)]))


def test_no_byte_of_a_journal_changes_in_silence(folder: Folder) -> None:
    """Each bit of each in turn: all is read as it was, or what is not read is told; never is a row another one.

    The least arrival that the head names may be an earlier one, which changes nothing.
    """
    journal = Journal(folder, "a", 5, 100)
    journal.append(101, [b"one", b"two" * 9])
    journal.append(102, [b"three"])
    journal.close()
    content = journal.path.read_bytes()
    rows = [Row(5, 101, b"one"), Row(6, 101, b"two" * 9), Row(7, 102, b"three")]
    assert read_journal(journal.path) == (5, 100, rows, 0)
    for at in range(len(content)):
        for bit in range(8):
            journal.path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            try:
                read = read_journal(journal.path)
            except SegmentLost:
                assert at < HEAD
                continue
            assert read.rows == rows[: len(read.rows)]
            assert (read.torn > 0) == (len(read.rows) < len(rows))
            assert read.first == 5
            assert read.start <= 101
    for end in range(len(content)):
        journal.path.write_bytes(content[:end])
        read = read_journal(journal.path)
        assert read.rows == rows[: len(read.rows)]


def test_a_journal_with_a_damaged_head_keeps_no_other_stream_waiting(log: Log, folder: Folder, clock: Clock) -> None:
    """It is named, and stays; what other servers left is recovered; with the head put right all of it counts."""
    writers = [left_by_a_killed_server(log.store, folder, clock, upload(log)) for _ in range(3)]
    journal = writers[0]._journal
    assert journal is not None
    right = journal.path.read_bytes()
    journal.path.write_bytes(bytes(8) + right[8:])
    with pytest.raises(SegmentLost, match="damaged at its beginning"):
        recover(log.store, int(clock.now * 1000))
    with log.store.reading() as connection:
        assert [each.stream for each in silent_streams(connection)] == [writers[0]._stream]
    assert journal.path.exists()
    journal.path.write_bytes(right)
    fold(log.store, END, closing=False)
    assert (log.tallies()[0, 8][0], log.refused()) == (3, {})


def test_what_cannot_be_read_at_a_journals_end_is_told(
    log: Log, folder: Folder, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """How much it is, and where it was."""
    writer = left_by_a_killed_server(log.store, folder, clock, upload(log))
    assert writer._journal is not None
    with writer._journal.path.open("ab") as file:
        file.write(b"torn")
    with caplog.at_level(logging.WARNING, "changeling"):
        recover(log.store, int(clock.now * 1000))
    assert [each.bytes for each in caplog.records if hasattr(each, "bytes")] == [4]


def test_a_journal_that_is_put_back_counts_nothing_again(log: Log, folder: Folder, clock: Clock) -> None:
    """From before it became a segment, with others behind it, as a folder is that was restored: by its own server's
    recovery, and by one that comes when nothing is waited for."""
    writer = without_its_thread(log.store, folder, clock)
    put(writer, clock, upload(log))
    assert writer._journal is not None
    path, content = writer._journal.path, writer._journal.path.read_bytes()
    writer.flush()
    put(writer, clock, upload(log))
    path.write_bytes(content)
    killed(writer)
    fold(log.store, END, closing=False)
    assert (log.tallies()[0, 8][0], log.refused()) == (2, {})
    path.write_bytes(content)
    fold(log.store, END, closing=False)
    fold(log.store, END + 3 * GRACE)
    assert (log.tallies()[0, 8][0], log.refused()) == (2, {})


def test_two_recoveries_at_once_bring_each_upload_once(
    log: Log, folder: Folder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the first has a segment written and not named: it leaves it alone."""
    left_by_a_killed_server(log.store, folder, clock, upload(log), upload(log))
    write_segment, second = recovery.write_segment, list[list[Silent]]()

    def written(*arguments: Any) -> Written:
        done = write_segment(*arguments)
        second.append(recover(log.store, int(clock.now * 1000)))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "write_segment", written)
        assert len(recover(log.store, int(clock.now * 1000))) == 1
    assert second == [[]]
    assert recover(log.store, int(clock.now * 1000)) == []
    fold(log.store, END, closing=False)
    assert log.tallies()[0, 8][0] == 2
