"""Working out estimates on threads of their own: a few at a time, and each once as long as its tallies stay the same.

So whoever asks for many, or for the same again and again, keeps neither uploads nor the fold waiting.
"""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from threading import Lock

from changeling_statistics.tallies import Tallies

from ..errors import Overloaded

AT_ONCE = 2
MOST_WAITING = 64
MOST_KEPT_BYTES = 64 * 2**20


class Estimating:
    """Works out answers and keeps the latest of them, MOST_KEPT_BYTES together."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="estimate")
        self._lock = Lock()
        self._unfinished = 0
        self._making: dict[object, Future[bytes]] = {}
        self._kept: OrderedDict[object, bytes] = OrderedDict()
        self._kept_bytes = 0

    def submit(self, answer: Callable[[], bytes]) -> Future[bytes]:
        """Run this on one of the threads. Raises Overloaded where too many wait for one."""
        with self._lock:
            if self._unfinished >= AT_ONCE + MOST_WAITING:
                raise Overloaded("more estimates are asked for than this server makes at a time: come again later")
            self._unfinished += 1
        future = self._threads.submit(answer)
        future.add_done_callback(self._finished)
        return future

    def once(self, key: object, make: Callable[[], bytes]) -> bytes:
        """What `make` returns, or did for this key, or is about to on another thread."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            making = self._making.get(key)
            if making is None:
                mine = self._making[key] = Future()
        if making is not None:
            return making.result()
        try:
            answer = make()
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(answer)
            self._keep(key, answer)
            return answer
        finally:
            with self._lock:
                del self._making[key]

    def close(self) -> None:
        """Finish the answers in hand, no others."""
        self._threads.shutdown(cancel_futures=True)

    def _keep(self, key: object, answer: bytes) -> None:
        with self._lock:
            self._kept[key] = answer
            self._kept_bytes += len(answer)
            while self._kept_bytes > MOST_KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _finished(self, _: Future[bytes]) -> None:
        with self._lock:
            self._unfinished -= 1


def digest_of(tallies: Tallies) -> bytes:
    """Tallies that differ have other digests."""
    hashed = blake2b(digest_size=32)
    for (track, node), tally in tallies.items():
        hashed.update(b"%d %d %d " % (track, node, tally.reports))
        hashed.update(tally.slots.tobytes())
    for (group, period), here in sorted(tallies.attendance.items()):
        hashed.update(b"%d %d %d %d %d " % (group, period, here.heard, here.new, here.missed))
    return hashed.digest()
