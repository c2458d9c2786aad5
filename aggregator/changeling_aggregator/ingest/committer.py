"""The one thread of a process that appends to the log. Uploads that wait at the same time share a commit.

An upload is acknowledged when its commit is on disk, never before. One commit is in hand while the next uploads
gather. What waits is bounded in bytes, and so is what the fold has not counted: beyond that uploads are turned away.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Condition, Thread
from time import monotonic, perf_counter
from typing import NamedTuple, TypeAlias

from changeling_protocol.quantities import SurveyId, UnixMilliseconds, UnixSeconds
from changeling_protocol.refusal import Refusal
from changeling_protocol.wire import MOST_BODY_BYTES
from prometheus_client import Histogram

from ..errors import Overloaded, Unwritable
from ..store import Store
from ..store.counted import RefusalCounts
from ..store.log import unfolded
from .writers import writer_for

MOST_WAITING_BYTES = 64 * 2**20
RETRY_SECONDS = 1.0
LOOK_SECONDS = 1.0
"""How often, while all is well, it looks whether disk and log are full; whether the file is in its place, each time."""
MOST_STORE_BYTES = 64 * 2**30
MOST_UNFOLDED = 10**6
"""The most requests that wait in the log for the fold."""
LEAST_SECONDS = 0.0025
"""So much lies between the beginnings of two commits at least, as each costs as much as ten uploads."""
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
REFUSALS_WAIT_SECONDS = 1.0
"""Refusals alone wait so long for an upload to share a commit with; a crash may lose the counts of so much time."""
_UNWRITTEN = "uploads cannot be written to the store, and are turned away"
_log = logging.getLogger("changeling")

Done: TypeAlias = Callable[[Exception | None], None]
"""Is told that a commit is on disk, or what kept it from there."""


class _Waiting(NamedTuple):
    body: bytes
    loop: asyncio.AbstractEventLoop
    done: Done


class Committer:
    """Appends to a stream of its own.

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
        self._changed = Condition()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._refused: RefusalCounts = Counter()
        self._closing = False
        self._failed: str | None = None
        self._looked = self._began = 0.0
        self._full: str | None = None
        self.commits = Histogram("changeling_commit_seconds", "Commits of uploads.", buckets=BUCKETS, registry=None)
        self._thread = Thread(target=self._run, name="committer", daemon=True)

    def start(self) -> None:
        """Begin to commit what waits and what comes."""
        self._thread.start()

    def close(self) -> None:
        """Commit what waits, then end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._writer.close()

    def flush(self) -> None:
        """Let the fold find all that was acknowledged. Raises what keeps it from that."""
        self._writer.flush()

    @property
    def running(self) -> bool:
        """Whether its thread lives."""
        return self._thread.is_alive()

    @property
    def trouble(self) -> str | None:
        """Why an upload that came now would be turned away; None where it would be taken."""
        if not self.running:
            return "the thread that writes uploads to disk has died"
        if self._full:
            return self._full
        if self._failed:
            return self._failed
        if self._waiting_bytes > MOST_WAITING_BYTES - MOST_BODY_BYTES:
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
        with self._changed:
            if self._full:
                raise Overloaded(self._full)
            if self._closing or self._waiting_bytes + len(body) > MOST_WAITING_BYTES:
                raise Overloaded("more uploads wait for the disk than this server keeps: come again later")
            self._waiting.append(_Waiting(body, loop, done))
            self._waiting_bytes += len(body)
            if len(self._waiting) == 1:
                self._changed.notify()

    def count_refused(self, refused: Mapping[tuple[SurveyId, Refusal], int]) -> None:
        """Count refusals along with the next commit, or a little later."""
        with self._changed:
            self._refused.update(refused)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                # After a failure it tries by itself: perhaps nobody sends while health is bad.
                troubled = self._failed or self._full
                self._changed.wait_for(
                    lambda: self._waiting or self._refused or self._closing, RETRY_SECONDS if troubled else None
                )
                if not self._waiting and not self._closing:
                    self._changed.wait_for(lambda: self._waiting or self._closing, REFUSALS_WAIT_SECONDS)
                if self._closing and not self._waiting and not self._refused:
                    return
                if self._waiting:
                    soon = self._began + LEAST_SECONDS - monotonic()
                    self._changed.wait_for(lambda: self._closing, max(0.0, soon))
                self._began = monotonic()
                batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
                refused, self._refused = self._refused, Counter()
                closing = self._closing
            error = None
            try:
                self._commit([waiting.body for waiting in batch], refused)
            except Exception as raised:  # whatever the database says, the thread lives and the sender hears it
                error, self._looked = raised, 0.0
                if not closing:
                    self.count_refused(refused)
            self._failed = None if error is None else _UNWRITTEN if not isinstance(error, Unwritable) else f"{error}"
            _acknowledge(batch, error)

    def _fullness(self) -> str | None:
        """Why the store takes no more uploads; None where it does."""
        with self._store.reading() as connection:
            waiting = unfolded(connection)
        if waiting > MOST_UNFOLDED:
            return "more uploads wait to be counted than this server keeps: come again later"
        if self._store.bytes_kept() > self._most_store_bytes:
            return "this server keeps no more uploads until some of them are due to go: come again later"
        return None

    def _commit(self, bodies: Sequence[bytes], refused: RefusalCounts) -> None:
        if monotonic() >= self._looked + LOOK_SECONDS or not (self._store.in_place() and self._writer.in_place()):
            # SQLite itself writes on into a file that has no name any more.
            if trouble := self._store.trouble() or self._writer.trouble():
                raise Unwritable(trouble)
            self._full = self._fullness()
            self._looked = monotonic()
        if self._full and bodies:
            raise Overloaded(self._full)
        began = perf_counter()
        if bodies or refused or self._failed or self._full:
            self._writer.write(bodies, refused, UnixMilliseconds(int(self._clock() * 1000)))
        self.commits.observe(perf_counter() - began)


def _acknowledge(batch: Sequence[_Waiting], error: Exception | None) -> None:
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
