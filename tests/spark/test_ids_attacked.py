"""Attacks on what the engines tell each other of ids that were counted: however they lie, none counts twice."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.folding import in_turn
from changeling_aggregator.spark import running
from changeling_aggregator.spark.folding import fold_once
from changeling_aggregator.store import Store
from changeling_aggregator.store.runs import runs_of

from ..aggregator.devices import Log, envelope, report
from ..protocol.examples import survey
from .here import Here

RUNS = 6


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    store = Store.open(tmp_path / "server.db")
    yield Log.of(store, survey())
    store.close()


def closing(log: Log) -> float:
    return float(log.survey.calendar.time(log.survey.calendar.periods))


def on_spark(log: Log, place: Path) -> None:
    place.mkdir(exist_ok=True)
    at = closing(log)
    in_turn(log.store, at, False, lambda writing: fold_once(log.store, Here(), str(place), at, writing))


@pytest.mark.parametrize(("bucket", "file"), [(10**9, 10**9), (100, 10**9), (10**9, 16 * 20), (10**9, 16 * 45)])
def test_a_closing_with_many_runs_is_known_to_spark_whole(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: int, file: int
) -> None:
    """Runs lie behind one another in the files that executors read, each sorted by itself: of all that is sent again
    nothing counts, on Spark or, after that, here; whether a file ends with a run, or between two."""
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", bucket)
    monkeypatch.setattr("changeling_aggregator.spark.ids_of_runs._FILE_BYTES", file)
    chance = random.Random(5)
    batches = [[chance.randbytes(16) for _ in range(20)] for _ in range(RUNS)]
    for ids in batches:
        log.append(closing(log), *(envelope(log.survey, log.key, [report(8, id_=id_)]) for id_ in ids))
        fold(log.store, closing(log), closing=False)
    with log.store.reading() as connection:
        (stored,) = runs_of(connection, [(log.survey.id, 8)]).values()
    assert len(stored) == RUNS
    again = [envelope(log.survey, log.key, [report(8, id_=id_)]) for ids in batches for id_ in ids]
    for times, folds in enumerate((on_spark, on_spark, lambda log, _: fold(log.store, closing(log), closing=False)), 1):
        log.append(closing(log), *again)
        folds(log, tmp_path / "place")
        assert log.tallies()[0, 8][0] == 20 * RUNS
        assert log.refused() == {"duplicate": 20 * RUNS * times}
