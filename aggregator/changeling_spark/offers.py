"""The log as a source of Structured Streaming: a batch reads what the driver offers, piece by piece of segments.

Spark asks a source from a process that it starts beside the driver, and hands what it has made there to executors. So
the source knows neither the store nor a key: it asks the driver on a socket of its owner alone, and executors get the
places and names of segments. Only what is offered now is ever read. A batch that Spark knows from a checkpoint, and did
in another life, is no offer any more, and is empty: what of it the store has not counted is in the next one.
"""

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from .inputs import Piece

NAME = "changeling-log"
PIECES = (
    "place string, name string, stream int, after bigint, until bigint, size bigint, earliest bigint, latest bigint"
)
"""A row is an `inputs.Piece`."""
SOCKET = "socket"
"""The option with the path of the driver's socket."""


class LogSource(DataSource):
    """What Spark makes for `readStream.format(NAME)`. options: SOCKET."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._socket = options[SOCKET]

    @classmethod
    def name(cls) -> str:
        """What `readStream.format` takes."""
        return NAME

    def schema(self) -> str:
        """Of the rows."""
        return PIECES

    def streamReader(self, schema: StructType) -> "LogReader":  # noqa: ARG002, N802
        """Reads as the driver says."""
        return LogReader(self._socket)


class LogReader(DataSourceStreamReader):
    """What Spark asks, asked of the driver. An offset is {"run": NAME, "until": {STREAM: POSITION, …}}.

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
        """What is to be read of an offer, by task: nothing, where that is no offer any more.

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
"""So long who asks for an offer waits for one."""


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
        """Of the socket."""
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
        """Whether the batch that is under way is of the present offer; else it is one of an earlier life."""
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
