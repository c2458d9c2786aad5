"""The fold on Spark as an engine: a session for as long as it lasts, and runs in it, as jobs or as batches of a query.

A query of Structured Streaming reads the log from a source that offers a batch at a time, piece by piece of segments.
Spark asks the source from a process that it starts beside the driver, and hands what it has made there to executors. So
the source is given neither the store nor a key: it asks the driver on a socket of its owner alone, and executors get
the places and names of segments.

The store alone says what is counted: its transaction moves the cursors by compare-and-set, and a batch ends for Spark
after it. Spark's checkpoint is a record of batches. Where it is lost, put back, ahead, or another store's, Spark may do
a batch again; that one is no offer any more, so it is empty, and what of it the store has not counted is in the next.
"""

import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from time import sleep
from typing import TYPE_CHECKING, Any

from changeling_aggregator.errors import AggregatorError
from changeling_aggregator.fold import FoldReport, in_turn
from changeling_aggregator.store import Store, Turn
from changeling_protocol import UnixMilliseconds, UnixSeconds
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from .runs import Executors, SparkExecutors, fold_once, fold_through
from .session import ClusterSettings, SparkTrouble, end_java, first_line, is_stopped, see_alive, session, trouble_of
from .tasks import Piece, moves_of, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAME = "changeling-log"
PIECES = (
    "place string, name string, stream int, after bigint, until bigint, size bigint, earliest bigint, latest bigint"
)
"""A row is an `inputs.Piece`."""
SOCKET = "socket"
"""The option with the path of the driver's socket."""


class LogSource(DataSource):
    """The source that Spark makes for `readStream.format(NAME)`. options: SOCKET."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._socket = options[SOCKET]

    @classmethod
    def name(cls) -> str:
        """The name that `readStream.format` takes."""
        return NAME

    def schema(self) -> str:
        """The schema of the rows."""
        return PIECES

    def streamReader(self, schema: StructType) -> "LogReader":  # noqa: ARG002, N802
        """Reads as the driver says."""
        return LogReader(self._socket)


class LogReader(DataSourceStreamReader):
    """The questions of Spark, asked of the driver. An offset is {"run": NAME, "until": {STREAM: POSITION, …}}.

    socket: the path of the driver's socket.
    """

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before anything that was offered."""
        return {"run": "", "until": {}}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The offset of what the driver offers; `start` where that is nothing for a while."""
        offset: dict[str, Any] | None = self._ask({"ask": "offset"})
        return start if offset is None else offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """The pieces of an offer, by task; none where that is no offer any more.

        start: means nothing. Which requests are not counted the driver's store says, whatever a checkpoint has.
        """
        tasks = self._ask({"ask": "pieces", "run": end["run"]})
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The pieces of a task."""
        return (tuple(piece) for piece in partition.value)

    def _ask(self, question: dict[str, str]) -> Any:
        with Client(self._socket, "AF_UNIX") as asking:
            asking.send_bytes(json.dumps(question).encode())
            return json.loads(asking.recv_bytes())


MOST_WAIT_SECONDS = 1.0
"""How long who asks for an offer waits for one."""


@dataclass(frozen=True, slots=True)
class OfferedBatch:
    """A batch to be done.

    run: a name that no other offer has. until: the cursors after it, by stream. tasks: the pieces that each task reads.
    """

    run: str
    until: Mapping[int, int]
    tasks: Sequence[Sequence[Piece]]


class Offers:
    """At most one offer at a time, until this is closed."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="changeling-")  # of mode 700
        self.path = str(Path(self._folder) / "offers")
        """The path of the socket."""
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._changed = Condition()
        self._offer: OfferedBatch | None = None
        self._taken = self._closed = False
        self._thread = Thread(target=self._serve, name="offers", daemon=True)
        self._thread.start()

    def make(self, offer: OfferedBatch) -> None:
        """Offer this from now on."""
        with self._changed:
            self._offer, self._taken = offer, False
            self._changed.notify_all()

    def withdraw(self) -> None:
        """Offer nothing."""
        with self._changed:
            self._offer = None

    @property
    def taken(self) -> bool:
        """Tell whether the batch that is under way is of the present offer; else it is one of an earlier life."""
        with self._changed:
            return self._offer is not None and self._taken

    def close(self) -> None:
        """Offer nothing more, and let nobody wait."""
        with self._changed:
            self._offer, self._closed = None, True
            self._changed.notify_all()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def answer(self, question: Mapping[str, str]) -> Any:
        """To what `source.LogReader` asks: an offset, or None where there is none for a while; or the tasks' pieces."""
        with self._changed:
            if question["ask"] == "offset":
                self._changed.wait_for(lambda: self._offer is not None or self._closed, MOST_WAIT_SECONDS)
                if self._offer is None:
                    return None
                self._taken = True
                return {"run": self._offer.run, "until": {f"{stream}": at for stream, at in self._offer.until.items()}}
            if self._offer is None or self._offer.run != question["run"]:
                return []
            return [[astuple(piece) for piece in task] for task in self._offer.tasks]

    def _serve(self) -> None:
        while True:
            try:
                asked, _ = self._listening.accept()
            except OSError:
                return
            Thread(target=self._answer, args=(Connection(asked.detach()),), daemon=True).start()

    def _answer(self, asked: "Connection[bytes, bytes]") -> None:
        with asked, suppress(OSError, EOFError, ValueError, KeyError):
            asked.send_bytes(json.dumps(self.answer(json.loads(asked.recv_bytes()))).encode())


_LOOK_SECONDS = 1.0
"""How often it is looked whether the query and its Java process still live."""


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
