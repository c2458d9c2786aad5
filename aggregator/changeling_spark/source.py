"""The log as a source of Structured Streaming: a batch reads what the driver offers, piece by piece of segments.

Spark asks a source from a process that it starts beside the driver, and hands what it has made there to executors. So
the source knows neither the store nor a key: it asks the driver on a socket of its owner alone, and executors get the
places and names of segments.
"""

import json
from collections.abc import Iterator, MutableMapping, Sequence
from multiprocessing.connection import Client
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

NAME = "changeling-log"
PIECES = (
    "place string, name string, stream int, after bigint, until bigint, size bigint, earliest bigint, latest bigint"
)
"""A row is a `pieces.Piece`."""
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
