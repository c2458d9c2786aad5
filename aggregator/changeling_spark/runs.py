"""A run on Spark: all that the log holds by now, counted by executors, and written in one transaction.

The transaction moves the cursors by compare-and-set, adds tallies, attendance and refusals, and says which files hold
the ids from then on. So a run that is killed anywhere, repeated, or overtaken by another has changed nothing, and what
files it leaves the next one deletes.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from changeling_aggregator.errors import AggregatorError, Overtaken
from changeling_aggregator.fold import BatchCounts, FoldReport
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import IdFile, Store, Turn
from changeling_protocol import UnixMilliseconds

from .keys import KeyService
from .session import trouble_of
from .shuffle import Partitioner
from .tasks import (
    Findings,
    NumberedRun,
    Piece,
    SparkRun,
    count_blocks,
    ids_of_runs,
    moves_of,
    open_pieces,
    open_streamed,
    pieces_of,
    tasks_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET_CLOSINGS = 500_000
"""About the most closings in a bucket, with those whose ids were counted before."""
_LEAST_CLOSING_BYTES = 20
"""The fewest bytes that a closing with a report takes in an upload."""
_BLOCKS = "bucket int, survey binary, `group` int, closings binary, symbols array<binary>"


class Executors(ABC):
    """The executors of tasks. host: the address by which they reach the driver. bind: where the driver listens."""

    host: str
    bind: str

    @abstractmethod
    def __call__(self, run: SparkRun, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
        """The packed findings of all buckets, once `open_pieces` and `count_blocks` have run everywhere."""


class SparkExecutors(Executors):
    """Executors of a Spark session. batch: the log's pieces, where a query has read them; None for the tasks'."""

    def __init__(self, spark: "SparkSession", batch: "DataFrame | None" = None) -> None:
        self._spark, self._batch = spark, batch
        self.host = spark.conf.get("spark.driver.host") or "127.0.0.1"
        self.bind = spark.conf.get("spark.driver.bindAddress", self.host) or self.host

    def __call__(self, run: SparkRun, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
        """Raises SparkTrouble, or FoldOver."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            blocks = self._opened(run, tasks).repartitionById(run.partitioner.buckets, "bucket")
            rows = blocks.mapInArrow(partial(count_blocks, run), "findings binary").collect()
        except (Py4JError, PySparkException) as error:
            raise trouble_of(self._spark, "the fold on Spark", error) from None
        return [bytes(row.findings) for row in rows]

    def _opened(self, run: SparkRun, tasks: Sequence[Sequence[Piece | IdFile]]) -> "DataFrame":
        if self._batch is None:
            return self._given(run, tasks)
        streamed = self._batch.mapInArrow(partial(open_streamed, run), _BLOCKS)
        files = [task for task in tasks if isinstance(task[0], IdFile)]
        return streamed.union(self._given(run, files)) if files else streamed

    def _given(self, run: SparkRun, tasks: Sequence[Sequence[Piece | IdFile]]) -> "DataFrame":
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(partial(open_pieces, run, tasks), _BLOCKS)


def fold_once(store: Store, executors: Executors, place: str, until: UnixMilliseconds, turn: Turn) -> FoldReport:
    """Fold what arrived up to a moment, in Unix milliseconds, in one run.

    Raises SparkTrouble; Overtaken where another folder counted some of it.
    """
    return fold_through(lambda _name, _pieces, count: count(executors), store, place, until, turn)


def fold_through(
    through: Callable[[str, list[Piece], Callable[[Executors], FoldReport]], FoldReport],
    store: Store,
    place: str,
    until: UnixMilliseconds,
    turn: Turn,
) -> FoldReport:
    """As `fold_once`. through: is given the run's name, the pieces and what counts them, and calls that once."""
    at, name = place_at(place), secrets.token_hex(8)
    with store.view() as view:
        ranges = view.unread_ranges(until)
    if not ranges:
        return FoldReport()
    turn.sweep_runs()
    with turn.transaction() as writing:
        writing.begin_run(at.name, name)
    try:
        with store.view() as view:
            pieces = pieces_of(view, ranges, at, name)
        report = through(name, pieces, lambda executors: _counted(store, turn, executors, place, name, pieces))
    except _Unknown as unknown:
        raise unknown.error from None
    except BaseException:
        with suppress(AggregatorError):
            turn.remove_run(at.name, name)
        raise
    with suppress(AggregatorError):
        turn.sweep_runs(name)
    return report


class _Unknown(Exception):
    """A transaction ended with an error, and may have been kept all the same: its files stay until that is known."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _counted(store: Store, turn: Turn, executors: Executors, place: str, name: str, pieces: list[Piece]) -> FoldReport:
    """Count these pieces, in one transaction."""
    with store.view() as view:
        signed = view.signed_surveys()
        ends = {survey: end.last for survey, end in view.early_ends().items()}
        sealed = {survey: view.sealed_period(survey) for survey in signed}
        keys = view.private_keys()
        files = view.id_files()
        exported = ids_of_runs(view, place_at(place), name, signed)
    inputs = [*files, *exported]
    tasks: list[Sequence[Piece | IdFile]] = [*tasks_of(pieces), *([each] for each in inputs)]
    partitioner = Partitioner.drawn(buckets_of(pieces, inputs))
    found = Findings()
    service = KeyService(keys, executors.host, executors.bind)
    try:
        run = SparkRun(name, signed, ends, sealed, partitioner, service.source, place)
        for findings in executors(run, tasks):
            found.add(Findings.unpacked(findings))
    finally:
        service.close()
    counted = found.whole()
    try:
        _hand_over(turn, pieces, counted, found, files, exported)
    except Overtaken:
        raise
    except Exception as error:
        raise _Unknown(error) from error
    return FoldReport.of(sum(piece.until - piece.after for piece in pieces), counted)


def _hand_over(
    turn: Turn,
    pieces: list[Piece],
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
        writing.drop_runs(run for file, runs in exported.items() if file.survey not in found.failed for run in runs)


def buckets_of(pieces: Sequence[Piece], files: Sequence[IdFile]) -> int:
    """How many buckets keep each of them small, whatever the log holds."""
    closings = sum(piece.size for piece in pieces) // _LEAST_CLOSING_BYTES + sum(file.size for file in files)
    return 1 + closings // BUCKET_CLOSINGS
