"""Clocks of a server: functions that give Unix time in seconds."""

from collections.abc import Callable
from typing import TypeAlias

from changeling_protocol.calendar import LAST_INSTANT
from changeling_statistics.instants import format_instant

Clock: TypeAlias = Callable[[], float]


class MovableClock:
    """A clock that stands still until it is moved forward: for replaying the past on loopback.

    time: Unix seconds.
    """

    def __init__(self, time: float) -> None:
        self._time = time

    def __call__(self) -> float:
        return self._time

    def move_to(self, time: float) -> None:
        """Raises ValueError for a time before the present one, or that no date names."""
        if not time <= LAST_INSTANT:
            raise ValueError(f"this clock goes to {format_instant(LAST_INSTANT)}, no further")
        if not time >= self._time:
            raise ValueError(
                f"this clock shows {format_instant(self._time)} and cannot go back to {format_instant(time)}"
            )
        self._time = time
