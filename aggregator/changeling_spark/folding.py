"""The fold on Spark as an engine: a session for as long as it lasts, and a run in it each time that it is to fold."""

from contextlib import ExitStack
from time import sleep
from typing import TYPE_CHECKING

from changeling_aggregator.fold import FoldReport, in_turn
from changeling_aggregator.store import Store, Turn
from changeling_protocol import UnixMilliseconds, UnixSeconds

from .runs import SparkExecutors, fold_once, fold_through
from .session import ClusterSettings, SparkTrouble, end_java, is_stopped, see_alive, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .streaming import Stream

_ENDED = "the fold on Spark has ended"


class SparkFold:
    """Folds a store on a Spark cluster, as `fold.FoldProcess` does in a process.

    place: where its files lie, which the driver and all executors reach. checkpoint: where Spark keeps the checkpoint
    of a query, which then does each fold as a batch; None to do each as a job of its own.
    """

    def __init__(self, store: Store, cluster: ClusterSettings, place: str, checkpoint: str | None = None) -> None:
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
        self._spark = self._stream = None
        self._stack.close()

    def _count(self, turn: Turn, until: UnixMilliseconds) -> FoldReport:
        spark, stream = self._spark, self._stream
        if spark is None or self._closed:
            raise SparkTrouble(_ENDED)
        if stream is None:
            return fold_once(self._store, SparkExecutors(spark), self._place, until, turn)
        return fold_through(stream.batch, self._store, self._place, until, turn)
