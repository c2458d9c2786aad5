"""Clocks of a server: functions that give Unix time in seconds."""

from collections.abc import Callable
from time import time
from typing import TypeAlias

from changeling_protocol import LAST_INSTANT, UnixSeconds
from changeling_statistics import format_instant

Clock: TypeAlias = Callable[[], UnixSeconds]


def real_time() -> UnixSeconds:
    """What the operating system's clock shows."""
    return UnixSeconds(time())


class MovableClock:
    """A clock that stands still until it is moved forward: for replaying the past on loopback.

    now: what it shows at first.
    """

    def __init__(self, now: UnixSeconds) -> None:
        self._now = now

    def __call__(self) -> UnixSeconds:
        """What it shows."""
        return self._now

    def move_to(self, time: UnixSeconds) -> None:
        """Moves it forward to a time. Raises ValueError for one before what it shows, or that no date names."""
        if not time <= LAST_INSTANT:
            raise ValueError(f"this clock goes to {format_instant(LAST_INSTANT)}, no further")
        if not time >= self._now:
            raise ValueError(
                f"this clock shows {format_instant(self._now)} and cannot go back to {format_instant(time)}"
            )
        self._now = time
