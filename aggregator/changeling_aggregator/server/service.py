"""One serving process: its store and threads, the fold in the background, who is signed in, and answers in the making.
It knows no HTTP.

The fold runs about every second, and on demand, one at a time. A session is begun by showing a token: a browser keeps a
random number that says nothing by itself; here its hash is kept, beside that of the token. So a session can do what its
token may, ends when that is revoked, and with the process.

Answers are worked out on threads of their own: a few at a time, each once, and none that nobody waits for any more. So
whoever asks for many, for the same again and again, or goes away before the answer, keeps neither uploads nor the fold
waiting, nor other readers for long.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Event, Lock, Thread
from time import monotonic
from typing import TypeAlias

from changeling_protocol import SurveyId, UnixMilliseconds, UnixSeconds

from ..errors import FoldOver, Overloaded
from ..fold import MOST_AHEAD_MS, FoldEngine, FoldProcess, FoldReport, fold
from ..ingest import Committer, Registry
from ..logs import LoggedOutage
from ..store import Store
from .clock import Clock, GuardedClock
from .http import Bodies, Rates, Traffic, keep_latest
from .shown import Editions, Showing

LIFE_SECONDS = 8 * 3600
MOST_SESSIONS = 1000
"""With more the oldest end."""
ID_BYTES = 32


class Sessions:
    """The sessions of one process. clock: seconds of a clock that nobody sets."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()
        """By the hash of what a browser keeps, the token's hash, and when the session is over."""
        self._lock = Lock()

    def begin(self, token: bytes) -> str:
        """Begin a session; what the browser keeps of it. token: the hash of the token that was shown."""
        id_ = secrets.token_urlsafe(ID_BYTES)
        with self._lock:
            keep_latest(self._sessions, _hash_of(id_), (token, self._clock() + LIFE_SECONDS), MOST_SESSIONS)
        return id_

    def token_of(self, id_: str) -> bytes | None:
        """The hash of the token that a session was begun with; None where there is no such session, or no longer."""
        with self._lock:
            token, ends = self._sessions.get(_hash_of(id_), (None, 0.0))
            return token if self._clock() < ends else None

    def end(self, id_: str) -> None:
        """End a session, if it has not ended."""
        with self._lock:
            self._sessions.pop(_hash_of(id_), None)


def _hash_of(id_: str) -> bytes:
    return sha256(id_.encode(errors="surrogateescape")).digest()


MOST_OPENINGS = 32
AT_ONCE = 2
MOST_WAITING = 64
"""So many questions wait for a thread at most; however many wait for the answer to one of them."""
MOST_OF_NETWORK = 16
"""So many of those that wait are of one network at most."""
COME_AGAIN = "more estimates are asked for than this server makes at a time: come again later"
MOST_KEPT_BYTES = 64 * 2**20
MOST_KEPT = 4096


@dataclass(slots=True, eq=False)
class _Line:
    """What is asked by one network, and not made yet. turn: as many as it may have made at once."""

    turn: asyncio.Semaphore
    length: int = 0


@dataclass(slots=True, eq=False)
class _Work:
    """An answer that is being made, or waits for it. readers: how many still want it. begun: whether it is in hand."""

    made: asyncio.Task[bytes] = field(init=False)
    readers: int = 0
    begun: bool = False


class Estimating:
    """Makes answers and keeps the latest of them: MOST_KEPT, of MOST_KEPT_BYTES together. One event loop uses it.

    Networks take turns, as each has one answer in hand or in line for a thread, and waits with the others. The answer
    that a survey's page opens with has a thread and a place of its own.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE + 1, thread_name_prefix="estimate")
        self._free, self._page = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(1)
        self._work: dict[Hashable, _Work] = {}
        self._lines: dict[str | None, _Line] = {}
        self._opening: OrderedDict[SurveyId, tuple[Hashable, bytes]] = OrderedDict()
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._kept_bytes = 0

    def kept(self, key: Hashable) -> bytes | None:
        """The answer to a question, where it is kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        return next((answer for opening, answer in self._opening.values() if opening == key), None)

    async def answer(
        self,
        key: Hashable,
        make: Callable[[], bytes],
        network: str | None = None,
        opening: SurveyId | None = None,
    ) -> bytes:
        """The answer that `make` returns, or returned for this key, or is about to on another thread.

        If this is cancelled before the answer is begun, and nobody else waits for it, it is not made.
        key: says all that the answer hangs on. network: that asks; None for this machine. opening: the survey whose
        page opens with this answer, if one does. Raises what `make` does, Overloaded where too many wait.
        """
        if (kept := self.kept(key)) is not None:
            return kept
        work = self._work.get(key) or self._stand_in_line(key, make, network, opening)
        work.readers += 1
        try:
            return await asyncio.shield(work.made)
        finally:
            work.readers -= 1
            if not work.readers and not work.begun:
                work.made.cancel()
                del self._work[key]

    def close(self) -> None:
        """Finish the answers in hand, no others."""
        self._threads.shutdown(cancel_futures=True)

    def _stand_in_line(
        self, key: Hashable, make: Callable[[], bytes], network: str | None, opening: SurveyId | None
    ) -> _Work:
        at_once = AT_ONCE if network is None else 1
        line = self._lines.get(network) or _Line(asyncio.Semaphore(at_once))
        too_long = network is not None and line.length >= at_once + MOST_OF_NETWORK
        if opening is None and (too_long or len(self._work) >= AT_ONCE + MOST_WAITING):
            raise Overloaded(COME_AGAIN)
        self._lines[network] = line
        line.length += 1
        work = self._work[key] = _Work()

        def over(made: asyncio.Task[bytes]) -> None:
            line.length -= 1
            if not line.length:
                del self._lines[network]
            if self._work.get(key) is work:
                del self._work[key]
            if not made.cancelled() and made.exception() is None:
                self._keep(key, opening, made.result())

        work.made = asyncio.create_task(self._make(work, line, make, opening))
        work.made.add_done_callback(over)
        return work

    async def _make(self, work: _Work, line: _Line, make: Callable[[], bytes], opening: SurveyId | None) -> bytes:
        turn, thread = (line.turn, self._free) if opening is None else (self._page, nullcontext())
        async with turn, thread:
            work.begun = True
            return await asyncio.get_running_loop().run_in_executor(self._threads, make)

    def _keep(self, key: Hashable, opening: SurveyId | None, answer: bytes) -> None:
        if opening is not None:
            keep_latest(self._opening, opening, (key, answer), MOST_OPENINGS)
            return
        self._kept[key] = answer
        self._kept_bytes += len(answer)
        while self._kept_bytes > MOST_KEPT_BYTES or len(self._kept) > MOST_KEPT:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])


EVERY_SECONDS = 1.0
MOST_STANDING_BY_SECONDS = 10.0
"""So long who asks for a fold waits for another process on the store that is folding."""
KEEP_TIME_SECONDS = 60.0
"""So often the store is told the time, and the clock compared with the database's."""
_log = logging.getLogger("changeling")


class FoldLoop:
    """Has the log of a store folded, and looks whether other processes published something on it.

    process: folds; where there is none the loop's own thread does. folds: False where another process is to fold: this
    one then looks whether it does.
    uncounted: the surveys some of whose uploads could not be counted since the start.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        process: FoldEngine | None = None,
        *,
        folds: bool = True,
    ) -> None:
        self._store, self._registry, self._clock, self._process = store, registry, clock, process
        self._guarded = clock if isinstance(clock, GuardedClock) else None
        self.folds = folds
        self._one_at_a_time = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="fold", daemon=True)
        self.last_fold: UnixSeconds | None = None
        """When this process last saw that nothing waited that had come before, in Unix seconds."""
        self.failures = 0
        """How often in a row folding has failed since."""
        self._folded = monotonic()
        self._kept_time: float | None = None
        self.uncounted: set[SurveyId] = set()
        self._over: FoldOver | None = None

    def start(self) -> None:
        """Begin to fold about every second."""
        self._thread.start()

    def close(self) -> None:
        """Finish the batch in hand, then end: what is left is folded another time."""
        self._stop.set()
        if self._process is not None:
            self._process.close()
        if self._thread.ident is not None:
            self._thread.join()

    def wait(self) -> None:
        """Wait until it ends by itself, which it never does with success. Raises FoldOver."""
        self._thread.join()
        if self._over is not None:
            raise self._over

    @property
    def running(self) -> bool:
        """True while its thread lives."""
        return self._thread.is_alive()

    @property
    def age(self) -> float:
        """Seconds since nothing waited that had come before it looked, or since it was made, by a steady clock."""
        return monotonic() - self._folded

    def fold_now(self) -> FoldReport:
        """Fold to the log's end, waiting for a fold in hand, also of another process. Raises what the store raises."""
        total, end = FoldReport(), monotonic() + MOST_STANDING_BY_SECONDS
        while not self._stop.is_set():
            total += self._fold_some()
            if not total.behind and not (total.stood_by and monotonic() < end):
                break
            self._stop.wait(0.0 if total.behind else 0.05)
        return total

    def _fold_some(self) -> FoldReport:
        """Fold for a while, or to the log's end; then see what is new, and remember the time."""
        with self._one_at_a_time:
            try:
                self._keep_time()
                if self._process is not None:
                    self._process.await_start()
                believed = self._guarded is None or self._guarded.doubt is None
                now = self._clock()  # after that, as what is read while a clock is in doubt may be a wrong time
                try:
                    report = self._fold(now, closing=believed)
                finally:
                    self._registry.refresh()  # keys may have been destroyed; tokens are revoked, whatever has failed
            except BaseException:
                self.failures += 1
                raise
            self.uncounted |= report.uncounted.keys()
            if report.envelopes:
                refused = {reason.value: count for reason, count in sorted(report.refused.items())}
                folded = {"envelopes": report.envelopes, "reports": report.reports, "refused": refused}
                _log.info("folded", extra=folded)
            self.failures = 0
            waits = self._anything_waits(now) if self.folds else report.stood_by
            if not report.behind and not waits:
                self.last_fold, self._folded = now, monotonic()
            return report

    def _anything_waits(self, since: UnixSeconds) -> bool:
        """True if what is not counted arrived before a fold that began then; or later than it could, so by a wrong
        clock. Another process that folds may not have counted it, or a clock in doubt keeps it from being counted.
        """
        began = UnixMilliseconds(int(1000 * since))
        with self._store.view() as view:
            first = view.log_state().first_unfolded
        return first is not None and not began <= first <= began + MOST_AHEAD_MS

    def _keep_time(self) -> None:
        """Compare the clock with the database's, and have the store remember the time: every minute."""
        if self._guarded is None or (self._kept_time and monotonic() - self._kept_time < KEEP_TIME_SECONDS):
            return
        with self._store.transaction() as writing:
            if (database := writing.kept_time().database) is not None:
                self._guarded.compare(database)
            if (kept := self._guarded.kept()) is not None:
                writing.keep_time(kept)
        self._kept_time = monotonic()

    def _fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        if not self.folds:
            with self._store.view() as view:
                return FoldReport(stood_by=view.log_state().unfolded > 0)
        if self._process is not None:
            return self._process.fold(now, closing=closing)
        return fold(self._store, now, closing=closing, stop=self._stop.is_set)

    def _run(self) -> None:
        outage = LoggedOutage(_log, "the fold failed and will be tried again", "the fold works again")
        while not self._stop.wait(EVERY_SECONDS):
            try:
                while self._fold_some().behind and not self._stop.is_set():
                    pass
                outage.succeeded()
            except FoldOver as error:
                self._over = error
                return
            except Exception as error:  # a full disk today is no reason not to try again
                if not self._stop.is_set():  # else its process was ended
                    outage.failed(error)


Admission: TypeAlias = Callable[[Mapping[str, str], bytes], Awaitable[str | None]]
"""An operator's own rule for uploads, such as the attestation of an app, or a blind token: it is given a request's
headers, in lower case, and its body, and returns None, or a sentence that says why it is not admitted. It is given no
address, nor a header in which a proxy tells one, and must keep nothing of what it sees."""
WRITE_BACK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server is run.

    authority: the public keys whose surveys and sealing keys it takes. clock: Unix seconds; a MovableClock can be moved
    over HTTP, and a GuardedClock that is in doubt keeps everything from being sealed or destroyed.
    uploads_need_token: whether who uploads shows a token of an app. admission: the operator's own rule for uploads.
    requests_a_second: the most from one network, on average; envelopes_a_day: the most from one network that shows no
    upload token; 0 for any number.
    most_store_bytes, most_unfolded: with more in the store, or more requests to be counted, uploads are turned away,
    whoever sent what fills it, until what is due is deleted; None for what the disk has room for.
    folds: whether the log is folded here; else that is left to other processes on the store.
    segments: the place where uploads lie as segments, as `checked_place` gives it; None for the store itself.
    """

    authority: Sequence[bytes]
    clock: Clock
    most_store_bytes: int | None = None
    most_unfolded: int | None = None
    uploads_need_token: bool = False
    admission: Admission | None = None
    requests_a_second: int = 0
    envelopes_a_day: int = 0
    folds: bool = True
    segments: str | None = None


class Service:
    """An aggregation server on an open store. Raises what the store raises.

    folding: the process that folds; without one a thread of this process does.
    """

    def __init__(self, store: Store, settings: ServerSettings, folding: FoldProcess | None = None) -> None:
        self.store, self.settings, self.clock = store, settings, settings.clock
        self.registry = Registry(store)
        self.registry.refresh()
        self.committer = Committer(
            store, self.clock, settings.most_store_bytes, settings.most_unfolded, settings.segments
        )
        self.guarded_clock = self.clock if isinstance(self.clock, GuardedClock) else None
        """The clock, where it is compared with a steady one."""
        self.folding = FoldLoop(store, self.registry, self.clock, folding, folds=settings.folds)
        self.estimating = Estimating()
        self.showing = Showing(store)
        self.editions = Editions(store, self.registry, self.showing, self.clock)
        self.bodies = Bodies()
        limits = settings.requests_a_second, settings.envelopes_a_day
        self.rates = Rates(limits[0], monotonic, limits[1]) if any(limits) else None
        self.sessions = Sessions(monotonic)
        self.traffic = Traffic()
        self._process = folding
        self._stop = Event()
        self._writing_back = Thread(target=self._write_back, name="writing back", daemon=True)

    def start(self) -> None:
        """Begin to commit uploads and to fold."""
        if self._process is not None:
            self._process.start()
        self.committer.start()
        self.folding.start()
        self._writing_back.start()
        self.editions.start()

    def close(self) -> None:
        """Commit what was taken in, finish the batch that is being folded, close the store."""
        self._stop.set()
        self.committer.close()
        self.folding.close()
        if self._writing_back.ident is not None:
            self._writing_back.join()
        self.editions.close()
        self.estimating.close()
        self.store.close()

    def _write_back(self) -> None:
        """Put what uploads wrote to its place, so that no upload waits for it; the fold does so once it has counted."""
        failing = "what uploads wrote cannot be put to its place, which will be tried again"
        outage = LoggedOutage(_log, failing, "what uploads wrote is put to its place again")
        while not self._stop.wait(WRITE_BACK_SECONDS):
            try:
                self.store.write_back()
                outage.succeeded()
            except Exception as error:  # a full disk today is no reason not to try again
                outage.failed(error)
