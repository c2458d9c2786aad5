"""The fold on Spark with executors in this process, which do all that Spark's do one after the other, without Java; and
a log for it to fold, beside the embedded fold."""

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from changeling_aggregator.fold import FoldReport, fold, in_turn
from changeling_aggregator.segments import Folder, place_at
from changeling_aggregator.segments.parquet import read_ids
from changeling_aggregator.store import ClosingKey, IdFile, LogRange, Store
from changeling_aggregator.testing import AFTER, counted_rows, prepared, sql
from changeling_protocol import UnixMilliseconds
from changeling_spark.runs import fold_once
from changeling_spark.tasks import BLOCKS, SparkRun, count_blocks, open_pieces


class Here:
    """most: the most blocks in a batch. then: called with each bucket's findings before they are given."""

    host = bind = "127.0.0.1"

    def __init__(self, most: int = 32, then: Callable[[int], object] = lambda _: None) -> None:
        self._most, self._then = most, then
        self.buckets: list[int] = []
        """How many closings and ids, in bytes, each bucket of the last run had."""

    def __call__(self, run: SparkRun, tasks: Sequence[Sequence[LogRange | IdFile]]) -> Iterable[bytes]:
        numbers = pa.RecordBatch.from_arrays([pa.array(range(len(tasks)))], names=["id"])
        blocks = pa.Table.from_batches(open_pieces(run, tasks, iter([numbers])), BLOCKS)
        sizes = pa.compute.binary_length(blocks["closings"]).to_numpy()
        bucket = blocks["bucket"].to_numpy()
        self.buckets = [int(sizes[bucket == at].sum()) for at in range(run.partitioner.buckets)]
        for at in range(run.partitioner.buckets):
            of_bucket = blocks.filter(pa.array(bucket == at)).combine_chunks()
            for batch in count_blocks(run, iter(of_bucket.to_batches(self._most))):
                self._then(at)
                yield from batch.column(0).to_pylist()


class OnSpark:
    """An engine of such executors. place: the shared one."""

    def __init__(self, store: Store, place: str, executors: Here | None = None) -> None:
        self.store, self.place, self.executors = store, place, executors or Here(3)

    def await_start(self) -> None:
        """Nothing is to be waited for."""

    def fold(self, now: float = AFTER, *, closing: bool = False) -> FoldReport:
        return in_turn(
            self.store, now, closing, lambda turn, until: fold_once(self.store, self.executors, self.place, until, turn)
        )

    def close(self) -> None:
        """Nothing runs."""


def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """What was counted, row by row and byte by byte, how far, and the requests that are kept for an early closing."""
    early = sql(store, "SELECT stream, position, needed_until FROM log WHERE needed_until IS NOT NULL")
    with store.view() as view:
        return {
            **counted_rows(store),
            "cursors": [each.counted for each in view.streams().values()],
            "early": sorted(early),
        }


def known_ids(store: Store) -> dict[ClosingKey, list[bytes]]:
    """All ids of closings that are not sealed, wherever they lie; each as often as it does."""
    with store.view() as view:
        packed = [(key, b"".join(view.read_run(key, run.number))) for key, runs in view.runs().items() for run in runs]
        for file in view.id_files():
            some = read_ids(place_at(file.place), file.name, view.surveys()[file.survey].sealed)
            packed += [((file.survey, period), ids) for period, ids in some]
    known: dict[ClosingKey, list[bytes]] = {}
    for key, ids in packed:
        known.setdefault(key, []).extend(ids[at : at + 16] for at in range(0, len(ids), 16))
    return {key: sorted(some) for key, some in known.items()}


class Case:
    """A store for Spark, and one for the embedded fold, with one log; and the shared place."""

    def __init__(self, folder: Path, seed: int = 3) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "ours.db"
        self.store = Store.open(self.path)
        self.log, _ = prepared(self.store, seed)
        self.store.close()
        shutil.copy(self.path, folder / "theirs.db")
        self.store, self.theirs = Store.open(self.path), Store.open(folder / "theirs.db")
        self.streams = range(1, 4)
        self.place = Folder(folder / "place", make=True)
        self._at = 0

    def append(self, requests: int = 60) -> None:
        """The next of the log, to both."""
        for at, stream, request in self.log.requests[self._at : self._at + requests]:
            for store in (self.store, self.theirs):
                store.append({self.streams[stream]: [request]}, UnixMilliseconds(int(at * 1000)))
        self._at += requests

    def command(self, master: str) -> list[str]:
        """Folds it on the cluster of this URL."""
        words = [sys.executable, "-m", "changeling_commands", "fold", "--store", str(self.path)]
        return [*words, "--engine", "spark", "--master", master, "--shared", self.place.name]

    def run(self, executors: Here | None = None) -> None:
        OnSpark(self.store, self.place.name, executors).fold()

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        """What the embedded fold comes to."""
        fold(self.theirs, AFTER, batch=7, closing=False)
        return contents(self.theirs)

    def agree(self) -> None:
        """Both come to the same."""
        assert contents(self.store) == self.expected()

    def begin(self, run: str) -> None:
        """As a run does before it writes."""
        row = {"place": self.place.name, "name": f"{run}-"}
        sql(self.store, "INSERT INTO files (place, name, kind) VALUES (:place, :name, 'run')", **row)

    def leave(self, *names: str) -> None:
        """Files in the shared place."""
        for name in names:
            (self.place.path / name).write_bytes(b"?")

    def lying(self) -> set[str]:
        return {each.name for each in self.place.list("")}

    def named(self) -> set[str]:
        with self.store.view() as view:
            return {each.name for each in view.id_files()}

    def close(self) -> None:
        self.store.close()
        self.theirs.close()
