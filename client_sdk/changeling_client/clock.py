"""The device's clock in whole milliseconds, and how far it runs ahead of the server's.

The server's clock may only delay an answer: a device that is behind it stays as it is.
"""

import sqlite3
from collections.abc import Callable

from changeling_protocol import Calendar

_DATE_RESOLUTION_MS = 1000


class DeviceClock:
    """Reads the host's clock.

    read: gives Unix time in seconds. lead_ms: how far it was ahead of the server's when they last spoke.
    """

    def __init__(self, read: Callable[[], float], lead_ms: int) -> None:
        self._read = read
        self.lead_ms = lead_ms

    def now_ms(self) -> int:
        """The device's time: what records are stamped with."""
        return int(self._read() * 1000)

    def delayed_ms(self) -> int:
        """The device's time without its lead over the server: what decides whether a node is due."""
        return self.now_ms() - self.lead_ms

    def hears(self, server_ms: int, asked_ms: int) -> None:
        """Takes in the server's time, whole seconds rounded down, that answered a request made at asked_ms.

        Counts only the lead that is certain: clocks that agree have none.
        """
        self.lead_ms = max(0, asked_ms - server_ms - _DATE_RESOLUTION_MS)


def close_ms(calendar: Calendar, period: int) -> int:
    """The last millisecond of a period; 0 names the time before the first."""
    return calendar.time(period) * 1000


def last_seen(db: sqlite3.Connection, now_ms: int) -> int:
    """The latest device time this store has seen, now included, kept with the transaction."""
    db.execute("UPDATE clock SET seen_ms = max(seen_ms, ?)", (now_ms,))
    (seen,) = db.execute("SELECT seen_ms FROM clock").fetchone()
    return int(seen)


def known_lead(db: sqlite3.Connection) -> int:
    (lead,) = db.execute("SELECT lead_ms FROM clock").fetchone()
    return int(lead)


def keep_lead(db: sqlite3.Connection, lead_ms: int) -> None:
    db.execute("UPDATE clock SET lead_ms = ? WHERE lead_ms != ?", (lead_ms, lead_ms))
