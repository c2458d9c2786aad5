"""Uploads gather here until a commit takes them: who waits at the same time shares one.

What waits is bounded in bytes, and so is what one commit takes. Where each commit has a price, as in an object store,
the next begins a little later, so that more share it; how much later is the writer's `Pace`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Condition
from time import monotonic
from typing import NamedTuple, TypeAlias

from changeling_protocol import Refusal, RefusalCounts, SurveyId
from changeling_protocol.wire import MOST_BODY_BYTES

from ..errors import Overloaded

MOST_WAITING_BYTES = 64 * 2**20
MOST_COMMIT_BYTES = 16 * 2**20
"""A commit takes no more uploads once it has so much."""
RETRY_SECONDS = 1.0
"""After a commit that failed another one is tried, so long after that one began, even if nobody sends anything."""
REFUSALS_WAIT_SECONDS = 1.0
"""Where nothing but refusals waits it is written no more often than that. A crash loses so much of their counts."""

Done: TypeAlias = Callable[[Exception | None], None]
"""Is told that a commit is on disk, or what kept it from there."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How commits follow each other.

    at_once: so many may be in hand. apart: seconds from the beginning of one to that of the next, or less where
    `enough` uploads wait, or the bytes that one commit takes. A commit to a disk costs as much as ten uploads.
    """

    at_once: int = 1
    apart: float = 0.0025
    enough: int = 1000


class Waiting(NamedTuple):
    """An upload. done: to be called from the event loop."""

    body: bytes
    loop: asyncio.AbstractEventLoop
    done: Done


class Batch(NamedTuple):
    """What one commit takes. Both are empty where a commit is only tried, to see whether it succeeds again."""

    uploads: list[Waiting]
    refused: RefusalCounts


class Gathering:
    """What waits. Any thread may add to it; as many as the pace allows take from it."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._changed = Condition()
        self._waiting: list[Waiting] = []
        self._bytes = 0
        self._refused: RefusalCounts = Counter()
        self._in_hand = 0
        self._begun = 0.0
        self._closing = self._troubled = False

    @property
    def full(self) -> bool:
        """Whether an upload of any size might be turned away."""
        return self._bytes > MOST_WAITING_BYTES - MOST_BODY_BYTES

    def add(self, upload: Waiting) -> None:
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

    def take(self) -> Batch | None:
        """The next commit, once it is due; None where no other will come. To be ended by `finish`."""
        with self._changed:
            while (pause := self._pause()) is None or pause > 0:
                self._changed.wait(pause)
            if self._closing and not self._waiting and not self._refused:
                return None
            refused, self._refused = self._refused, Counter()
            self._in_hand += 1
            self._begun = monotonic()
            return Batch(self._cut(), refused)

    def finish(self, batch: Batch, *, failed: bool, troubled: bool) -> None:
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

    def _cut(self) -> list[Waiting]:
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
