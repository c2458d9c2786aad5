"""The log in segments, in a folder or an object store: what is acknowledged is durable and counts once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from changeling_aggregator import Overtaken, SegmentLost, Unwritable, segments
from changeling_aggregator.fold import check, fold
from changeling_aggregator.ingest import writer_for
from changeling_aggregator.segments import Folder, LoggedRequest, checked_place, place_at
from changeling_aggregator.segments.parquet import decoded, encoded, rows_after
from changeling_aggregator.store import LogRange, Store, Turn
from changeling_aggregator.store.store import OLD_SECONDS, TOGETHER
from changeling_aggregator.testing import SegmentedStore, sql
from changeling_aggregator.testing.services import small_bucket
from changeling_protocol import Refusal

from ..protocol.examples import AUTHORITY, survey
from .devices import END, GRACE, Log, body, closes, content_of, envelope, report, split, upload
from .serving import Cli


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SegmentedStore]:
    """Its log lies in a folder beside it."""
    opened = SegmentedStore.open(tmp_path / "server.db")
    yield opened
    opened.close()


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of segments."""
    if request.param == "folder":
        yield str(tmp_path / "segments")
    else:
        with small_bucket() as bucket:
            yield bucket.place


def an_upload(log: Log, symbol: int = 3) -> bytes:
    return envelope(log.survey, log.key, [report(8, symbol)])


def many(log: Log, count: int) -> None:
    for each in range(count):
        log.append(END, an_upload(log, each % 13))


def segments_in(folder: Folder) -> list[Path]:
    return sorted(folder.path.glob("*.parquet"))


@contextmanager
def turn_of(store: Store) -> Iterator[Turn]:
    with store.turn_to_fold() as turn:
        assert turn
        yield turn


# Form and places


def test_a_segment_holds_what_it_was_given_and_tells_when_it_is_damaged() -> None:
    """Each row; and of any byte that is changed in a body the checksum tells."""
    rows = [LoggedRequest(1000 + position, 7, position, bytes([position]) * 500) for position in range(3, 40)]
    content = encoded(rows)
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


@pytest.mark.parametrize("words", ["ftp://host/log", "s3://key:secret@bucket/log", "s3://bucket/log?key=1"])
def test_a_place_that_is_none_is_refused(words: str) -> None:
    """With what there is; and no credentials are taken in a name."""
    with pytest.raises(ValueError, match="s3://…, gs://…, az://…"):
        checked_place(words)


def test_a_place_keeps_files_whole_lists_and_deletes_them(place: str, tmp_path: Path) -> None:
    """A folder as an object store does; in a folder they are their owner's alone."""
    at = Folder(Path(place), make=True) if "://" not in place else place_at(place)
    for name in ("a-1", "b-2"):
        at.put(name, name.encode() * 1000)
    assert (at.get("b-2"), [each.name for each in at.list("a-", "c-")]) == (b"b-2" * 1000, ["a-1"])
    at.delete("a-1")
    at.delete("what was never there")
    assert [(each.name, each.size) for each in at.list("")] == [("b-2", 3000)]
    with pytest.raises(SegmentLost, match="a-1"):
        at.get("a-1")
    if "://" not in place:
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "segments").glob("**/*")} == {0o600}


def test_a_bucket_that_is_gone_is_named_and_credentials_are_not() -> None:
    """In words of one line."""
    for act in (lambda place: place.put("a", b"x"), lambda place: [*place.list("a")]):
        with small_bucket(), pytest.raises(Unwritable, match="s3://nobody-has-this/log") as raised:
            act(place_at("s3://nobody-has-this/log"))
        assert "secret" not in str(raised.value)
        assert "\n" not in str(raised.value)


# Writing


def test_what_was_written_is_read_in_order(store: Store, place: str) -> None:
    """Each commit a file; refusals are counted along with it; a body of several surveys is one for each of them."""
    writer = writer_for(store, place)
    writer.write(split(upload(b"one"), upload(b"two")), {}, 5)
    writer.write(split(upload(b"three", b"of another survey")), {(b"survey of 16 by.", Refusal.UNOPENABLE): 1}, 4)
    writer.write([], {}, 9)
    with store.view() as view:
        unread = view.unread(100, 2**30)
        assert [content_of(each.body) for each in unread] == [[b"one"], [b"two"], [b"three"], [b"of another survey"]]
        assert [(each.position, each.arrival) for each in unread] == [(1, 5), (2, 5), (3, 5), (4, 5)]
        assert view.refusals(b"survey of 16 by.") == {Refusal.UNOPENABLE: 1}
        assert [each.place for each in view.segments()] == [place] * 2
        assert [view.anything_taken(each) for each in (b"survey of 16 by.", bytes(16))] == [True, False]


@pytest.mark.parametrize("slow", [False, True], ids=["before", "while a file is written"])
def test_a_folder_in_the_place_of_another_is_not_written_to(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    """As where a file system is not mounted any more, perhaps since a disk was slow: once it is back it would hide what
    was acknowledged."""
    folder, hidden, write = tmp_path / "segments", tmp_path / "elsewhere", segments.write_durably
    writer = writer_for(store, str(folder))

    def unmount() -> None:
        folder.rename(hidden)
        folder.mkdir()

    def write_slowly(path: Path, content: bytes) -> None:
        unmount()
        write(path, content)

    with monkeypatch.context() as disk:
        disk.setattr(segments, "write_durably", write_slowly) if slow else unmount()
        with pytest.raises(Unwritable, match="is not the one"):
            writer.write(split(upload(b"one")), {}, 5)
    folder.rename(tmp_path / "its own")
    hidden.rename(folder)
    writer.write(split(upload(b"two")), {}, 5)
    with store.view() as view:
        assert [content_of(each.body) for each in view.unread(9, 999)] == [[b"two"]]


def test_a_new_folder_is_brought_to_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut takes the whole folder, with all that was acknowledged in it."""
    synced: list[Path] = []
    monkeypatch.setattr(segments, "sync_folder", synced.append)
    Folder(tmp_path / "new" / "segments", make=True)
    assert {tmp_path, tmp_path / "new"} == {*synced}
    Folder(tmp_path / "new" / "segments", make=True)
    assert len(synced) == 2


# Reading, and what goes


def test_arrivals_of_a_clock_that_was_ahead_are_set_back(log: Log) -> None:
    """What was appended meanwhile arrives now, what comes then later, and all of it can be read."""
    log.append(END + 10**6, an_upload(log))
    with log.store.transaction() as writing:
        writing.set_back_arrivals(END * 1000)
    log.append(END + 1, an_upload(log))
    assert [each.arrival for each in log.kept()] == [END * 1000, (END + 1) * 1000]
    fold(log.store, END + 2, closing=False)
    assert log.tallies()[0, 8][0] == 2


@pytest.mark.parametrize("killed_at", range(1, 5))
def test_a_compaction_that_is_killed_leaves_each_request_once(
    log: Log, folder: Folder, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    """Between any two of its transactions: and the next one deletes what the killed one left."""
    many(log, TOGETHER)
    with monkeypatch.context() as untidy:
        untidy.setattr(Turn, "compact", lambda _: 0)
        fold(log.store, END, closing=False)
    before, left = log.kept(), [killed_at]
    transaction = Turn.transaction

    def dying(turn: Turn) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return transaction(turn)

    with monkeypatch.context() as dies, turn_of(log.store) as turn:
        dies.setattr(Turn, "transaction", dying)
        try:
            turn.compact()
        except KeyboardInterrupt:
            assert log.kept() == before
    with turn_of(log.store) as turn:
        turn.compact()
    assert (log.kept(), len(segments_in(folder))) == (before, 1)
    assert sql(log.store, "SELECT kind FROM files") == [("segment",)]
    assert check(log.store) == []


def test_segments_go_when_the_grace_of_what_is_in_them_is_over(log: Log, folder: Folder) -> None:
    """Not before; a request with a closing that came early stays by itself until that is sealed."""
    log.append(closes(1), *(envelope(log.survey, log.key, [report(node, 3)]) for node in (1, 2)))
    log.append(closes(2) - 3, envelope(log.survey, log.key, [report(2, 4)]))
    fold(log.store, closes(2) + GRACE - 3.5)
    assert [position for _, _, position, _ in log.kept()] == [2, 3]
    assert len(segments_in(folder)) == 1
    fold(log.store, closes(2) + GRACE - 2)
    assert segments_in(folder) == []
    assert [position for _, _, position, _ in log.kept()] == [2, 3]
    assert check(log.store) == []
    fold(log.store, closes(2) + GRACE + 1)
    assert log.kept() == []


def test_files_that_no_catalogue_names_are_swept_once_they_are_old(log: Log, folder: Folder) -> None:
    """As a killed server leaves them; and no others, of whatever age."""
    many(log, 1)
    (named,) = segments_in(folder)
    stray = folder.path / f"{named.name.partition('-')[0]}-9-stray.parquet"
    for left in (stray, stray.with_name(stray.name + ".part"), folder.path / "theirs.parquet"):
        left.write_bytes(b"x")
    with turn_of(log.store) as turn:
        assert turn.sweep(time.time()) == 0
        assert turn.sweep(time.time() + 7200) == 2
    assert segments_in(folder) == sorted([named, folder.path / "theirs.parquet"])


def test_who_has_lost_its_turn_deletes_no_file_of_who_writes_anew(
    log: Log, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another writes, who has the turn by now, is garbage until the catalogue names it."""
    many(log, 1)
    written = folder.path / "0123456789abcdef-0000000000000001-01.parquet"
    written.write_bytes(b"being written")
    row = {"place": folder.name, "name": written.name}
    sql(log.store, "INSERT INTO files (place, name, kind) VALUES (:place, :name, 'garbage')", **row)

    def lost(_: Turn) -> None:
        raise Overtaken("the connection that held the turn to fold was lost")

    with turn_of(log.store) as turn:
        with monkeypatch.context() as losing:
            losing.setattr(Turn, "transaction", lost)
            with pytest.raises(Overtaken):
                turn.compact()
        assert written.exists()
        turn.compact()
    assert not written.exists()


def test_two_stores_in_one_folder_delete_nothing_of_each_other(tmp_path: Path, folder: Folder) -> None:
    """Whatever the fold of one puts in order, sweeps and deletes; what the other has is counted later."""
    first, second = logs = [Log.of(SegmentedStore.open(tmp_path / name), survey()) for name in ("1.db", "2.db")]
    for log in logs:
        many(log, TOGETHER)
    fold(first.store, END)
    assert len(segments_in(folder)) == 1 + TOGETHER
    with turn_of(first.store) as turn:
        assert turn.sweep(time.time() + 2 * OLD_SECONDS) == 0
    fold(first.store, END + GRACE + 1)
    assert first.kept() == []
    fold(second.store, END)
    assert [log.tallies()[0, 8][0] for log in logs] == [TOGETHER, TOGETHER]
    for log in logs:
        log.store.close()


CHANGED: dict[str, tuple[int, range]] = {
    "gone": (0, range(0)),
    "ends early": (0, range(1, 3)),
    "begins late": (0, range(2, 4)),
    "of later positions": (0, range(2, 5)),
    "of another stream": (1, range(1, 4)),
}
"""A file in the place of one with the positions 1 to 3: how far its stream is another, and its positions."""


@pytest.mark.parametrize(("other", "positions"), CHANGED.values(), ids=CHANGED)
def test_a_segment_that_is_lost_or_another_is_named(log: Log, folder: Folder, other: int, positions: range) -> None:
    """As where a file was put back under another's name: nothing counts in its place, here or on Spark, nothing is
    skipped in silence, and the fold tries once. Of a sound one a piece has just its positions."""
    log.append(END, *(an_upload(log, symbol) for symbol in (3, 4, 5)))
    (file,), tries = segments_in(folder), count()
    right = file.read_bytes()
    rows = [LoggedRequest(END * 1000, log.stream + other, at, body(an_upload(log))) for at in positions]
    file.write_bytes(encoded(rows)) if rows else file.unlink()
    (piece,) = ranges_of(log)
    with pytest.raises(SegmentLost, match=file.name):
        fold(log.store, END, closing=False, stop=lambda: next(tries) > 50)
    with pytest.raises(SegmentLost, match=file.name):
        list(piece.read())
    assert log.tallies() == {}
    file.write_bytes(right)
    assert [each.position for each in piece._replace(after=1, until=2).read()] == [2]
    fold(log.store, END, closing=False)
    assert log.tallies()[0, 8][0] == 3
    assert check(log.store) == []


def ranges_of(log: Log) -> list[LogRange]:
    with log.store.view() as view:
        return view.unread_ranges(2**62)


@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_line_that_the_catalogue_lost_is_told(log: Log, line: int) -> None:
    """Of the first segment, of one between, of the last: nothing after it is counted, on one machine or on Spark."""
    for symbol in (3, 4, 5):
        log.append(END, an_upload(log, symbol))
    sql(log.store, "DELETE FROM files WHERE first = :line", line=line)
    with pytest.raises(SegmentLost, match=f"position {line} "):
        fold(log.store, END, 1, closing=False)
    assert sum(reports for reports, _ in log.tallies().values()) <= line - 1
    with pytest.raises(SegmentLost, match=f"position {line} "):
        ranges_of(log)


def test_a_segment_is_kept_for_the_grace_of_the_surveys_in_it(log: Log, folder: Folder) -> None:
    """Not for that of another with a longer one; one that several are in, as where small ones became one, for the
    longest."""
    wide = log.survey.asking(question="Wide?", grace=5 * GRACE)
    with log.store.transaction() as writing:
        writing.add_survey(wide.id, wide.signed_by(AUTHORITY))
    for asked in (log.survey, wide):
        log.append(END, envelope(asked, log.key, [report(8)]))
    log.append(END, *(envelope(asked, log.key, [report(8)]) for asked in (log.survey, wide)), stream=log.stream)
    fold(log.store, END + GRACE)
    assert len(segments_in(folder)) == 3
    fold(log.store, END + GRACE + 1)
    assert len(segments_in(folder)) == 2
    for number in range(TOGETHER):
        log.append(END + GRACE + 2, envelope((log.survey, wide)[number % 2], log.key, [report(8)]), stream=log.stream)
    fold(log.store, END + 2 * GRACE + 3, closing=False)
    fold(log.store, END + 5 * GRACE)
    assert len(log.kept()) >= TOGETHER
    fold(log.store, END + 6 * GRACE + 3)
    assert log.kept() == [] == segments_in(folder)


def test_segments_are_listed_and_put_in_order_from_the_command_line(cli: Cli, tmp_path: Path) -> None:
    """On a store whose log lies in a folder."""
    store = SegmentedStore.open(tmp_path / "server.db")
    store.append({store.open_stream(None): [b"one", b"two"]}, 5000)
    store.close()
    shown = cli("segments", "list", "--store", "server.db")
    assert "  1-2  " in shown
    assert "2 to count" in shown
    assert "0 segments were written anew, 0 files" in cli("segments", "compact", "--store", "server.db")
