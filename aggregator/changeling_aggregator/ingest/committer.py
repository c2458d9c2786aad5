"""The threads of a process that append to the log: one, or several where that is far away, as in an object store.

An upload is acknowledged when its commit is on disk, never before. While a commit is in hand the next uploads gather.
What the fold has not counted is bounded: beyond that uploads are turned away.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from time import monotonic, perf_counter

from changeling_protocol import Refusal, SurveyId, UnixMilliseconds, UnixSeconds
from prometheus_client import Histogram

from ..errors import Overloaded, Unwritable
from ..store import Store
from ..store.log import unfolded
from .gathering import Batch, Done, Gathering, Waiting
from .writers import writer_for

LOOK_SECONDS = 1.0
"""How often, while all is well, it looks whether disk and log are full; whether the file is in its place, each time."""
MOST_STORE_BYTES = 64 * 2**30
MOST_UNFOLDED = 10**6
"""The most requests that wait in the log for the fold."""
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_UNWRITTEN = "uploads cannot be written to the store, and are turned away"
_log = logging.getLogger("changeling")


class Committer:
    """Appends to streams of its own.

    clock: Unix seconds, for the stamp of arrival. most_store_bytes: a store that holds more takes no uploads.
    segments: the place of segments, as `checked_place` gives it; None for rows of the store.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], UnixSeconds],
        most_store_bytes: int = MOST_STORE_BYTES,
        segments: str | None = None,
    ) -> None:
        self._store, self._clock, self._most_store_bytes = store, clock, most_store_bytes
        self._writer = writer_for(store, clock, segments)
        self._gathering = Gathering(self._writer.pace)
        self._failed: str | None = None
        self._looked = 0.0
        self._full: str | None = None
        self.commits = Histogram("changeling_commit_seconds", "Commits of uploads.", buckets=BUCKETS, registry=None)
        threads = range(self._writer.pace.at_once)
        self._threads = [Thread(target=self._run, name=f"committer-{each}", daemon=True) for each in threads]

    def start(self) -> None:
        """Begin to commit what waits and what comes."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Commit what waits, then end."""
        self._gathering.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._writer.close()

    def flush(self) -> None:
        """Let the fold find all that was acknowledged. Raises what keeps it from that."""
        self._writer.flush()

    @property
    def running(self) -> bool:
        """Whether its threads live."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def trouble(self) -> str | None:
        """Why an upload that came now would be turned away; None where it would be taken."""
        if not self.running:
            return "a thread that writes uploads to disk has died"
        if self._full:
            return self._full
        if self._failed:
            return self._failed
        if self._gathering.full:
            return "more uploads wait for the disk than are kept in memory, and are turned away"
        return None

    async def append(self, body: bytes) -> None:
        """Append an upload request, as `wire.encode_upload_request` makes it; returns when it is on disk.

        Raises Overloaded where too much waits already, or the error that kept it from the disk.
        """
        loop = asyncio.get_running_loop()
        acknowledged = loop.create_future()
        self.submit(body, loop, partial(_resolve, acknowledged))
        await acknowledged

    def submit(self, body: bytes, loop: asyncio.AbstractEventLoop, done: Done) -> None:
        """As `append`, but calls `done` from the event loop when it is on disk, or was kept from there."""
        if self._full:
            raise Overloaded(self._full)
        self._gathering.add(Waiting(body, loop, done))

    def count_refused(self, refused: Mapping[tuple[SurveyId, Refusal], int]) -> None:
        """Count refusals along with the next commit, or a little later."""
        self._gathering.count_refused(refused)

    def _run(self) -> None:
        while (batch := self._gathering.take()) is not None:
            error = None
            try:
                self._commit(batch)
            except Exception as raised:  # whatever the database says, the thread lives and the sender hears it
                error, self._looked = raised, 0.0
            self._failed = None if error is None else _UNWRITTEN if not isinstance(error, Unwritable) else f"{error}"
            troubled = error is not None or self._full is not None
            self._gathering.finish(batch, failed=error is not None, troubled=troubled)
            _acknowledge(batch.uploads, error)

    def _fullness(self) -> str | None:
        """Why the store takes no more uploads; None where it does."""
        with self._store.reading(once=True) as connection:  # as uploads wait meanwhile
            waiting = unfolded(connection)
        if waiting > MOST_UNFOLDED:
            return "more uploads wait to be counted than this server keeps: come again later"
        if self._store.bytes_kept() > self._most_store_bytes:
            return "this server keeps no more uploads until some of them are due to go: come again later"
        return None

    def _commit(self, batch: Batch) -> None:
        if monotonic() >= self._looked + LOOK_SECONDS or not self._store.in_place():
            # SQLite itself writes on into a file that has no name any more.
            if trouble := self._store.trouble() or self._writer.trouble():
                raise Unwritable(trouble)
            self._full = self._fullness()
            self._looked = monotonic()
        if self._full and batch.uploads:
            raise Overloaded(self._full)
        began = perf_counter()
        if batch.uploads or batch.refused or self._failed or self._full:
            bodies = [waiting.body for waiting in batch.uploads]
            self._writer.write(bodies, batch.refused, UnixMilliseconds(int(self._clock() * 1000)))
        self.commits.observe(perf_counter() - began)


def _acknowledge(batch: Sequence[Waiting], error: Exception | None) -> None:
    """Wakes each event loop once, whatever number of uploads wait in it."""
    for loop in {waiting.loop for waiting in batch}:
        with suppress(RuntimeError):  # a loop that has ended, with whoever waited in it
            loop.call_soon_threadsafe(_tell, [each.done for each in batch if each.loop is loop], error)


def _tell(waiting: Sequence[Done], error: Exception | None) -> None:
    for done in waiting:
        try:
            done(error)
        except Exception:  # whatever is wrong with one sender's connection, the others hear it
            _log.exception("an upload cannot be answered")


def _resolve(acknowledged: "asyncio.Future[None]", error: Exception | None) -> None:
    if acknowledged.done():  # its sender has gone away
        return
    if error is None:
        acknowledged.set_result(None)
    else:
        acknowledged.set_exception(error)
