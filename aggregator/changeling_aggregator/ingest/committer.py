"""The one thread of a process that appends to the log. Uploads that wait at the same time share a commit.

An upload is acknowledged when its commit is on disk, never before. What waits is bounded in bytes.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Condition, Thread

from changeling_protocol.quantities import SurveyId, UnixMilliseconds, UnixSeconds
from changeling_protocol.refusal import Refusal
from changeling_protocol.wire import MOST_BODY_BYTES

from ..errors import Overloaded, Unwritable
from ..store import Store
from ..store.counted import RefusalCounts, add_refusals
from ..store.log import append, open_stream, stop_appending

MOST_WAITING_BYTES = 64 * 2**20
RETRY_SECONDS = 1.0
REFUSALS_WAIT_SECONDS = 1.0
"""Refusals alone wait so long for an upload to share a commit with; a crash may lose the counts of so much time."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    envelopes: Sequence[bytes]
    acknowledged: Future[None]


class Committer:
    """Appends to a stream of its own. clock: Unix seconds, for the stamp of arrival."""

    def __init__(self, store: Store, clock: Callable[[], UnixSeconds]) -> None:
        self._store, self._clock = store, clock
        with store.writing() as connection:
            self._stream = open_stream(connection)
        self._changed = Condition()
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._refused: RefusalCounts = Counter()
        self._closing = False
        self._failed = False
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

    @property
    def running(self) -> bool:
        """Whether its thread lives."""
        return self._thread.is_alive()

    @property
    def trouble(self) -> str | None:
        """Why an upload that came now would be turned away; None where it would be taken."""
        if not self.running:
            return "the thread that writes uploads to disk has died"
        if self._failed:
            return "uploads cannot be written to the store, and are turned away"
        if self._waiting_bytes > MOST_WAITING_BYTES - MOST_BODY_BYTES:
            return "more uploads wait for the disk than are kept in memory, and are turned away"
        return None

    def submit(self, envelopes: Sequence[bytes]) -> Future[None]:
        """Append these envelopes; the future is done when they are on disk, or holds the error.

        Raises Overloaded where too much waits already.
        """
        size = sum(map(len, envelopes))
        waiting = _Waiting(envelopes, Future())
        with self._changed:
            if self._closing or self._waiting_bytes + size > MOST_WAITING_BYTES:
                raise Overloaded("more uploads wait for the disk than this server keeps: come again later")
            self._waiting.append(waiting)
            self._waiting_bytes += size
            self._changed.notify()
        return waiting.acknowledged

    def count_refused(self, refused: Mapping[tuple[SurveyId, Refusal], int]) -> None:
        """Count refusals along with the next commit, or a little later."""
        with self._changed:
            self._refused.update(refused)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                # After a failure it tries by itself: perhaps nobody sends while health is bad.
                self._changed.wait_for(
                    lambda: self._waiting or self._refused or self._closing, RETRY_SECONDS if self._failed else None
                )
                if not self._waiting and not self._closing:
                    self._changed.wait_for(lambda: self._waiting or self._closing, REFUSALS_WAIT_SECONDS)
                if self._closing and not self._waiting and not self._refused:
                    return
                batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
                refused, self._refused = self._refused, Counter()
                closing = self._closing
            # From here on nobody can cancel them; who has gone away before is not waited for.
            batch = [waiting for waiting in batch if waiting.acknowledged.set_running_or_notify_cancel()]
            try:
                self._commit([envelope for waiting in batch for envelope in waiting.envelopes], refused)
                self._failed = False
            except Exception as error:  # whatever the database says, the thread lives and the sender hears it
                self._failed = True
                for waiting in batch:
                    waiting.acknowledged.set_exception(error)
                if not closing:
                    self.count_refused(refused)
            else:
                for waiting in batch:
                    waiting.acknowledged.set_result(None)

    def _commit(self, envelopes: Sequence[bytes], refused: RefusalCounts) -> None:
        if trouble := self._store.trouble():  # SQLite itself writes on into a file that has no name any more
            raise Unwritable(trouble)
        with self._store.writing() as connection:
            if envelopes:
                append(connection, self._stream, envelopes, UnixMilliseconds(int(self._clock() * 1000)))
            elif self._failed:
                stop_appending(connection)  # which changes nothing, and is written all the same
            add_refusals(connection, refused)
