"""The fold in the background of a serving process: about every second, and on demand, one at a time."""

import logging
from threading import Event, Lock, Thread
from time import monotonic

from changeling_protocol import SurveyId, UnixSeconds

from ..errors import FoldOver
from ..fold import FoldEngine, FoldReport, fold
from ..ingest import Registry
from ..store import Store
from .clock import Clock, GuardedClock

EVERY_SECONDS = 1.0
REST_SECONDS = 5.0
"""So long a fold that found the log's end need not be repeated while nothing is appended: it is for sealing, then."""
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
        """When this process last folded to the log's end, or saw that another had, in Unix seconds."""
        self.failures = 0
        """How often in a row folding has failed since."""
        self._folded = monotonic()
        self._looked: UnixSeconds | None = None
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
        """Seconds since it last folded to the log's end, saw that another had, or was made, whatever the clock says."""
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

    def _may_rest(self) -> bool:
        """True if nothing waits, and what time alone makes due was looked at lately; then that is all of this fold."""
        now = self._clock()
        doubt = self._guarded.doubt if self._guarded else None
        if doubt or self.failures or self._looked is None or not 0 <= now - self._looked < REST_SECONDS:
            return False
        with self._store.view() as view:
            if view.unfolded():
                return False
        self._registry.refresh()
        self.last_fold, self._folded = now, monotonic()
        return True

    def _fold_some(self) -> FoldReport:
        """Fold for a while, or to the log's end; then see what is new, and remember the time."""
        with self._one_at_a_time:
            try:
                self._keep_time()
                if self._process is not None:
                    self._process.await_start()
                now = self._clock()
                try:
                    report = self._fold(now, closing=self._guarded is None or self._guarded.doubt is None)
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
            if not report.behind and (self.folds or not report.stood_by):
                self.last_fold, self._folded = now, monotonic()
                self._looked = now
            return report

    def _keep_time(self) -> None:
        """Compare the clock with the database's, and have the store remember the time: every minute."""
        if self._guarded is None or (self._kept_time and monotonic() - self._kept_time < KEEP_TIME_SECONDS):
            return
        with self._store.transaction() as writing:
            if (database := writing.database_time()) is not None:
                self._guarded.compare(database)
            if (kept := self._guarded.kept()) is not None:
                writing.keep_time(kept)
        self._kept_time = monotonic()

    def _fold(self, now: UnixSeconds, *, closing: bool) -> FoldReport:
        if not self.folds:
            with self._store.view() as view:
                return FoldReport(stood_by=view.unfolded() > 0)
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
