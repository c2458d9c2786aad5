"""Driving the fold on Spark over a store: all that the log holds by now in one run, and one transaction.

The transaction moves the cursors by compare-and-set, adds tallies, attendance and refusals, and says which files hold
the ids from then on. So a run that is killed anywhere, repeated, or overtaken by another has changed nothing, and what
files it leaves the next one deletes.
"""

import secrets
from collections.abc import Callable
from contextlib import ExitStack, suppress
from time import sleep
from typing import TYPE_CHECKING

from changeling_aggregator.errors import AggregatorError, Overtaken
from changeling_aggregator.fold import FoldReport
from changeling_aggregator.fold.closing import latest_right
from changeling_aggregator.fold.folding import add_counted, in_turn
from changeling_aggregator.segments import place_at
from changeling_aggregator.store import ClosingKey, Store, Transactions
from changeling_aggregator.store.counted import sealed_period
from changeling_aggregator.store.early_ends import published_ends
from changeling_aggregator.store.id_files import IdFile, registered_files, replace_files
from changeling_aggregator.store.run_files import begin_run, remove_run, sweep_runs
from changeling_aggregator.store.runs import drop_runs
from changeling_aggregator.store.sealing_keys import private_keys
from changeling_aggregator.store.stretches import unread_stretches
from changeling_aggregator.store.surveys import published_surveys
from changeling_protocol import UnixSeconds

from .errors import SparkTrouble
from .ids_of_runs import ids_of_runs
from .parts import Part
from .pieces import Piece, moves_of
from .running import Executors, SparkExecutors, run
from .session import Cluster, end_java, is_stopped, see_alive, session
from .unread import pieces_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .streaming import Stream

_ENDED = "the fold on Spark has ended"


class SparkFold:
    """Folds a store on a Spark cluster, as `fold.FoldProcess` does in a process.

    place: where its files lie, which the driver and all executors reach. checkpoint: where Spark keeps the checkpoint
    of a query, which then does each fold as a batch; None to do each as a job of its own.
    """

    def __init__(self, store: Store, cluster: Cluster, place: str, checkpoint: str | None = None) -> None:
        self._store, self._cluster, self._place, self._checkpoint = store, cluster, place, checkpoint
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self._stream: Stream | None = None
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
            spark = self._stack.enter_context(session(self._cluster))
        finally:
            self._starts = False
        if self._checkpoint is not None:
            from .streaming import Stream

            self._stream = Stream(spark, self._checkpoint)
            self._stack.callback(self._stream.close)
        self._spark = spark

    def fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        """As `fold.fold`. Call `await_start` before.

        Raises SparkTrouble, FoldOver where Spark's Java process has died, and what the store and the place raise.
        """
        self.await_start()
        try:
            return in_turn(self._store, now, closing, lambda writing: self._count(now, writing))
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
        self._spark = self._stream = None
        self._stack.close()

    def _count(self, now: UnixSeconds, writing: Transactions) -> FoldReport:
        spark, stream = self._spark, self._stream
        if spark is None or self._closed:
            raise SparkTrouble(_ENDED)
        if stream is None:
            return fold_once(self._store, SparkExecutors(spark), self._place, now, writing)
        return fold_through(stream.batch, self._store, self._place, now, writing)


def fold_once(store: Store, executors: Executors, place: str, now: UnixSeconds, writing: Transactions) -> FoldReport:
    """Fold what the log holds, in one run. Raises SparkTrouble; Overtaken where another folder counted some of it."""
    return fold_through(lambda _name, _pieces, count: count(executors), store, place, now, writing)


Count = Callable[[Executors], FoldReport]


def fold_through(
    through: Callable[[str, list[Piece], Count], FoldReport],
    store: Store,
    place: str,
    now: UnixSeconds,
    writing: Transactions,
) -> FoldReport:
    """As `fold_once`. through: is given the run's name, the pieces and what counts them, and calls that once."""
    at, name = place_at(place), secrets.token_hex(8)
    with store.reading() as connection:
        stretches = unread_stretches(connection, latest_right(connection, now))
    if not stretches:
        return FoldReport()
    sweep_runs(store, writing)
    with writing() as connection:
        begin_run(connection, at.name, name)
    try:
        with store.reading() as connection:
            pieces = pieces_of(connection, stretches, at, name)
        report = through(name, pieces, lambda executors: _counted(store, executors, place, name, pieces, writing))
    except _Unknown as unknown:
        raise unknown.error from None
    except BaseException:
        with suppress(AggregatorError):
            remove_run(store, at, name)
        raise
    with suppress(AggregatorError):
        sweep_runs(store, writing, name)
    return report


class _Unknown(Exception):
    """A transaction ended with an error, and may have been kept all the same: its files stay until that is known."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _counted(
    store: Store, executors: Executors, place: str, name: str, pieces: list[Piece], writing: Transactions
) -> FoldReport:
    """Count these pieces, in one transaction."""
    with store.reading() as connection:
        signed = published_surveys(connection)
        ends = {survey: end.last for survey, end in published_ends(connection).items()}
        sealed = {survey: sealed_period(connection, survey) for survey in signed}
        keys = private_keys(connection, store.at_rest)
        files = registered_files(connection)
        exported = ids_of_runs(connection, place_at(place), name, sealed)
    found = run(executors, name, pieces, [*files, *exported], signed, ends, sealed, keys, place)
    try:
        _hand_over(writing, pieces, found, files, exported)
    except Overtaken:
        raise
    except Exception as error:
        raise _Unknown(error) from error
    return FoldReport.of(sum(piece.until - piece.after for piece in pieces), found.counted)


def _hand_over(
    writing: Transactions,
    pieces: list[Piece],
    found: Part,
    files: list[IdFile],
    exported: dict[IdFile, list[tuple[ClosingKey, int]]],
) -> None:
    counted = found.whole()
    with writing() as connection:
        add_counted(connection, moves_of(pieces), counted)
        # Of a survey that could not be counted the ids stay where they were.
        replace_files(
            connection,
            [each for each in files if each.survey not in found.failed],
            [each for each in found.files if each.survey not in found.failed],
        )
        drop_runs(
            connection, [run for file, runs in exported.items() if file.survey not in found.failed for run in runs]
        )
