"""Attacks on the log in segments: what was acknowledged counts once, whatever vanishes, comes back or is put there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from changeling_aggregator.errors import Overtaken, SegmentLost, Unwritable
from changeling_aggregator.fold import check, fold
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.store.catalogue import doom, frontier_of_all
from changeling_aggregator.store.compaction import TOGETHER, sweep, tidy
from changeling_aggregator.store.recovery import give_up, recover, silent_streams

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

OVER = END + 3 * GRACE


def an_upload(log: Log, node: int = 8, symbol: int = 3) -> bytes:
    return body(envelope(log.survey, log.key, [report(node, symbol)]))


def silent(log: Log) -> list[int]:
    with log.store.reading() as connection:
        return [each.stream for each in silent_streams(connection)]


def test_a_server_killed_before_its_first_journal_holds_nobody_up(log: Log, folder: Folder, clock: Clock) -> None:
    """It has told the store that it will acknowledge, and nothing else."""
    writer = without_its_thread(log.store, folder, clock)
    writer._wake(int(clock.now * 1000))
    killed(writer)
    fold(log.store, OVER)
    assert (silent(log), sealed(log)) == ([], 8)


def test_an_empty_folder_in_the_place_of_a_servers_is_not_taken_for_it(log: Log, folder: Folder, clock: Clock) -> None:
    """As where a file system is not mounted: what lies in it is waited for, and counts in time when it is back."""
    clock.now = closes(1) + GRACE - 1.0
    left_by_a_killed_server(log.store, folder, clock, an_upload(log, 1))
    hidden = folder.path.rename(folder.path.with_name("elsewhere"))
    folder.path.mkdir()
    fold(log.store, OVER)
    assert sealed(log) == 0
    with writing(log.store, folder, clock):
        pass
    fold(log.store, OVER)
    assert sealed(log) == 0
    folder.path.rename(folder.path.with_name("empty"))
    hidden.rename(folder.path)
    fold(log.store, OVER)
    assert (log.refused(), log.tallies()[0, 1][0], sealed(log)) == ({}, 1, 8)


def test_recovering_while_another_folds_leaves_what_that_writes(
    log: Log, folder: Folder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`segments recover` takes no turn: a segment that is being written anew is in no catalogue yet."""
    writer = without_its_thread(log.store, folder, clock)
    for each in range(TOGETHER):
        put(writer, clock, an_upload(log, symbol=each % 13))
        writer.flush()
    with monkeypatch.context() as untidy:
        untidy.setattr("changeling_aggregator.fold.folding.tidy_segments", lambda *_: None)
        fold(log.store, END, closing=False)
    put(writer, clock, an_upload(log))
    killed(writer)
    before, transactions = kept(log), [0]

    @contextmanager
    def turn() -> Iterator[object]:
        transactions[0] += 1
        if transactions[0] == 2:  # the new file is there, and not in the catalogue
            recover(log.store, int(clock.now * 1000))
        with log.store.writing() as connection:
            yield connection

    assert tidy(log.store, turn) == TOGETHER
    assert kept(log)[: len(before)] == before
    fold(log.store, OVER)
    assert log.tallies()[0, 8][0] == TOGETHER + 1


def test_who_has_lost_its_turn_deletes_no_file_of_who_writes_anew(log: Log, folder: Folder, clock: Clock) -> None:
    """What another writes, who has the turn by now, is doomed until the catalogue names it."""
    writer = without_its_thread(log.store, folder, clock)
    put(writer, clock, an_upload(log))
    writer.flush()
    killed(writer)
    name = "0123456789abcdef-0000000000000001-01.parquet"
    (folder.path / name).write_bytes(b"being written")
    with log.store.writing() as connection:
        doom(connection, folder.name, name)

    @contextmanager
    def lost() -> Iterator[object]:
        raise Overtaken("the connection that held the turn to fold was lost")
        yield

    with pytest.raises(Overtaken):
        tidy(log.store, lost)
    assert (folder.path / name).exists()
    tidy(log.store, log.store.writing)
    assert not (folder.path / name).exists()


def test_sweeping_leaves_what_a_server_could_not_name_for_hours(
    log: Log, folder: Folder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that the database is cut off from has acknowledged what is in a file that no catalogue names yet."""
    with writing(log.store, folder, clock) as writer:
        with monkeypatch.context() as broken:
            broken.setattr("changeling_aggregator.ingest.journaled.roll", _broken)
            put(writer, clock, an_upload(log))
            with pytest.raises(Unwritable):
                writer.flush()
        for each in folder.kept(""):
            os.utime(folder.path / each.name, (1, 1))
        sweep(log.store, 10**6)
    fold(log.store, OVER)
    assert (log.tallies()[0, 8][0], log.refused(), sealed(log)) == (1, {}, 8)


def _broken(*_: object) -> None:
    raise Unwritable("the database is away")


@pytest.mark.parametrize(("onto", "from_"), [(0, 1), (1, 0)])
def test_a_segment_in_the_place_of_another_is_told(
    log: Log, folder: Folder, clock: Clock, onto: int, from_: int
) -> None:
    """A file that was put back under another's name: nothing of it counts, and the fold does not try for ever."""
    with writing(log.store, folder, clock) as writer:
        for symbol in (3, 4):
            put(writer, clock, an_upload(log, symbol=symbol))
            writer.flush()
    files = sorted(each for each in folder.path.iterdir() if each.suffix == ".parquet")
    right = files[onto].read_bytes()
    files[onto].write_bytes(files[from_].read_bytes())
    with pytest.raises(SegmentLost, match=files[onto].name):
        fold(log.store, END, closing=False, stop=_stops_after(50))
    files[onto].write_bytes(right)
    fold(log.store, END, closing=False)
    assert log.tallies()[0, 8][0] == 2
    assert check(log.store) == []


def _stops_after(times: int) -> Callable[[], bool]:
    left = [times]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop


def test_a_server_that_was_given_up_and_lives_changes_nothing_that_is_sealed(
    log: Log, folder: Folder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it brings then arrives then: late for what is sealed, and counted once for what is not."""
    clock.now = closes(1) + 1.0
    with writing(log.store, folder, clock) as writer:
        with monkeypatch.context() as broken:
            broken.setattr("changeling_aggregator.ingest.journaled.roll", _broken)
            put(writer, clock, an_upload(log, 1))
            with pytest.raises(Unwritable):
                writer.flush()
            hidden = folder.path.rename(folder.path.with_name("elsewhere"))
            assert give_up(log.store, writer._stream)
            fold(log.store, closes(2) + GRACE + 1.0)
            assert sealed(log) == 2
            hidden.rename(folder.path)
            clock.now = closes(2) + GRACE + 2.0
        put(writer, clock, an_upload(log, 8))
        writer.flush()
    fold(log.store, OVER)
    assert (1 if (0, 1) in log.tallies() else 0, log.refused()) == (0, {"late": 1})
    assert log.tallies()[0, 8][0] == 1


def test_a_stream_given_up_while_its_server_runs_here_is_refused(log: Log, folder: Folder, clock: Clock) -> None:
    """The server holds the lock on its files: what it acknowledges would be sealed without."""
    with writing(log.store, folder, clock) as writer:
        put(writer, clock, an_upload(log))
        assert not give_up(log.store, writer._stream)
    fold(log.store, END, closing=False)
    assert log.tallies()[0, 8][0] == 1


def test_a_journal_that_is_missing_between_others_is_told(log: Log, folder: Folder, clock: Clock) -> None:
    """What lies behind it was acknowledged, and is not thrown away."""
    writer = without_its_thread(log.store, folder, clock)
    put(writer, clock, an_upload(log))
    writer._end_part()
    put(writer, clock, an_upload(log))
    killed(writer)
    first, second = sorted(each for each in folder.path.iterdir() if each.suffix == ".journal")
    hidden = first.rename(folder.path.with_name("hidden"))
    with pytest.raises((SegmentLost, Unwritable)):
        recover(log.store, int(clock.now * 1000))
    assert second.exists()
    hidden.rename(first)
    fold(log.store, OVER)
    assert (log.tallies()[0, 8][0], sealed(log)) == (2, 8)


def test_what_goes_to_a_new_journal_arrives_after_the_old_ones_end(log: Log, folder: Folder, clock: Clock) -> None:
    """A journal lost its name between two commits: the frontier passes its end, and nothing comes before that."""
    with writing(log.store, folder, clock) as writer:
        put(writer, clock, b"one")
        assert writer._journal is not None
        writer._journal.path.unlink()
        earlier = int(clock.now * 1000)
        clock.now += 5
        writer.write([b"two"], {}, earlier)
        with writer._changing:
            part, row = writer._parts[0] if writer._parts else None, writer._rows[0]
        assert part is None or row.arrival >= part.end
        with log.store.reading() as connection:
            assert (frontier_of_all(connection) or 0) <= row.arrival


@pytest.mark.heavy
@pytest.mark.timeout(1000)
def test_a_server_or_a_recovery_killed_at_any_write_loses_nothing_and_keeps_nothing_twice(
    store: Store, tmp_path: Path
) -> None:
    """For every SQL statement, commit and system call of a server with three uploads, two of them in parts that wait
    together, and of the recovery of what it leaves: SIGKILL there, then recover long after.

    All that was acknowledged is in the log once, and at most one more, which was being written; it arrived when it
    came, and nothing is waited for any more.
    """
    store.close()
    bodies = ["01", "02" * 50, "03"]
    arguments = [str(tmp_path), str(END), str(OVER), ",".join(bodies)]
    killing = [sys.executable, "-m", "tests.aggregator.journal_killer", *arguments]
    done = subprocess.run(killing, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) > 60
    for each in outcomes:
        acknowledged = each["acknowledged"]
        assert each["bodies"] in (bodies[:acknowledged], bodies[: acknowledged + 1]), each
        assert (each["frontier"], each["left"]) == (None, []), each
        assert each["latest"] < (END + 1) * 1000, each
    assert {each["acknowledged"] for each in outcomes} == {0, 1, 2, 3}
