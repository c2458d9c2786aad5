"""Servers in front of a folder of segments, in this process: they live, roll when told, and are killed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from changeling_aggregator.ingest.journaled import JournalWriter
from changeling_aggregator.segments.folder import Folder
from changeling_aggregator.store import Store
from changeling_aggregator.store.counted import sealed_period

from .devices import Log
from .refolding import whole_log

START, GRACE = 1_800_000_000, 600
END = START + 8 * 60


def closes(node: int) -> int:
    """When a period ends."""
    return START + node * 60


class Clock:
    """Unix seconds that a test moves."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@contextmanager
def writing(store: Store, folder: Folder, clock: Clock) -> Iterator[JournalWriter]:
    """A server, until it is ended."""
    writer = JournalWriter(store, folder, clock)
    try:
        yield writer
    finally:
        writer.close()


def put(writer: JournalWriter, clock: Clock, *bodies: bytes) -> None:
    """It acknowledges these."""
    writer.write(bodies, {}, int(clock.now * 1000))


def without_its_thread(store: Store, folder: Folder, clock: Clock) -> JournalWriter:
    """A writer that rolls when it is told to, and is there until it is `killed`."""
    writer = JournalWriter(store, folder, clock)
    writer._stop.set()
    writer._due.set()
    writer._thread.join()
    return writer


def killed(writer: JournalWriter) -> JournalWriter:
    """What a process that is killed leaves: its journal, and no lock."""
    os.close(writer._owned._file)
    return writer


def left_by_a_killed_server(store: Store, folder: Folder, clock: Clock, *bodies: bytes) -> JournalWriter:
    """As of one that was killed after these."""
    writer = without_its_thread(store, folder, clock)
    put(writer, clock, *bodies)
    return killed(writer)


def kept(log: Log) -> list[tuple[int, int, int, bytes]]:
    """All that the log still holds."""
    with log.store.reading() as connection:
        return [tuple(each) for each in whole_log(connection)]


def sealed(log: Log) -> int:
    """The last period that is sealed."""
    with log.store.reading() as connection:
        return sealed_period(connection, log.survey.id)
