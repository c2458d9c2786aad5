"""A log in segments with as many reports as asked for, of one survey, 64 closings an upload, for folds to fold.

Uploads are sealed as a device seals them. A shorter log is the beginning of a longer one: its store names fewer of the
same files.
"""

import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack
import numpy as np
from changeling_aggregator.segments import Folder
from changeling_aggregator.segments.parquet import encoded
from changeling_aggregator.store import LoggedRequest, Segment, Store
from changeling_aggregator.testing import sql
from changeling_aggregator.testing.killing import prepared_log
from changeling_protocol import SealingKey, Survey, UnixMilliseconds, seal
from changeling_protocol.wire import encode_upload_request

PERIODS = 64
UPLOADS_A_SEGMENT = 15_625
"""As many as hold a million reports, in 20 MiB: too much to be written anew with others, whose files would then go."""
MILLION = 10**6
MOST_MILLIONS = 30
_SEED = 14


@contextmanager
def log_of(millions: int, folder: Path) -> Iterator[Store]:
    """A store of its own, in a new folder, with the first so many million reports of a log that is made once.

    The log lies on the disk until the process ends; nobody changes its files.
    """
    folder.mkdir()
    shutil.copy(_longest() / "server.db", folder)
    store = Store.open(folder / "server.db")
    uploads = millions * MILLION // PERIODS
    sql(store, "DELETE FROM files WHERE last > :uploads", uploads=uploads)
    sql(store, "UPDATE streams SET length = :uploads WHERE place IS NOT NULL", uploads=uploads)
    try:
        yield store
    finally:
        store.close()
        shutil.rmtree(folder)


@cache
def _longest() -> Path:
    folder = _folder().name
    log_in_segments(Path(folder), MOST_MILLIONS * MILLION).close()
    return Path(folder)


@cache
def _folder() -> "TemporaryDirectory[str]":
    return TemporaryDirectory(prefix="log")  # kept here, as the folder goes with it


def log_in_segments(folder: Path, reports: int) -> Store:
    """A store in the folder, the segments beside it; about so many reports, each closing with an id of its own."""
    log = prepared_log(folder, PERIODS)
    place = Folder(folder / "segments", make=True)
    uploads = max(1, reports // PERIODS)
    arrival = UnixMilliseconds(1000 * log.survey.calendar.time(PERIODS) + 1000)
    counts = [min(UPLOADS_A_SEGMENT, uploads - at) for at in range(0, uploads, UPLOADS_A_SEGMENT)]
    with log.store.transaction() as writing:
        stream = writing.open_stream(None, place.name, "measured")
    make = partial(_segment, place.name, stream, arrival, log.survey, log.key)
    if len(counts) == 1:
        sizes = [make(0, *counts)]
    else:
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            sizes = list(pool.map(make, range(len(counts)), counts))
    with log.store.transaction() as writing:
        for number, (count, size) in enumerate(zip(counts, sizes, strict=True)):
            first = number * UPLOADS_A_SEGMENT + 1
            name = _name(number)
            segment = Segment(stream, first, first + count - 1, arrival, arrival, place.name, name, size)
            if not writing.add_segment(segment):
                raise AssertionError("a segment does not go on where the last one ends")
    return log.store


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
    rows: list[LoggedRequest] = []
    for at in range(count):
        plaintext = msgpack.packb([0, 0, PERIODS, said[at].tobytes(), symbols[at].tobytes()])
        body = encode_upload_request([seal(plaintext, survey.id, key)])
        rows.append(LoggedRequest(arrival, stream, first + at, body))
    content = encoded(rows)
    Folder(Path(place)).put(_name(number), content)
    return len(content)
