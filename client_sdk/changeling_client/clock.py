"""The time, as one store knows it: the device's clock, and its lead, how far it runs ahead of a server's.

Times are whole milliseconds. A server's clock can only delay answers: a device that is behind the server goes by its
own clock. If the device's clock turns out to have been ahead, times in the future that it has shown are forgotten;
else the store's time would stand still until they come. Each server has a time of its own, so that none can delay
what goes to another.
"""

import sqlite3
from dataclasses import dataclass, replace

from changeling_protocol import LAST_INSTANT, Calendar, UnixMilliseconds

_DATE_RESOLUTION_MS = 1000
_STEP_MS = 60_000
"""Clocks are set back by up to so much every day. If one was set back by more, the lead that we knew is out of date."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The time that a server told.

    server_ms: its time, rounded down to whole seconds. asked_ms: the device's when it asked. Both Unix milliseconds.
    """

    server_ms: UnixMilliseconds
    asked_ms: UnixMilliseconds


@dataclass(frozen=True, slots=True)
class KnownTime:
    """What is kept of the time. A device's `now_ms` is what its clock shows, in Unix milliseconds.

    seen_ms: the latest time, without the lead that was known then, that an enrolment or a flush has seen. A record
    changes nothing of this, so that nothing hangs on whether there was one.
    lead_ms: how far the device was ahead when the server last answered, in milliseconds.
    """

    seen_ms: UnixMilliseconds
    lead_ms: int

    def delayed(self, now_ms: UnixMilliseconds) -> UnixMilliseconds:
        """The device's time without its lead. It decides whether a node is due."""
        return UnixMilliseconds(now_ms - self.lead_ms)

    def stamp(self, now_ms: UnixMilliseconds) -> UnixMilliseconds:
        """The time that a record is stamped with: the device's without its lead, but never before what was seen.

        If the time without the lead is well before that, the clock has been set back meanwhile. Then the lead is out
        of date, and the device's own time counts.
        """
        delayed = self.delayed(now_ms)
        return max(self.seen_ms, delayed if delayed >= self.seen_ms - _STEP_MS else now_ms)

    def seeing(self, now_ms: UnixMilliseconds) -> "KnownTime":
        """What is known once the present is seen as well. What asks for it must not hang on answers."""
        return replace(self, seen_ms=self.stamp(now_ms))

    def hearing(self, heard: Heard, now_ms: UnixMilliseconds) -> "KnownTime":
        """What is known once a server has told its time: times beyond both clocks are forgotten.

        Only the lead that is certain counts, so that clocks which agree have none.
        """
        lead = max(0, heard.asked_ms - heard.server_ms - _DATE_RESOLUTION_MS)
        passed = UnixMilliseconds(max(heard.server_ms + _DATE_RESOLUTION_MS, now_ms - lead))
        return KnownTime(min(self.seen_ms, passed), lead)


def ms_of(seconds: float) -> UnixMilliseconds:
    """What a clock shows, in Unix milliseconds; the nearest of all times that have a date in four digits, 0 for NaN."""
    if seconds != seconds:
        return UnixMilliseconds(0)
    return UnixMilliseconds(int(1000 * min(max(seconds, -LAST_INSTANT), LAST_INSTANT)))


def close_ms(calendar: Calendar, period: int) -> UnixMilliseconds:
    """The last millisecond of a period, in Unix milliseconds; of period 0, the last before the calendar."""
    return UnixMilliseconds(calendar.time(period) * 1000)


def known_time(db: sqlite3.Connection, url: str) -> KnownTime:
    """What the store knows of the time at the server of this URL."""
    row = db.execute("SELECT seen_ms, lead_ms FROM servers WHERE url = ?", (url,)).fetchone()
    return KnownTime(UnixMilliseconds(0), 0) if row is None else KnownTime(*row)


def keep_time(db: sqlite3.Connection, url: str, time: KnownTime) -> None:
    """Keeps it."""
    db.execute(
        "INSERT INTO servers VALUES (?, ?, ?, 0, 0, 0, 0) ON CONFLICT DO UPDATE SET seen_ms = ?2, lead_ms = ?3",
        (url, time.seen_ms, time.lead_ms),
    )
