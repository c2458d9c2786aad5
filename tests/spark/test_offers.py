"""What a query reads is what the driver offers at that moment, whatever Spark's checkpoint says; no Java runs here."""

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from changeling_spark import folding
from changeling_spark.folding import LogReader, OfferedBatch, Offers
from changeling_spark.tasks import Piece
from pyspark.sql.streaming.datasource import ReadAllAvailable

PIECES = [[Piece("/a", "1.parquet", 1, 0, 9, 100, 5, 7)], [Piece("/a", "2.parquet", 2, 3, 4, 50)]]
START = {"run": "earlier", "until": {"1": 2}}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offers]:
    monkeypatch.setattr(folding, "MOST_WAIT_SECONDS", 0.05)
    with closing(Offers()) as here:
        yield here


def latest(reader: LogReader) -> dict[str, object]:
    return reader.latestOffset(START, ReadAllAvailable())


def test_an_offer_is_read_piece_by_piece(made: Offers) -> None:
    """Its offset has the cursors after it; each of its tasks is a partition, of which a row is a piece."""
    reader = LogReader(made.path)
    made.make(OfferedBatch("now", {1: 9, 2: 4}, PIECES))
    assert not made.taken
    end = latest(reader)
    assert made.taken
    assert end == {"run": "now", "until": {"1": 9, "2": 4}}
    parts = reader.partitions(START, end)
    assert [[Piece(*row) for row in reader.read(part)] for part in parts] == PIECES


def test_without_an_offer_nothing_is_new(made: Offers) -> None:
    """Nor after one was withdrawn, or once all is closed: then nobody waits."""
    reader = LogReader(made.path)
    assert latest(reader) == START
    made.make(OfferedBatch("now", {1: 9}, PIECES))
    made.withdraw()
    assert latest(reader) == START
    assert not made.taken


def test_a_batch_of_an_earlier_life_is_empty(made: Offers) -> None:
    """Though something is offered: Spark does it again before it asks for the offer, and nothing counts by it."""
    reader = LogReader(made.path)
    made.make(OfferedBatch("now", {1: 9}, PIECES))
    assert reader.partitions(reader.initialOffset(), START) == []
    assert not made.taken


def test_its_owner_alone_can_ask(made: Offers) -> None:
    """The socket lies in a folder that nobody else can enter, and goes with it."""
    folder = Path(made.path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    made.close()
    assert not folder.exists()
