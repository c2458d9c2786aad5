"""The device's clock in whole milliseconds, and its lead: how far it runs ahead of the server's clock.

The server's clock can only delay answers: a device that is behind the server goes by its own clock. If the device's
clock turns out to have been ahead, times in the future that it has shown are forgotten; else the store's time would
stand still until they come.
"""

import sqlite3
from collections.abc import Callable

from changeling_protocol import Calendar
from changeling_protocol.quantities import UnixMilliseconds

_DATE_RESOLUTION_MS = 1000
_STEP_MS = 60_000
"""Clocks are set back by up to so much every day. If one was set back by more, the lead that we knew is out of date."""


class DeviceClock:
    """The host's clock, and what is known of its lead.

    read: gives Unix time in seconds. lead_ms: the lead when the server last answered, in milliseconds.
    """

    def __init__(self, read: Callable[[], float], lead_ms: int) -> None:
        self._read = read
        self.lead_ms = lead_ms
        self._heard_ms: UnixMilliseconds | None = None

    def now_ms(self) -> UnixMilliseconds:
        """The device's time, in Unix milliseconds."""
        return UnixMilliseconds(int(self._read() * 1000))

    def delayed_ms(self) -> UnixMilliseconds:
        """The device's time without its lead, in Unix milliseconds. It decides whether a node is due."""
        return UnixMilliseconds(self.now_ms() - self.lead_ms)

    def stamp_ms(self, seen_ms: UnixMilliseconds) -> UnixMilliseconds:
        """The time that a record is stamped with: the device's without its lead, but never before what was seen.

        seen_ms: the latest time that the store has seen, in Unix milliseconds.
        If the time without the lead is well before that, the clock has been set back meanwhile. Then the lead is out
        of date, and the device's own time counts.
        """
        delayed = self.delayed_ms()
        return max(seen_ms, delayed if delayed >= seen_ms - _STEP_MS else self.now_ms())

    def hears(self, server_ms: UnixMilliseconds, asked_ms: UnixMilliseconds) -> None:
        """Takes in the time on a server's answer.

        server_ms: the server's time, rounded down to whole seconds. asked_ms: the device's time when it asked.
        Only the lead that is certain counts, so that clocks which agree have none.
        """
        self.lead_ms = max(0, asked_ms - server_ms - _DATE_RESOLUTION_MS)
        self._heard_ms = UnixMilliseconds(server_ms + _DATE_RESOLUTION_MS)

    def forget_heard(self) -> None:
        """Forgets the time that the server told before, as a clock may have been set since."""
        self._heard_ms = None

    def latest_ms(self) -> UnixMilliseconds | None:
        """A time that neither clock has passed yet, in Unix milliseconds; None if the server was not heard."""
        return None if self._heard_ms is None else max(self._heard_ms, self.delayed_ms())


def close_ms(calendar: Calendar, period: int) -> UnixMilliseconds:
    """The last millisecond of a period, in Unix milliseconds; of period 0, the last before the calendar."""
    return UnixMilliseconds(calendar.time(period) * 1000)


def last_seen(db: sqlite3.Connection) -> UnixMilliseconds:
    """The latest time this store has seen, in Unix milliseconds."""
    (seen,) = db.execute("SELECT seen_ms FROM clock").fetchone()
    return UnixMilliseconds(seen)


def latest_seen(db: sqlite3.Connection, clock: DeviceClock) -> UnixMilliseconds:
    """The latest time this store has seen, the present included, which is not kept."""
    return clock.stamp_ms(last_seen(db))


def see(db: sqlite3.Connection, clock: DeviceClock) -> UnixMilliseconds:
    """The latest time this store has seen, the present included; kept as the transaction ends.

    What asks for it must not hang on answers: a flush may ask the server for the time because of what was kept, and
    who joins a survey enrols by it.
    """
    seen = latest_seen(db, clock)
    db.execute("UPDATE clock SET seen_ms = ?", (seen,))
    return seen


def known_lead(db: sqlite3.Connection) -> int:
    """The lead that this store has kept, in milliseconds."""
    (lead,) = db.execute("SELECT lead_ms FROM clock").fetchone()
    return int(lead)


def keep_heard(db: sqlite3.Connection, clock: DeviceClock) -> None:
    """Keeps the lead in the store. If the server has just told the time, seen times beyond it are forgotten."""
    db.execute("UPDATE clock SET lead_ms = ?1 WHERE lead_ms != ?1", (clock.lead_ms,))
    if (latest := clock.latest_ms()) is not None:
        db.execute("UPDATE clock SET seen_ms = ?1 WHERE seen_ms > ?1", (latest,))
