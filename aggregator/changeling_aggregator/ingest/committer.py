"""The threads of a process that append to the log: one, or several where that is far away, as in an object store.

An upload is acknowledged when its commit is on disk, never before. While a commit is in hand the next uploads gather:
who waits at the same time shares one. What waits is bounded in bytes, and what the fold has not counted in number:
beyond that uploads are turned away. Where each commit has a price, the next begins a little later, so that more share
it; how much later is the writer's `Pace`.
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

from changeling_protocol import Refusal, RefusalCounts, SurveyId, UnixMilliseconds, UnixSeconds
from changeling_protocol.wire import MOST_BODY_BYTES
from prometheus_client import Histogram

from ..errors import Overloaded, Unwritable
from ..store import Store
from .writers import Pace, writer_for

LOOK_SECONDS = 1.0
"""How often, while all is well, it looks whether disk and log are full; whether the file is in its place, each time."""
MOST_STORE_BYTES = 64 * 2**30
MOST_UNFOLDED = 10**6
"""The most requests that wait in the log for the fold."""
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_UNWRITTEN = "uploads cannot be written to the store, and are turned away"
_log = logging.getLogger("changeling")
MOST_WAITING_BYTES = 64 * 2**20
MOST_COMMIT_BYTES = 16 * 2**20
"""A commit takes no more uploads once it has so much."""
RETRY_SECONDS = 1.0
"""After a commit that failed another one is tried, so long after that one began, even if nobody sends anything."""
REFUSALS_WAIT_SECONDS = 1.0
"""Where nothing but refusals waits it is written no more often than that. A crash loses so much of their counts."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Is told that a commit is on disk, or what kept it from there."""


class WaitingUpload(NamedTuple):
    """An upload. done: to be called from the event loop."""

    body: bytes
    loop: asyncio.AbstractEventLoop
    done: Done


class Commit(NamedTuple):
    """The work of one commit. Both are empty where a commit is only tried, to see whether it succeeds again."""

    uploads: list[WaitingUpload]
    refused: RefusalCounts


class Gathering:
    """Uploads that wait. Any thread may add to it; as many as the pace allows take from it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._changed = Condition()
        self._waiting: list[WaitingUpload] = []
        self._bytes = 0
        self._refused: RefusalCounts = Counter()
        self._in_hand = 0
        self._begun = 0.0
        self._closing = self._troubled = False

    @property
    def full(self) -> bool:
        """Tell whether an upload of any size might be turned away."""
        return self._bytes > MOST_WAITING_BYTES - MOST_BODY_BYTES

    def add(self, upload: WaitingUpload) -> None:
        """Raises Overloaded where too much waits already, or nothing more is taken."""
        with self._changed:
            if self._closing or self._bytes + len(upload.body) > MOST_WAITING_BYTES:
                raise Overloaded("more uploads wait for the disk than this server keeps: come again later")
            self._waiting.append(upload)
            self._bytes += len(upload.body)
            if len(self._waiting) in (1, self._pace.enough) or self._bytes >= MOST_COMMIT_BYTES:
                self._changed.notify()

    def count_refused(self, refused: Mapping[tuple[SurveyId, Refusal], int]) -> None:
        """Count refusals along with the next commit, or a little later."""
        with self._changed:
            self._refused.update(refused)
            self._changed.notify()

    def close(self) -> None:
        """Take in nothing more; what waits is given out at once."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def take(self) -> Commit | None:
        """The next commit, once it is due; None where no other will come. To be ended by `finish`."""
        with self._changed:
            while (pause := self._pause()) is None or pause > 0:
                self._changed.wait(pause)
            if self._closing and not self._waiting and not self._refused:
                return None
            refused, self._refused = self._refused, Counter()
            self._in_hand += 1
            self._begun = monotonic()
            return Commit(self._cut(), refused)

    def finish(self, batch: Commit, *, failed: bool, troubled: bool) -> None:
        """A commit has ended.

        failed: whether nothing of it was kept; its refusals are then counted with the next one, and its uploads are the
        caller's to answer. troubled: whether another one is tried soon, even if nobody sends anything.
        """
        with self._changed:
            self._in_hand -= 1
            self._troubled = troubled
            if failed and not self._closing:
                self._refused.update(batch.refused)

    def _pause(self) -> float | None:
        """For how many seconds the next commit should wait, and 0 where it is due; None until something changes."""
        if self._closing:
            return 0.0
        since = monotonic() - self._begun
        if self._waiting:
            is_enough = len(self._waiting) >= self._pace.enough or self._bytes >= MOST_COMMIT_BYTES
            return 0.0 if is_enough else max(0.0, self._pace.apart - since)
        if self._in_hand:  # whoever has it in hand looks again after
            return None
        if self._refused:
            return max(0.0, REFUSALS_WAIT_SECONDS - since)
        return max(0.0, RETRY_SECONDS - since) if self._troubled else None

    def _cut(self) -> list[WaitingUpload]:
        """The uploads of one commit."""
        count, size = len(self._waiting), self._bytes
        if size > MOST_COMMIT_BYTES:
            count = size = 0
            while size < MOST_COMMIT_BYTES:
                size += len(self._waiting[count].body)
                count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes -= size
        if self._waiting:
            self._changed.notify()
        return taken


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
        self._writer = writer_for(store, segments)
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

    @property
    def running(self) -> bool:
        """Tell whether its threads live."""
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
        self._gathering.add(WaitingUpload(body, loop, done))

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
        with self._store.view(once=True) as view:  # as uploads wait meanwhile
            waiting = view.unfolded()
        if waiting > MOST_UNFOLDED:
            return "more uploads wait to be counted than this server keeps: come again later"
        if self._store.bytes_kept() > self._most_store_bytes:
            return "this server keeps no more uploads until some of them are due to go: come again later"
        return None

    def _commit(self, batch: Commit) -> None:
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


def _acknowledge(batch: Sequence[WaitingUpload], error: Exception | None) -> None:
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
