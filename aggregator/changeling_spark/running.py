"""One run on Spark: from pieces of the log and files of ids to what they add, all parts of it added up."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from changeling_aggregator.store.id_files import IdFile
from changeling_protocol import SurveyId
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from .key_service import KeyService
from .parts import Part
from .pieces import Piece, tasks_of
from .session import trouble_of
from .spread import Spread
from .tasks import Run, count_lots, open_pieces, open_streamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKET_CLOSINGS = 500_000
"""About the most closings in a bucket, with those whose ids were counted before."""
_LEAST_CLOSING_BYTES = 20
"""The fewest bytes that a closing with a report takes in an upload."""
_LOTS = "bucket int, survey binary, `group` int, closings binary, symbols array<binary>"


def buckets_of(pieces: Sequence[Piece], files: Sequence[IdFile]) -> int:
    """How many buckets keep each of them small, whatever the log holds."""
    closings = sum(piece.size for piece in pieces) // _LEAST_CLOSING_BYTES + sum(file.size for file in files)
    return 1 + closings // BUCKET_CLOSINGS


class Executors(ABC):
    """What runs tasks. host: the address by which they reach the driver. bind: the one on which the driver listens."""

    host: str
    bind: str

    @abstractmethod
    def __call__(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
        """The packed parts of all buckets, once `tasks.open_pieces` and `tasks.count_lots` have run everywhere."""


class SparkExecutors(Executors):
    """Those of a Spark session. batch: the log's pieces, where a query has read them; None for those of the tasks."""

    def __init__(self, spark: "SparkSession", batch: "DataFrame | None" = None) -> None:
        self._spark, self._batch = spark, batch
        self.host = spark.conf.get("spark.driver.host") or "127.0.0.1"
        self.bind = spark.conf.get("spark.driver.bindAddress", self.host) or self.host

    def __call__(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> Iterable[bytes]:
        """Raises SparkTrouble, or FoldOver."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            lots = self._opened(run, tasks).repartitionById(run.spread.buckets, "bucket")
            rows = lots.mapInArrow(partial(count_lots, run), "part binary").collect()
        except (Py4JError, PySparkException) as error:
            raise trouble_of(self._spark, "the fold on Spark", error) from None
        return [bytes(row.part) for row in rows]

    def _opened(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> "DataFrame":
        if self._batch is None:
            return self._given(run, tasks)
        streamed = self._batch.mapInArrow(partial(open_streamed, run), _LOTS)
        files = [task for task in tasks if isinstance(task[0], IdFile)]
        return streamed.union(self._given(run, files)) if files else streamed

    def _given(self, run: Run, tasks: Sequence[Sequence[Piece | IdFile]]) -> "DataFrame":
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        return numbers.mapInArrow(partial(open_pieces, run, tasks), _LOTS)


def run(
    executors: Executors,
    name: str,
    pieces: Sequence[Piece],
    files: Sequence[IdFile],
    signed: Mapping[SurveyId, bytes],
    ends: Mapping[SurveyId, int],
    sealed: Mapping[SurveyId, int],
    keys: Mapping[bytes, X25519PrivateKey],
    place: str,
) -> Part:
    """What these pieces add, after the ids in these files.

    name: the run's, which no other has. signed, ends, sealed, place: as `Run` has them. keys: private ones, by id.
    The files of ids that it names hold those of `files` too. Raises SparkTrouble.
    """
    tasks: list[Sequence[Piece | IdFile]] = [*tasks_of(pieces), *([each] for each in files)]
    spread = Spread.drawn(buckets_of(pieces, files))
    service = KeyService(keys, executors.host, executors.bind)
    whole = Part()
    try:
        shared = Run(name, dict(signed), dict(ends), dict(sealed), spread, service.source, place)
        for part in executors(shared, tasks):
            whole.add(Part.unpacked(part))
    finally:
        service.close()
    return whole
