"""One run on Spark: from pieces of the log and files of ids to what they add, all parts of it added up."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from changeling_protocol.quantities import SurveyId
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import SparkTrouble
from ..store.id_files import IdFile
from .key_service import KeyService
from .parts import Part
from .pieces import Piece, tasks_of
from .session import first_line
from .spread import Spread
from .tasks import Run, count_lots, open_pieces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET_CLOSINGS = 500_000
"""A bucket has no more closings, ids that were seen among them, than about so many."""
_LEAST_CLOSING_BYTES = 20
"""What a closing with a report takes of an upload, at least."""
_LOTS = "bucket int, survey binary, `group` int, closings binary, symbols array<binary>"


def buckets_of(pieces: Sequence[Piece], files: Sequence[IdFile]) -> int:
    """How many buckets keep each of them small, whatever the log holds."""
    closings = sum(piece.size for piece in pieces) // _LEAST_CLOSING_BYTES + sum(file.size for file in files)
    return 1 + closings // BUCKET_CLOSINGS


def run(
    spark: "SparkSession",
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
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    tasks: list[Sequence[Piece | IdFile]] = [*tasks_of(pieces), *([each] for each in files)]
    spread = Spread.drawn(buckets_of(pieces, files))
    host = spark.conf.get("spark.driver.host") or "127.0.0.1"
    service = KeyService(keys, host, spark.conf.get("spark.driver.bindAddress", host) or host)
    try:
        shared = Run(name, dict(signed), dict(ends), dict(sealed), spread, service.source, place)
        opened = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(open_pieces, shared, tasks), _LOTS)
        lots = opened.repartitionById(spread.buckets, "bucket")
        rows = lots.mapInArrow(partial(count_lots, shared), "part binary").collect()
    except (Py4JError, PySparkException) as error:
        raise SparkTrouble(f"the fold on Spark has failed, and changed nothing: {first_line(error)}") from None
    finally:
        service.close()
    whole = Part()
    for row in rows:
        whole.add(Part.unpacked(bytes(row.part)))
    return whole
