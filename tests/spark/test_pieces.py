"""The pieces of the log that a run reads, from segments in the catalogue as from rows of the database."""

from dataclasses import replace
from pathlib import Path

import pytest
from changeling_aggregator.errors import SegmentLost
from changeling_aggregator.fold.folding import fold_batch
from changeling_aggregator.segments import Folder
from changeling_aggregator.segments.parquet import Row, encoded
from changeling_aggregator.store import Segment, Store
from changeling_spark.folding import fold_once
from changeling_spark.inputs import Piece, batches_of, moves_of, tasks_of

from .here import Here
from .hostile_log import AFTER, contents, prepared


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "segments", make=True)


def piece(folder: Folder, after: int, until: int, rows: range | None = None, stream: int = 1) -> Piece:
    """Of a segment with these rows; from 1 to 9 unless told."""
    name = f"{stream}-{after}.parquet"
    content = encoded(stream, [Row(position, 1000 + position, b"%d" % position) for position in rows or range(1, 10)])
    folder.put(name, content)
    return Piece(folder.name, name, stream, after, until, len(content))


def test_a_piece_has_just_its_positions(folder: Folder) -> None:
    """Of a segment that holds more, before and after."""
    assert [each.position for each in piece(folder, 3, 6).read()] == [4, 5, 6]


@pytest.mark.parametrize("rows", [range(1, 5), range(5, 9)], ids=["ends early", "begins late"])
def test_a_segment_that_lacks_a_position_is_no_fold(folder: Folder, rows: range) -> None:
    """Nothing is skipped in silence."""
    with pytest.raises(ValueError, match="position"):
        list(piece(folder, 3, 6, rows).read())


def test_a_segment_of_another_stream_is_no_fold(folder: Folder) -> None:
    """Though it holds the positions that are asked for: nobody counts a file twice that lies under two names."""
    other = piece(folder, 3, 6, stream=2)
    with pytest.raises(ValueError, match=r"others than positions .* of stream 1"):
        list(replace(other, stream=1).read())


def test_a_segment_that_is_gone_is_named(folder: Folder) -> None:
    """As it is for the embedded fold."""
    gone = piece(folder, 3, 6)
    folder.remove(gone.name)
    with pytest.raises(SegmentLost, match=gone.name):
        list(gone.read())


def test_arrivals_count_as_the_catalogue_says(folder: Folder) -> None:
    """No earlier and no later."""
    whole = piece(folder, 0, 9)
    cut = Piece(whole.place, whole.name, 1, 0, 9, whole.size, 1003, 1005)
    assert [each.arrival for each in cut.read()] == [1003] * 3 + [1004] + [1005] * 5


def test_batches_keep_to_one_stream_and_tasks_to_their_order(folder: Folder) -> None:
    """Several pieces of a stream are one batch; cursors move over all of them."""
    pieces = [piece(folder, 0, 9, stream=2), piece(folder, 4, 9), piece(folder, 0, 4)]
    (task,) = tasks_of(pieces)
    batches = [[(each.stream, each.position) for each in batch] for batch in batches_of(task)]
    assert batches == [[(1, at) for at in range(1, 10)], [(2, at) for at in range(1, 10)]]
    assert moves_of(pieces) == {1: (0, 9), 2: (0, 9)}


def test_a_log_in_segments_is_folded_as_one_in_rows(tmp_path: Path, folder: Folder) -> None:
    """By both engines."""
    found = []
    for name in ("spark", "embedded"):
        store = Store.open(tmp_path / f"{name}.db")
        log, _ = prepared(store)
        with store.transaction() as writing:
            numbers = [writing.open_stream(None, folder.name, f"{name}{each}") for each in range(3)]
            for place, stream in enumerate(numbers):
                rows = [(int(at * 1000), body) for at, of, body in log.requests if of == place]
                for first in range(0, len(rows), 4):
                    some = [Row(first + at + 1, *row) for at, row in enumerate(rows[first : first + 4])]
                    content = encoded(stream, some)
                    file = f"{name}-{stream}-{first}.parquet"
                    folder.put(file, content)
                    span = some[0].arrival, some[-1].arrival
                    last = some[-1].position
                    assert writing.add_segment(Segment(stream, first + 1, last, *span, folder.name, file, len(content)))
        if name == "spark":
            (tmp_path / "shared").mkdir()
            shared = str(tmp_path / "shared")
            fold_once(store, Here(), shared, AFTER, store.writing)
        else:
            fold_batch(store)
        found.append(contents(store))
        store.close()
    ours, theirs = found
    assert ours == theirs
    assert sum(row[1] for row in ours["cursors"]) == 60
    assert ours["tallies"]
