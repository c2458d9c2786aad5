"""A log in segments with as many reports as asked for, of one survey, 64 closings an upload, for folds to fold."""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.segments.form import Row, encoded
from changeling_aggregator.store.catalogue import Segment, add_segment
from changeling_aggregator.store.log import open_stream
from changeling_aggregator.store.schema import streams
from changeling_protocol import SealingKey, Survey, seal
from changeling_protocol.quantities import UnixMilliseconds
from changeling_protocol.wire import encode_upload_request
from sqlalchemy import update

from tests.aggregator.devices import Log

from .server_world import prepared

PERIODS = 64
UPLOADS_A_SEGMENT = 4096
_SEED = 14


def log_in_segments(folder: Path, reports: int) -> Log:
    """A store in the folder, the segments beside it; about so many reports, each closing with an id of its own."""
    log = prepared(folder, PERIODS)
    place = Folder(folder / "segments", make=True)
    uploads = max(1, reports // PERIODS)
    arrival = UnixMilliseconds(1000 * log.survey.calendar.time(PERIODS) + 1000)
    counts = [min(UPLOADS_A_SEGMENT, uploads - at) for at in range(0, uploads, UPLOADS_A_SEGMENT)]
    with log.store.writing() as connection:
        stream = open_stream(connection)
        connection.execute(update(streams).where(streams.c.id == stream).values(place=place.name))
    make = partial(_segment, place.name, stream, arrival, log.survey, log.key)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        sizes = list(pool.map(make, range(len(counts)), counts))
    with log.store.writing() as connection:
        for number, (count, size) in enumerate(zip(counts, sizes, strict=True)):
            first = number * UPLOADS_A_SEGMENT + 1
            name = _name(number)
            segment = Segment(stream, first, first + count - 1, arrival, arrival, place.name, name, size)
            if not add_segment(connection, segment):
                raise AssertionError("a segment does not go on where the last one ends")
    return log


def _name(number: int) -> str:
    return f"measured-{number}.parquet"


def _segment(
    place: str, stream: int, arrival: UnixMilliseconds, survey: Survey, key: SealingKey, number: int, count: int
) -> int:
    """Write a segment; its size in bytes."""
    generator = np.random.default_rng([_SEED, number])
    ids = generator.integers(0, 2**64, (count, PERIODS * 2), np.uint64).view(np.uint8)
    said = np.concatenate([ids, np.full((count, PERIODS), 1, np.uint8), np.zeros((count, 2 * PERIODS), np.uint8)], 1)
    symbols = generator.integers(1, 6, (count, PERIODS), np.uint8)
    first = number * UPLOADS_A_SEGMENT + 1
    rows: list[Any] = []
    for at in range(count):
        plaintext = msgpack.packb([0, 0, PERIODS, said[at].tobytes(), symbols[at].tobytes()])
        rows.append(Row(first + at, arrival, encode_upload_request([seal(plaintext, survey.id, key)])))
    content = encoded(stream, rows)
    Folder(Path(place)).put(_name(number), content)
    return len(content)
