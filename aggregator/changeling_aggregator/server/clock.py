"""Clocks of a server, and whether one may be believed for what cannot be undone: sealing, and destroying keys.

The machine's clock is compared with one that nobody sets, at the start with the time that the store remembers, and on
PostgreSQL with the database's. Where they differ by more than a minute nothing is sealed or destroyed until they agree
or an operator confirms the time. Uploads are taken all the while, and counted but where they might be late.
"""

import logging
import math
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from threading import Lock
from typing import TypeAlias

from changeling_protocol import LAST_INSTANT, UnixMilliseconds, UnixSeconds, format_instant

from ..store import KeptTime

Clock: TypeAlias = Callable[[], UnixSeconds]
"""A function that gives Unix time in seconds."""
MOST_STEP = 60.0
"""Seconds. A clock that moves by more against the steady one has been set."""
MOST_PAUSE = 7200.0
"""Seconds. A store that was in use so lately vouches for the time; after longer the clock is watched for a while."""
LONGEST_PAUSE = 7 * 86_400.0
"""Seconds. After longer only an operator's word counts: a clock that is wrong from the start on looks just the same."""
SETTLING_SECONDS = 600.0
"""How long it is watched: time daemons set a clock right within minutes of the start."""
ANCHOR_SECONDS = 3600.0
"""So often small corrections are followed. A walk in steps below MOST_STEP gets no further than one in such a time."""
_log = logging.getLogger("changeling")


def real_time() -> UnixSeconds:
    """The time of the operating system's clock."""
    return UnixSeconds(time.time())


def steady_time() -> float:
    """Seconds of a clock that nobody sets; on Linux it runs on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class MovableClock:
    """A clock that stands still until it is moved forward: for replaying the past on loopback.

    now: the time that it shows at first.

    >>> clock = MovableClock(UnixSeconds(5.0))
    >>> clock.confirm(UnixSeconds(8.0))
    >>> clock()
    8.0
    """

    def __init__(self, now: UnixSeconds) -> None:
        self._now = now

    def __call__(self) -> UnixSeconds:
        """The time that it shows."""
        return self._now

    def confirm(self, time: UnixSeconds) -> None:
        """Move it forward to a time. Raises ValueError for one before what it shows, or that no date names."""
        if not self._now <= time <= LAST_INSTANT:
            last = format_instant(LAST_INSTANT)
            raise ValueError(f"this clock shows {format_instant(self._now)}, and goes forward alone, to {last} at most")
        self._now = time


class Doubt(StrEnum):
    """Why a clock is not believed. Each says what to do."""

    STARTED = (
        "the store was not in use for hours, or the clock is ahead: it is believed ten minutes after the start, if "
        "nothing contradicts it, or when it is confirmed with `changeling clock confirm`"
    )
    LONG_PAUSE = (
        "the store was not in use for more than a week, or the clock is ahead: set it right, or confirm it with "
        "`changeling clock confirm`"
    )
    SET = "the clock was set to another time: set it right, or confirm it with `changeling clock confirm`"
    DATABASE = "the database's clock shows another time than this server's: set the wrong one right"


class GuardedClock:
    """A clock for a server. Threads may share it.

    kept: the time that the store remembers. database: the time of the database's clock, Unix seconds, where it has one.
    wall: the machine's clock. steady: seconds of a clock that nobody sets.
    """

    def __init__(
        self,
        kept: KeptTime,
        database: UnixSeconds | None = None,
        wall: Clock = real_time,
        steady: Callable[[], float] = steady_time,
    ) -> None:
        self._wall, self._steady, self._lock = wall, steady, Lock()
        self._known = kept.told / 1000
        self._offset = self._anchored = self._sure_at = 0.0
        self._contradicted = False
        self._logged: Doubt | None = None
        if database is None:
            self._begin(wall(), kept.jumped)
        else:
            self._begin(database, vouched=True)
            self.compare(database)
        self.doubt  # noqa: B018  # which is logged

    def __call__(self) -> UnixSeconds:
        """The time of the machine's clock; if that was set, the time as it went on without it."""
        return self._seen()[0]

    @property
    def doubt(self) -> Doubt | None:
        """Why nothing may be sealed or destroyed by this clock now; None where it is believed."""
        _, doubt = self._seen()
        if doubt is not self._logged:
            if doubt is None:
                _log.warning("the clock is believed again, and what is due is sealed")
            else:
                _log.error("nothing is sealed or destroyed: %s; the clock shows %s", doubt.value, _shown(self._wall()))
            self._logged = doubt
        return doubt

    def _seen(self) -> tuple[UnixSeconds, Doubt | None]:
        """The time that it shows, and why it is not believed."""
        with self._lock:
            wall, steady = self._wall(), self._steady()
            ahead = wall - steady - self._offset
            if ahead < -MOST_STEP and steady < self._sure_at and wall >= self._known - MOST_STEP:
                self._begin(wall)  # it was ahead at the start, and is set right
            elif abs(ahead) > MOST_STEP:
                return UnixSeconds(self._offset + steady), Doubt.SET
            if steady - self._anchored >= ANCHOR_SECONDS:
                self._offset, self._anchored = wall - steady, steady
            if self._contradicted:
                return wall, Doubt.DATABASE
            if self._steady() < self._sure_at:
                return wall, Doubt.STARTED if self._sure_at < math.inf else Doubt.LONG_PAUSE
            return wall, None

    def compare(self, database: UnixSeconds) -> None:
        """Compare it with the database's clock, which is to be done every minute. database: Unix seconds."""
        self._contradicted = abs(self() - database) > MOST_STEP

    def kept(self) -> KeptTime | None:
        """The time that the store should remember; None where it should leave what it has.

        While the clock is watched after a pause it is None too: else a restart would end the watch.
        """
        now, doubt = self._seen()
        unknown = self._contradicted or self._steady() < self._sure_at
        return None if unknown else KeptTime(UnixMilliseconds(int(now * 1000)), doubt is Doubt.SET)

    def confirm(self, time: UnixSeconds) -> None:
        """Believe the machine's clock, on the word of an operator who says what time it is.

        time: Unix seconds. Raises ValueError where the clock shows another time.
        """
        with self._lock:
            wall, steady = self._wall(), self._steady()
            if not abs(wall - time) <= MOST_STEP:
                raise ValueError(
                    f"this server's clock shows {_shown(wall)}, and not {_shown(time)}: set it right, then confirm"
                )
            self._offset, self._anchored, self._sure_at = wall - steady, steady, steady

    def _begin(self, wall: float, jumped: bool = False, vouched: bool = False) -> None:
        """Go on from this time, unless the store remembers a later one, or that the clock was set before a pause.

        vouched: whether a database says so too, which is then right about the past, but may be this machine's: the
        pause counts all the same.
        """
        steady = self._steady()
        pause = wall - self._known if self._known else 0.0
        impossible = not vouched and (pause < -MOST_STEP or (jumped and pause > MOST_PAUSE))
        self._offset, self._anchored = (self._known if impossible else wall) - steady, steady
        self._sure_at = steady
        if pause > MOST_PAUSE and not impossible:
            self._sure_at += SETTLING_SECONDS if pause <= LONGEST_PAUSE else math.inf


def _shown(time: float) -> str:
    return format_instant(UnixSeconds(min(max(time, 0.0), LAST_INSTANT)))
