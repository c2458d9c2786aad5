"""A run on Spark: all that the log holds by now, counted by executors, and written in one transaction.

The transaction moves the cursors by compare-and-set, adds tallies, attendance and refusals, and says which files hold
the ids from then on. So a run that is killed anywhere, repeated, or overtaken by another has changed nothing, and what
files it leaves the next one deletes. `--follow` does one after the other in the same session.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from time import sleep
from typing import TYPE_CHECKING

from changeling_aggregator.fold import BatchCounts, EngineOptions, FoldReport, in_turn
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import IdFile, LogRange, Store, Turn
from changeling_protocol import UnixMilliseconds, UnixSeconds

from .session import KeyService, SparkTrouble, end_java, is_stopped, see_alive, session, trouble_of
from .tasks import (
    Findings,
    NumberedRun,
    Partitioner,
    SparkRun,
    count_blocks,
    ids_of_runs,
    moves_of,
    open_pieces,
    pieces_of,
    tasks_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET_CLOSINGS = 500_000
"""About the most closings in a bucket, with those whose ids were counted before."""
_LEAST_CLOSING_BYTES = 20
"""The fewest bytes that a closing with a report takes in an upload."""
_BLOCKS = "bucket int, survey binary, `group` int, closings binary, symbols array<binary>"


class SparkExecutors:
    """The executors of a Spark session. host: the address by which they reach the driver. bind: where that listens."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self.host = spark.conf.get("spark.driver.host") or "127.0.0.1"
        self.bind = spark.conf.get("spark.driver.bindAddress", self.host) or self.host

    def __call__(self, run: SparkRun, tasks: Sequence[Sequence[LogRange | IdFile]]) -> Iterable[bytes]:
        """The packed findings of all buckets, once `open_pieces` and `count_blocks` have run everywhere.

        Raises SparkTrouble, or FoldOver.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            numbers = self._spark.range(0, len(tasks), 1, len(tasks))
            opened = numbers.mapInArrow(partial(open_pieces, run, tasks), _BLOCKS)
            blocks = opened.repartitionById(run.partitioner.buckets, "bucket")
            rows = blocks.mapInArrow(partial(count_blocks, run), "findings binary").collect()
        except (Py4JError, PySparkException) as error:
            raise trouble_of(self._spark, error) from None
        return [bytes(row.findings) for row in rows]


def fold_once(store: Store, executors: SparkExecutors, place: str, until: UnixMilliseconds, turn: Turn) -> FoldReport:
    """Fold what arrived up to a moment, in Unix milliseconds, in one run.

    Raises SparkTrouble; Overtaken where another folder counted some of it.
    """
    at, name = place_at(place), secrets.token_hex(8)
    with store.view() as view:
        ranges = view.unread_ranges(until)
    if not ranges:
        return FoldReport()
    with turn.run(at.name, name):
        with store.view() as view:
            pieces = pieces_of(view, ranges, at, name)
        return _counted(store, turn, executors, place, name, pieces)


def _counted(
    store: Store, turn: Turn, executors: SparkExecutors, place: str, name: str, pieces: list[LogRange]
) -> FoldReport:
    """Count these pieces, in one transaction."""
    with store.view() as view:
        surveys, keys, files = view.surveys(), view.private_keys(), view.id_files()
        exported = ids_of_runs(view, place_at(place), name)
    inputs = [*files, *exported]
    tasks: list[Sequence[LogRange | IdFile]] = [*tasks_of(pieces), *([each] for each in inputs)]
    partitioner = Partitioner.drawn(buckets_of(pieces, inputs))
    found = Findings()
    service = KeyService(keys, executors.host, executors.bind)
    try:
        run = SparkRun(name, surveys, partitioner, service.source, place)
        for findings in executors(run, tasks):
            found.add(Findings.unpacked(findings))
    finally:
        service.close()
    counted = found.whole()
    _hand_over(turn, pieces, counted, found, files, exported)
    return FoldReport.of(sum(piece.until - piece.after for piece in pieces), counted)


def _hand_over(
    turn: Turn,
    pieces: list[LogRange],
    counted: BatchCounts,
    found: Findings,
    files: list[IdFile],
    exported: Mapping[IdFile, list[NumberedRun]],
) -> None:
    """Write what was counted, and which files hold the ids from then on; of a survey that failed they stay."""
    with turn.transaction() as writing:
        counted.write(writing, moves_of(pieces))
        writing.replace_id_files(
            [file for file in files if file.survey not in found.failed],
            [file for file in found.files if file.survey not in found.failed],
        )
        writing.replace_runs(run for file, runs in exported.items() if file.survey not in found.failed for run in runs)


def buckets_of(pieces: Sequence[LogRange], files: Sequence[IdFile]) -> int:
    """How many buckets keep each of them small, whatever the log holds."""
    closings = sum(piece.size for piece in pieces) // _LEAST_CLOSING_BYTES + sum(file.size for file in files)
    return 1 + closings // BUCKET_CLOSINGS


_ENDED = "the fold on Spark has ended"


class SparkFold:
    """Folds a store on a Spark cluster, as `fold.FoldProcess` does in a process.

    options.shared: where its files lie, as `checked_place` gives it. The session lasts from the first fold until
    `close`, or until Spark ends it by itself; then the next fold has another.
    """

    def __init__(self, store: Store, options: EngineOptions) -> None:
        self._store, self._options = store, options
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self._starts = self._closed = False

    def await_start(self) -> None:
        """Start the session where there is none. Raises SparkTrouble, FoldOver where its Java process has died."""
        if self._closed:
            raise SparkTrouble(_ENDED)
        if self._spark is not None:
            see_alive(self._spark)
            return
        self._starts = True
        try:
            self._spark = self._stack.enter_context(session(self._options))
        finally:
            self._starts = False

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        """As `fold.fold`. Call `await_start` before.

        Raises SparkTrouble, FoldOver where Spark's Java process has died, and what the store and the place raise.
        """
        self.await_start()
        try:
            return in_turn(self._store, now, closing, self._count)
        except SparkTrouble:
            if self._spark is not None and is_stopped(self._spark):
                self._end()  # the next fold has a session of its own
            raise

    def turn_to(self, store: Store) -> None:
        """Fold another store from now on, in the same session."""
        self._store = store

    def close(self) -> None:
        """End the session, and what runs in it."""
        self._closed = True
        while self._starts:  # Spark waits a minute for a master that does not answer
            end_java()
            sleep(0.1)
        self._end()

    def _end(self) -> None:
        self._spark = None
        self._stack.close()

    def _count(self, turn: Turn, until: UnixMilliseconds) -> FoldReport:
        spark = self._spark
        if spark is None or self._closed:
            raise SparkTrouble(_ENDED)
        return fold_once(self._store, SparkExecutors(spark), self._options.shared, until, turn)
