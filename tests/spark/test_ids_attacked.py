"""Attacks on what the engines tell each other of ids that were counted: however they lie, none counts twice."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.folding import in_turn
from changeling_aggregator.store import Store
from changeling_spark import folding as running
from changeling_spark.folding import fold_once
from changeling_spark.shuffle import Spread
from numpy.typing import NDArray

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
    monkeypatch.setattr("changeling_spark.inputs._FILE_BYTES", file)
    chance = random.Random(5)
    batches = [[chance.randbytes(16) for _ in range(20)] for _ in range(RUNS)]
    for ids in batches:
        log.append(closing(log), *(envelope(log.survey, log.key, [report(8, id_=id_)]) for id_ in ids))
        fold(log.store, closing(log), closing=False)
    with log.store.view() as view:
        (stored,) = view.runs([(log.survey.id, 8)]).values()
    assert len(stored) == RUNS
    again = [envelope(log.survey, log.key, [report(8, id_=id_)]) for ids in batches for id_ in ids]
    for times, folds in enumerate((on_spark, on_spark, lambda log, _: fold(log.store, closing(log), closing=False)), 1):
        log.append(closing(log), *again)
        folds(log, tmp_path / "place")
        assert log.tallies()[0, 8][0] == 20 * RUNS
        assert log.refused() == {"duplicate": 20 * RUNS * times}


HALVES = [each.to_bytes(8) for each in (0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1)]


@pytest.mark.parametrize("seed", range(3))
def test_ids_that_are_alike_in_their_halves_count_once_each(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Chosen among 36 of six high and six low halves, again and again, whoever folds which part."""
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", 20)
    monkeypatch.setattr("changeling_spark.inputs._FILE_BYTES", 16 * 5)
    chance, sent = random.Random(seed), list[bytes]()
    for _ in range(8):
        ids = [chance.choice(HALVES) + chance.choice(HALVES) for _ in range(chance.choice([1, 4, 9]))]
        sent += ids
        for some in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
            log.append(closing(log), *(envelope(log.survey, log.key, [report(8, id_=id_)]) for id_ in some))
        if chance.random() < 0.5:
            on_spark(log, tmp_path / "place")
        else:
            fold(log.store, closing(log), batch=2, closing=False)
        assert log.tallies()[0, 8][0] == len(set(sent))
        assert log.refused().get("duplicate", 0) == len(sent) - len(set(sent))


def shapes(count: int) -> dict[str, tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """High and low halves of ids as somebody may choose them who does not know what a run draws."""
    rising, none = np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)
    return {
        "low halves that rise": (none, rising),
        "high halves that rise": (rising, none),
        "halves that are alike": (rising, rising),
        "halves that add up to nothing": (rising, none - rising),
        "few bits, at the top": (none, rising << np.uint64(49)),
        "squares": (rising * rising, rising),
        "a grid": (rising // np.uint64(141), rising % np.uint64(141)),
        "by the golden ratio": (none, rising * np.uint64(11400714819323198485)),
    }


@pytest.mark.parametrize("shape", shapes(1))
def test_no_shape_of_ids_fills_a_bucket(shape: str) -> None:
    """20 000 ids over 40 buckets, 100 times, with fixed seeds: no bucket has twice its share."""
    chance = random.Random(9)
    high, low = shapes(20_000)[shape]
    for _ in range(100):
        spread = Spread(40, *(chance.getrandbits(64) | 1 for _ in range(3)))
        bucket = spread.bucket(high, low, np.full(len(high), 3, np.int64))
        assert np.bincount(bucket, minlength=40).max() < 2 * len(high) / 40
