"""The fold in the background of a serving process: about every second, and on demand, one at a time."""

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread
from time import monotonic

from changeling_protocol import SurveyId, UnixSeconds

from ..errors import FoldOver
from ..fold import FoldEngine, FoldReport, fold
from ..ingest import Registry
from ..store import Store
from ..store.log import unfolded
from ..store.recovery import Silent, silent_streams
from .clock import Clock
from .guarded_clock import AT_THE_START, GuardedClock
from .told_time import ToldTime

EVERY_SECONDS = 1.0
REST_SECONDS = 5.0
"""So long a fold that found the log's end need not be repeated while nothing is appended: it is for sealing, then."""
MOST_STANDING_BY_SECONDS = 10.0
"""So long who asks for a fold waits for another process on the store that is folding."""
TELLING_SECONDS = 10.0
"""So often it is looked, however long a fold takes, whether the time is to be told: a server that starts waits for 90
seconds to hear of it, and would then go by its own clock."""
_log = logging.getLogger("changeling")


class FoldLoop:
    """Has the log of a store folded, and looks whether other processes published something on it.

    process: folds; where there is none the loop's own thread does. folds: False where another process is to fold: this
    one then looks whether it does, and recovers journals that it can reach. flush: lets the fold find all that was
    acknowledged. silent: the streams of which the store may not have all, with the time up to which it has, in Unix
    milliseconds.
    uncounted: the surveys some of whose uploads could not be counted since the start.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        process: FoldEngine | None = None,
        flush: Callable[[], None] = lambda: None,
        *,
        folds: bool = True,
    ) -> None:
        self._store, self._registry, self._clock, self._process = store, registry, clock, process
        self.folds = folds
        self._flush = flush
        self.silent: list[Silent] = []
        self._one_at_a_time = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="fold", daemon=True)
        self.last_fold: UnixSeconds | None = None
        """When this process last folded to the log's end, or saw that another had, in Unix seconds."""
        self.failures = 0
        """How often in a row folding has failed since."""
        self._folded = monotonic()
        self._looked: UnixSeconds | None = None
        self.uncounted: set[SurveyId] = set()
        self._over: FoldOver | None = None
        self._told = ToldTime(store, clock) if isinstance(clock, GuardedClock) else None
        self._teller = Thread(target=self._tell_time, name="time", daemon=True)

    def start(self) -> None:
        """Begin to fold about every second."""
        self._thread.start()
        self._teller.start()

    def close(self) -> None:
        """Finish the batch in hand, then end: what is left is folded another time."""
        self._stop.set()
        if self._process is not None:
            self._process.close()
        for thread in (self._thread, self._teller):
            if thread.ident is not None:
                thread.join()

    def wait(self) -> None:
        """Wait until it ends by itself, which it never does with success. Raises FoldOver."""
        self._thread.join()
        if self._over is not None:
            raise self._over

    @property
    def running(self) -> bool:
        """Whether its thread lives."""
        return self._thread.is_alive()

    @property
    def age(self) -> float:
        """Seconds since it last folded to the log's end, saw that another had, or was made, whatever the clock says."""
        return monotonic() - self._folded

    def fold_now(self) -> FoldReport:
        """Fold to the log's end, waiting for a fold in hand, also of another process. Raises what the store raises."""
        self._flush()
        total, end = FoldReport(), monotonic() + MOST_STANDING_BY_SECONDS
        while not self._stop.is_set():
            total += self._fold_some()
            if not total.behind and not (total.stood_by and monotonic() < end):
                break
            self._stop.wait(0.0 if total.behind else 0.05)
        return total

    def _may_rest(self) -> bool:
        """Whether nothing waits, and what time alone makes due was looked at lately; then that is all of this fold."""
        if self._told is not None:
            with self._one_at_a_time:
                self._told.listen()
        now = self._now()
        sure = not (isinstance(self._clock, GuardedClock) and self._clock.doubt is not None)
        if not sure or self.failures or self._looked is None or not 0 <= now - self._looked < REST_SECONDS:
            return False
        with self._store.reading() as connection:
            if unfolded(connection):
                return False
        self._registry.refresh()
        self.last_fold, self._folded = now, monotonic()
        return True

    def _fold_some(self) -> FoldReport:
        """Fold for a while, or to the log's end; then see what is new, and remember the time."""
        with self._one_at_a_time:
            guard = self._clock if isinstance(self._clock, GuardedClock) else None
            try:
                if self._told is not None:  # also where folding fails: the others go by the earliest that they hear
                    self._told.listen()
                    self._told.tell()
                if self._process is not None:
                    self._process.await_start()
                doubt = guard.doubt if guard is not None else None
                now = self._now()
                # What is folded with a wrong arrival is late for good: after a downtime that may be none, it waits.
                waits = doubt in AT_THE_START
                try:
                    report = FoldReport() if waits else self._fold(now, closing=doubt is None)
                finally:
                    self._registry.refresh()  # keys may have been destroyed; tokens are revoked, whatever has failed
                if self._told is not None:  # again, as a fold may have taken long
                    self._told.tell()
            except BaseException:
                self.failures += 1
                raise
            self.uncounted |= report.uncounted.keys()
            with self._store.reading() as connection:
                self.silent = silent_streams(connection)
            _tell(report)
            self.failures = 0
            if not report.behind and (self.folds or not report.stood_by):
                self.last_fold, self._folded = now, monotonic()
                self._looked = now
            return report

    def _now(self) -> UnixSeconds:
        """The time to fold by: of several servers' clocks that run the earliest."""
        return self._clock.earliest if isinstance(self._clock, GuardedClock) else self._clock()

    def _fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        if not self.folds:
            with self._store.reading() as connection:
                return FoldReport(stood_by=unfolded(connection) > 0)
        if self._process is not None:
            return self._process.fold(now, closing=closing)
        return fold(self._store, now, closing=closing, stop=self._stop.is_set)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            try:
                while not self._may_rest() and self._fold_some().behind and not self._stop.is_set():
                    pass
            except FoldOver as error:
                self._over = error
                return
            except Exception:  # a full disk today is no reason not to try again
                if not self._stop.is_set():  # else its process was ended
                    _log.exception("the fold failed and will be tried again")

    def _tell_time(self) -> None:
        """Tell it also while a fold hangs, which has the other thread wait."""
        while self._told is not None and not self._stop.wait(TELLING_SECONDS):
            try:
                self._told.listen()
                self._told.tell()
            except Exception as error:  # the store may be held for long, or away; a fold says so too
                _log.warning("the time could not be told to other servers", extra={"why": f"{error}"})


def _tell(report: FoldReport) -> None:
    if report.envelopes:
        refused = {reason.value: count for reason, count in sorted(report.refused.items())}
        _log.info("folded", extra={"envelopes": report.envelopes, "reports": report.reports, "refused": refused})
