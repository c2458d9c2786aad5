"""Working out answers on threads of their own: a few at a time, each once, and none that nobody waits for any more.

So whoever asks for many, for the same again and again, or goes away before the answer, keeps neither uploads nor the
fold waiting, nor other readers for long.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

from ..errors import Overloaded

AT_ONCE = 2
MOST_WAITING = 64
"""So many questions wait for a thread at most; however many wait for the answer to one of them."""
MOST_KEPT_BYTES = 64 * 2**20
MOST_KEPT = 4096


@dataclass(slots=True)
class _Work:
    """An answer that is being made, or waits for it. readers: how many still want it."""

    made: Future[bytes]
    readers: int = 0
    begun: bool = field(default=False)


class Estimating:
    """Makes answers and keeps the latest of them: MOST_KEPT, of MOST_KEPT_BYTES together."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="estimate")
        self._lock = Lock()
        self._work: dict[Hashable, _Work] = {}
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._kept_bytes = 0

    def kept(self, key: Hashable) -> bytes | None:
        """The answer to a question, where it is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    async def answer(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """What `make` returns, or returned for this key, or is about to on another thread.

        If this is cancelled before the answer is begun, and nobody else waits for it, it is not made.
        key: says all that the answer hangs on. Raises what `make` does, Overloaded where too many wait.
        """
        if (kept := self.kept(key)) is not None:
            return kept
        with self._lock:
            work = self._work.get(key)
            if work is None:
                if len(self._work) >= AT_ONCE + MOST_WAITING:
                    raise Overloaded("more estimates are asked for than this server makes at a time: come again later")
                work = self._work[key] = _Work(Future())
                self._threads.submit(self._make, key, work, make)
            work.readers += 1
        try:
            return await asyncio.shield(asyncio.wrap_future(work.made))
        finally:
            self._left(key, work)

    def close(self) -> None:
        """Finish the answers in hand, no others."""
        self._threads.shutdown(cancel_futures=True)

    def _left(self, key: Hashable, work: _Work) -> None:
        """One reader less; what nobody waits for, and is not begun, makes room for others."""
        with self._lock:
            work.readers -= 1
            if work.readers == 0 and not work.begun and self._work.get(key) is work:
                del self._work[key]

    def _make(self, key: Hashable, work: _Work, make: Callable[[], bytes]) -> None:
        with self._lock:
            if self._work.get(key) is not work:
                return  # everybody who asked has gone
            work.begun = True
        try:
            answer = make()
        except BaseException as error:
            with self._lock:
                del self._work[key]
            work.made.set_exception(error)
            return
        with self._lock:
            self._keep(key, answer)
            del self._work[key]
        work.made.set_result(answer)

    def _keep(self, key: Hashable, answer: bytes) -> None:
        self._kept[key] = answer
        self._kept_bytes += len(answer)
        while self._kept_bytes > MOST_KEPT_BYTES or len(self._kept) > MOST_KEPT:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
