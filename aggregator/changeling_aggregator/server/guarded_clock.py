"""A server's clock, and whether it may be believed for what cannot be undone: sealing, and destroying keys.

The machine's clock is compared with one that nobody sets, and at the start with the time that the store remembers. A
clock that is set while the server runs is not followed: the time goes on from where it was.
"""

import logging
import math
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from threading import Lock

from changeling_protocol import LAST_INSTANT, UnixMilliseconds, UnixSeconds
from changeling_statistics import format_instant

from ..store.clock import KeptTime
from .clock import Clock, real_time

MOST_STEP = 60.0
"""Seconds. A clock that moves by more against the steady one has been set."""
LISTENING_SECONDS = 90.0
"""So long a server that starts waits to hear of the time from others on its store, which tell it every minute, before
it believes that it was down for more than MOST_STEP."""
MOST_DOWNTIME = 3600.0
"""Seconds. A downtime no longer than that is believed then."""
STEADY_SECONDS = 3600.0
"""A longer one is believed when the clock has run so long without being set. A walk in smaller steps than MOST_STEP
gets no further than one of them in such a time."""
TOLD_FOR_SECONDS = 180.0
"""So long after another server told the time, that server's clock is taken to run."""
LONGEST_DOWNTIME = 7 * 86_400.0
"""Seconds. A still longer one is believed on an operator's word alone: a clock that is wrong from the start on, and
stays so, looks just the same, and would destroy keys."""

_log = logging.getLogger("changeling")


class Doubt(StrEnum):
    """Why a clock is not believed. Each says what to do."""

    START = (
        "the server was down, or its clock is ahead: uploads wait for a minute and a half, in which it listens for "
        "other servers on the store"
    )
    DOWNTIME = (
        "the server was down for hours, or the clock is ahead: uploads wait until it has run for an hour, or is "
        "confirmed with `changeling clock confirm`"
    )
    LONG_DOWNTIME = (
        "the server was down for more than a week, or the clock is ahead: uploads wait until it is set right, or is "
        "confirmed with `changeling clock confirm`"
    )
    JUMPED = "the clock was set to another time: set it right, or confirm it with `changeling clock confirm`"
    AHEAD = (
        "another server on the store shows an earlier time: set this server's clock right, or that one's, and confirm "
        "that with `changeling clock confirm`"
    )


AT_THE_START = (Doubt.START, Doubt.DOWNTIME, Doubt.LONG_DOWNTIME)
"""The doubts of a clock that is shown although it may be wrong, as what it shows is likely."""


_DOWNTIMES = (
    (MOST_DOWNTIME, Doubt.START, LISTENING_SECONDS),
    (LONGEST_DOWNTIME, Doubt.DOWNTIME, STEADY_SECONDS),
    (math.inf, Doubt.LONG_DOWNTIME, math.inf),
)
"""Up to which downtime, in seconds, what is doubted, and for how many seconds it is."""


def steady_time() -> float:
    """Seconds of a clock that nobody sets; on Linux it runs on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class GuardedClock:
    """A clock for a server. Threads may share it.

    kept: what the store remembers. wall: the machine's clock, Unix seconds. steady: seconds of one that nobody sets.
    """

    def __init__(self, kept: KeptTime, wall: Clock = real_time, steady: Callable[[], float] = steady_time) -> None:
        self._wall, self.steady = wall, steady
        self._lock = Lock()
        self._doubt: Doubt | None = None
        self._since = steady()
        """When it was believed, or confirmed, last; or when its doubt about a downtime began."""
        shown = wall()
        self._known = (kept.told / 1000 if kept.told else shown) - self._since
        """What the steady clock lacks to the time that is vouched for."""
        self._begin_downtime(shown, self._since)
        if kept.jumped and shown - self._known - self._since > MOST_DOWNTIME:
            self._downtime_possible = False
        self._starting = True
        """Whether it was not believed yet, nor another server heard that shows an earlier time."""
        self._away = Doubt.JUMPED
        """What is doubted about a clock that is away from the time that is vouched for, and not for a downtime."""
        self._others = self._heard = -math.inf
        """What the steady clock lacks to the time that another server told last, and when it told it."""
        if abs(shown - self._known - self._since) <= MOST_STEP:
            self._believe(shown, self._since)
        self()

    def __call__(self) -> UnixSeconds:
        """What the machine's clock shows; if that has jumped, the time as it went on without it."""
        with self._lock:
            wall, steady = self._wall(), self.steady()
            ahead = wall - (self._known + steady)
            if abs(ahead) <= MOST_STEP:
                if self._doubt or steady - self._since >= STEADY_SECONDS:
                    self._believe(wall, steady)
                return wall
            if self._starting and MOST_STEP < ahead <= MOST_DOWNTIME and abs(wall - (self._shown + steady)) > MOST_STEP:
                self._begin_downtime(wall, steady)  # it was set to what it may well be
            if self._downtime_possible and abs(wall - (self._shown + steady)) <= MOST_STEP:
                if steady - self._since >= self._patience:
                    self._believe(wall, steady)
                else:
                    self._distrust(self._of_downtime, wall)
                return wall
            self._downtime_possible = False
            self._distrust(self._away, wall)
            return UnixSeconds(self._known + steady)

    @property
    def earliest(self) -> UnixSeconds:
        """What it shows, or the time of another server on the store that runs, where that is earlier."""
        now, steady = self(), self.steady()
        others = self._others + steady
        return now if steady - self._heard > TOLD_FOR_SECONDS else UnixSeconds(min(now, others))

    def hear(self, told: UnixSeconds, ago: float) -> None:
        """Another server on the store told the time of a clock that it believes; a clock that is ahead is in doubt.

        told: Unix seconds. ago: so many seconds ago at most. A doubt of this clock ends where the two agree.
        """
        with self._lock:
            wall, steady = self._wall(), self.steady()
            self._others, self._heard = told - steady, steady
            ahead = wall - told > MOST_STEP + ago
            if ahead or self._doubt:
                self._known = told - steady
            if ahead:
                self._starting = self._downtime_possible = False
                self._away = Doubt.AHEAD
        self()

    @property
    def doubt(self) -> Doubt | None:
        """Why nothing may be sealed or destroyed by this clock now; None where it is believed."""
        self()
        return self._doubt

    def kept(self) -> KeptTime | None:
        """What the store should remember now; None where it should leave what it has."""
        now, doubt = self(), self._doubt
        if doubt in AT_THE_START:
            return None
        return KeptTime(UnixMilliseconds(int(now * 1000)), doubt is Doubt.JUMPED)

    def confirm(self, time: UnixSeconds) -> None:
        """Believe what the machine's clock shows, on the word of an operator who says what time it is.

        time: Unix seconds. Raises ValueError where the clock shows another time.
        """
        with self._lock:
            wall, steady = self._wall(), self.steady()
            if not abs(wall - time) <= MOST_STEP:
                shown, said = (format_instant(UnixSeconds(min(max(t, 0.0), LAST_INSTANT))) for t in (wall, time))
                raise ValueError(f"this server's clock shows {shown}, and not {said}: set it right, then confirm")
            self._believe(wall, steady)

    def _begin_downtime(self, wall: float, steady: float) -> None:
        """Doubt a downtime from now on: that long which lies between what is vouched for and this wall clock."""
        self._shown, self._since = wall - steady, steady
        downtime = self._shown - self._known
        self._downtime_possible = downtime > 0
        self._of_downtime, self._patience = next(
            (doubt, patience) for longest, doubt, patience in _DOWNTIMES if downtime <= longest
        )

    def _believe(self, wall: float, steady: float) -> None:
        if self._doubt:
            _log.warning("the clock is believed again, and what is due is sealed")
        self._known, self._since = wall - steady, steady
        self._doubt, self._away = None, Doubt.JUMPED
        self._starting = self._downtime_possible = False

    def _distrust(self, doubt: Doubt, wall: UnixSeconds) -> None:
        if self._doubt is not doubt:
            shown = format_instant(UnixSeconds(min(max(wall, 0.0), LAST_INSTANT)))
            _log.error("nothing is sealed or destroyed: %s; the clock shows %s", doubt.value, shown)
        self._doubt = doubt
