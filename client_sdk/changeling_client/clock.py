"""The device's clock in whole milliseconds, and how far it runs ahead of the server's.

The server's clock may only delay: a device that is behind it stays as it is. What was seen by a clock that
turns out to have been ahead is no reason to freeze the time there.
"""

import sqlite3
from collections.abc import Callable

from changeling_protocol import Calendar

_DATE_RESOLUTION_MS = 1000
_STEP_MS = 60_000
"""How far clocks are set back every day; by more, the known lead belongs to a clock that has since been set right."""


class DeviceClock:
    """Reads the host's clock.

    read: gives Unix time in seconds. lead_ms: how far it was ahead of the server's when they last spoke.
    """

    def __init__(self, read: Callable[[], float], lead_ms: int) -> None:
        self._read = read
        self.lead_ms = lead_ms
        self._heard_ms: int | None = None

    def now_ms(self) -> int:
        """The device's time."""
        return int(self._read() * 1000)

    def delayed_ms(self) -> int:
        """The device's time without its lead over the server: what decides whether a node is due."""
        return self.now_ms() - self.lead_ms

    def stamp_ms(self, seen_ms: int) -> int:
        """What a record is stamped with: the time without the lead, but never before what was seen.

        Where the lead would take it well before that, the clock was set back since, and the lead is no more.
        """
        delayed = self.delayed_ms()
        return max(seen_ms, delayed if delayed >= seen_ms - _STEP_MS else self.now_ms())

    def hears(self, server_ms: int, asked_ms: int) -> None:
        """Takes in the server's time, whole seconds rounded down, that answered a request made at asked_ms.

        Counts only the lead that is certain: clocks that agree have none.
        """
        self.lead_ms = max(0, asked_ms - server_ms - _DATE_RESOLUTION_MS)
        self._heard_ms = server_ms + _DATE_RESOLUTION_MS

    def forget_heard(self) -> None:
        """What was heard before says nothing of the present: a clock may be set at any time."""
        self._heard_ms = None

    def latest_ms(self) -> int | None:
        """A time that neither clock has passed, as just heard; None where nothing was."""
        return None if self._heard_ms is None else max(self._heard_ms, self.delayed_ms())


def close_ms(calendar: Calendar, period: int) -> int:
    """The last millisecond of a period; 0 names the time before the first."""
    return calendar.time(period) * 1000


def last_seen(db: sqlite3.Connection) -> int:
    """The latest time this store has seen."""
    (seen,) = db.execute("SELECT seen_ms FROM clock").fetchone()
    return int(seen)


def see(db: sqlite3.Connection, clock: DeviceClock) -> int:
    """The latest time this store has seen, now included, kept with the transaction."""
    seen = clock.stamp_ms(last_seen(db))
    db.execute("UPDATE clock SET seen_ms = ?", (seen,))
    return seen


def known_lead(db: sqlite3.Connection) -> int:
    (lead,) = db.execute("SELECT lead_ms FROM clock").fetchone()
    return int(lead)


def keep_heard(db: sqlite3.Connection, clock: DeviceClock) -> None:
    """Keeps the lead, and forgets what was seen by a clock that was ahead, where the server has just told the time."""
    db.execute("UPDATE clock SET lead_ms = ?1 WHERE lead_ms != ?1", (clock.lead_ms,))
    if (latest := clock.latest_ms()) is not None:
        db.execute("UPDATE clock SET seen_ms = ?1 WHERE seen_ms > ?1", (latest,))
