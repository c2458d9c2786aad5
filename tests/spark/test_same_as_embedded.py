"""What the fold on Spark comes to is, byte by byte, what the embedded fold comes to; its tasks run in this process."""

import shutil
from pathlib import Path

import pytest
from changeling_aggregator.fold import fold
from changeling_aggregator.fold.folding import in_turn
from changeling_aggregator.spark import running
from changeling_aggregator.spark.folding import fold_once
from changeling_aggregator.store import Store

from .here import Here
from .hostile_log import AFTER, HostileLog, contents, prepared


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "place").mkdir()
    return str(tmp_path / "place")


def spark_fold(store: Store, now: float, place: str, *, closing: bool = False) -> None:
    in_turn(store, now, closing, lambda writing: fold_once(store, Here(), place, writing))


@pytest.fixture(params=[1, 300], ids=["one bucket", "many buckets"])
def buckets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BUCKET_CLOSINGS", 10**9 if request.param == 1 else 50)


@pytest.mark.usefixtures("buckets")
@pytest.mark.parametrize("seed", [3, 4])
def test_one_run_is_as_the_embedded_fold(tmp_path: Path, place: str, seed: int) -> None:
    """Tallies, attendance, refusals, cursors, and what is held: with duplicates, late, early, malformed and foreign."""
    store = Store.open(tmp_path / "server.db")
    log, streams = prepared(store)
    log = HostileLog.made(_key(store), seed) if seed != 3 else log
    log.append_to(store, streams)
    store.close()
    shutil.copy(tmp_path / "server.db", tmp_path / "other.db")
    ours, theirs = Store.open(tmp_path / "server.db"), Store.open(tmp_path / "other.db")
    spark_fold(ours, AFTER, place)
    fold(theirs, AFTER, batch=7, closing=False)
    assert contents(ours) == contents(theirs)
    assert {row[1] for row in contents(ours)["refusals"]} >= {"duplicate", "late", "future", "malformed", "unopenable"}
    assert contents(ours)["held"]
    ours.close()
    theirs.close()


def _key(store: Store) -> object:
    from changeling_aggregator.store.sealing_keys import published_keys

    with store.reading() as connection:
        return next(iter(published_keys(connection).values())).key
