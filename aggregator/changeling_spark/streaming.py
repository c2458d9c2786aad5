"""A query of Structured Streaming over the log, whose batches are counted one by one as the driver offers them.

What is counted the store alone says: its transaction moves the cursors by compare-and-set, and a batch ends for Spark
after it. Spark's checkpoint is a record of batches. Where it is lost, put back, ahead, or another store's, Spark may do
a batch again; that one is no offer any more, so it is empty.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from changeling_aggregator.errors import AggregatorError
from changeling_aggregator.fold import FoldReport
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from .inputs import Piece, moves_of, tasks_of
from .offers import NAME, SOCKET, LogSource, OfferedBatch, Offers
from .runs import Executors, SparkExecutors
from .session import SparkTrouble, first_line, trouble_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 1.0
"""So often it is looked whether the query and its Java process still live."""


class Stream:
    """A query in a session, started with its first batch, and again where it has ended.

    checkpoint: where Spark keeps its own of it: a folder, or a URL that Spark can write to.
    """

    def __init__(self, spark: "SparkSession", checkpoint: str) -> None:
        self._spark = spark
        self._checkpoint = checkpoint if "://" in checkpoint else Path(checkpoint).absolute().as_uri()
        self._offers = Offers()
        self._query: StreamingQuery | None = None
        self._count: Callable[[Executors], FoldReport] | None = None
        self._ended, self._counting = Event(), Lock()
        self._closed = False
        self._outcome: FoldReport | BaseException | None = None
        spark.dataSource.register(LogSource)

    def batch(self, run: str, pieces: Sequence[Piece], count: Callable[[Executors], FoldReport]) -> FoldReport:
        """Have a batch of these pieces done, in which `count` is called once with what executes it.

        run: a name that no other batch has.
        Raises what that raises, SparkTrouble where the query fails, FoldOver where its Java process has died.
        """
        self._ended.clear()
        self._outcome, self._count = None, count
        until = {stream: position for stream, (_, position) in moves_of(pieces).items()}
        self._offers.make(OfferedBatch(run, until, tasks_of(pieces)))
        trouble: AggregatorError = SparkTrouble("the fold on Spark has ended")
        try:
            self._start()
            while not self._ended.wait(_LOOK_SECONDS) and not self._closed:
                self._look()
        except (Py4JError, PySparkException, OSError) as error:
            trouble = trouble_of(self._spark, "the query on Spark", error)
        except SparkTrouble as error:
            trouble = error
        finally:
            self._offers.withdraw()
        if self._outcome is None:
            self._stop()
        with self._counting:  # what is in hand ends first: its files are swept after a failure, and not before
            outcome = self._outcome
        if isinstance(outcome, FoldReport):
            return outcome
        self._stop()
        raise trouble if outcome is None else outcome

    def close(self) -> None:
        """End the query, with the batch in hand."""
        self._closed = True
        self._offers.close()
        self._ended.set()
        self._stop()

    def _stop(self) -> None:
        """End the query where there is one, and what it has running."""
        query, self._query = self._query, None
        if query is not None:
            with suppress(Py4JError, PySparkException, OSError):  # with its Java process it has ended
                self._spark.sparkContext.cancelAllJobs()
                query.stop()

    def _start(self) -> None:
        if self._query is not None and self._query.isActive:
            return
        pieces = self._spark.readStream.format(NAME).option(SOCKET, self._offers.path).load()
        writing = pieces.writeStream.foreachBatch(self._batch).option("checkpointLocation", self._checkpoint)
        self._query = writing.start()

    def _look(self) -> None:
        query = self._query
        if query is not None and not query.isActive and not self._ended.is_set():
            error = query.exception()
            why = "it was stopped" if error is None else first_line(error)
            raise SparkTrouble(f"the query on Spark has ended, and changed nothing: {why}")

    def _batch(self, pieces: "DataFrame", _: int) -> None:
        """Spark's batch: ends once the store has it. One of an earlier life is empty."""
        with self._counting:
            if not self._offers.taken or self._count is None:
                return
            try:
                self._outcome = self._count(SparkExecutors(pieces.sparkSession, pieces))
            except BaseException as error:
                self._outcome = error
                raise
            finally:
                self._offers.withdraw()
                self._ended.set()
